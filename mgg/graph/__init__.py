"""Stages retrieve and graph: raw files or a generator -> Parquet CSR shards (docs/format.md)."""
