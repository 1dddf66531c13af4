"""Stages retrieve and graph: turn raw files or a generator into Parquet CSR shards (docs/reference/format.md)."""
