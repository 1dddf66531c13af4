"""A hook of mkdocs that generates parts of pages from the command line, the config's schema, records and tables."""

import json
import re
from pathlib import Path
from pydoc import locate
from typing import Any

import click
import yaml

from mgg.cli.group import cli
from mgg.records import Origin
from mgg.report.tables.columns import ABOUT, ORIGIN, TABLES, Column

ROOT = Path(__file__).resolve().parents[1]
COMMANDS, FIELDS, COLUMNS = "<!-- commands -->", "<!-- fields of the config -->", "<!-- tables of the report -->"
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.yaml"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the marks in a page's text by the generated parts."""
    if FIELDS in markdown:
        markdown = markdown.replace(FIELDS, fields(yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))))
    markdown = re.sub(r"<!-- fields of (mgg\.[\w.]+) -->", lambda found: record(locate(found[1])), markdown)
    markdown = markdown.replace(COLUMNS, columns()) if COLUMNS in markdown else markdown
    return markdown.replace(COMMANDS, commands(cli, "mgg")) if COMMANDS in markdown else markdown


def commands(command: click.Command, name: str) -> str:
    """A section with the help of each command."""
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    shown = f"## {name}\n\n```text\n{command.get_help(context)}\n```"
    return "\n\n".join([shown, *(commands(each, f"{name} {word}") for word, each in inner)])


def fields(schema: dict[str, Any]) -> str:
    """A section with a table for each section of the config."""
    found, plain = [], {}
    for name, value in schema["properties"].items():
        part = _resolved(schema, value)
        if "properties" in part:
            found.append(f"## {name}\n\n{_text(part)}\n\n{_table(schema, part['properties'])}")
            for inner, each in part["properties"].items():  # options of each data set
                for held in (_resolved(schema, one) for one in each.get("patternProperties", {}).values()):
                    if "properties" not in held:
                        continue
                    found.append(f"### {name}.{inner}.NAME\n\n{_text(held)}\n\n{_table(schema, held['properties'])}")
        else:
            plain[name] = value
    return "\n\n".join([_table(schema, plain), *found])


def record(model: Any) -> str:
    """A table with the fields of a record, without those of its origin."""
    schema, of_all = model.model_json_schema(), () if model is Origin else Origin.model_fields
    shown = {name: value for name, value in schema["properties"].items() if name not in of_all}
    return re.sub(r"\bNone\b", "none", _table(schema, shown))


def columns() -> str:
    """A section for each table of the report, after one for the columns of every table."""
    tables = {"every table": ("The last columns of every table.", ORIGIN)}
    for name, found in TABLES.items():
        tables[name] = f"{ABOUT[name][:1].upper()}{ABOUT[name][1:]}.", found[: -len(ORIGIN)]
    return "\n\n".join(f"### {name}\n\n{about}\n\n{_columns(found)}" for name, (about, found) in tables.items())


def _columns(found: list[Column]) -> str:
    rows = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for column in found:
        meaning = column.meaning.replace("|", "\\|")
        rows.append(f"| `{column.name}` | {column.kind} | {column.unit or '-'} | {meaning} |")
    return "\n".join(rows)


def _table(schema: dict[str, Any], properties: dict[str, Any]) -> str:
    rows = ["| field | value | default | meaning |", "| --- | --- | --- | --- |"]
    for name, value in properties.items():
        default = "" if value.get("default") in ({}, [], None) else f"`{json.dumps(value['default'])}`"
        rows.append(f"| `{name}` | {_kind(schema, value)} | {default} | {_text(value)} |")
    return "\n".join(rows)


def _kind(schema: dict[str, Any], value: dict[str, Any]) -> str:
    value = _resolved(schema, value)
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_kind(schema, each) for each in value["anyOf"]))
    if "enum" in value or "const" in value:
        return ", ".join(f"`{each}`" for each in value.get("enum", [value.get("const")]))
    kind = value.get("type", "value")
    if kind == "array":
        return f"list of {_kind(schema, value.get('items', {}))}"
    low, high = value.get("minimum", value.get("exclusiveMinimum")), value.get("maximum")
    limits = f" from {low}" * (low is not None) + f" to {high}" * (high is not None)
    return {"object": "map", "string": "text", "null": "none"}.get(kind, kind) + limits


def _resolved(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    name = value.get("$ref", "").rpartition("/")[2]
    return schema["$defs"][name] if name else value


def _text(value: dict[str, Any]) -> str:
    return re.sub(r"\s+", " ", value.get("description", "")).replace("|", "\\|")
