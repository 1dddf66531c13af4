"""Write config.schema.yaml from mgg/config.py: python workflow/schemas/generate.py."""

from pathlib import Path

import yaml

from mgg.config import Config
from mgg.files import write_text

TARGET = Path(__file__).with_name("config.schema.yaml")


def text() -> str:
    """Return the schema as YAML."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
    head = "# Generated from mgg/config.py by `make schema`; do not edit by hand.\n"
    return head + yaml.safe_dump(schema, sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    write_text(TARGET, text())
