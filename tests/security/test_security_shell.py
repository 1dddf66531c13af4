"""Nothing out of a config is taken for a command: what is odd is refused, or reaches mgg as one word, as it is."""

import os
import re
import shlex
from pathlib import Path

import pytest
from support.workflow import ROOT, TINY, Folder

from mgg import config
from mgg.aggregate import machines, parse_options
from mgg.config import validate
from mgg.errors import InputError
from mgg.graph.external import parse_size
from mgg.model import settings_of

ODD = 'it\'s a "b" $(touch obeyed); `touch obeyed` & > obeyed | c *'
#: Fields whose text is free, by their path in the schema; all others have a pattern or a list of values.
FREE = {
    "report.title", "report.notes.*", "aggregate.options.*.*", "aggregate.variants.*.*", "train.settings.*.*",
    "predict.machine",
}  # fmt: skip
NAMES = [
    {"experiment": ODD},
    {"graph": {"datasets": {ODD: {}}}},
    {"graph": {"datasets": {"digits": {"order": ODD}}}},
    {"graph": {"datasets": {"mine": {"generator": ODD}}}},
    {"graph": {"memory": ODD}},
    {"partition": {"scheme": ODD}},
    {"aggregate": {"techniques": [ODD]}},
    {"aggregate": {"dtypes": [ODD]}},
    {"aggregate": {"backend": ODD}},
    {"aggregate": {"options": {ODD: {"ps": 2}}}},
    {"aggregate": {"options": {"mgg": {ODD: 2}}}},
    {"aggregate": {"variants": {"mgg": [{ODD: 2}]}}},
    {"train": {"datasets": [ODD]}},
    {"train": {"models": [ODD]}},
    {"train": {"techniques": [ODD]}},
    {"train": {"dtype": ODD}},
    {"train": {"settings": {ODD: {"hidden": 2}}}},
    {"predict": {"techniques": [ODD]}},
    {"predict": {"network": ODD}},
    {"predict": {"links": {ODD: {"latency": 1}}}},
    {"report": {"figures": [ODD]}},
    {"report": {"notes": {ODD: "text"}}},
]


def texts(schema: dict, definitions: dict, path: str = "") -> set[str]:
    """Paths of all strings in a JSON schema that neither a pattern nor a list of values restricts."""
    if "$ref" in schema:
        return texts(definitions[schema["$ref"].rpartition("/")[2]], definitions, path)
    found: set[str] = set()
    if schema.get("type") == "string" and not {"pattern", "enum", "const"} & set(schema):
        found.add(path)
    for kind in ("anyOf", "oneOf", "allOf"):
        found |= set().union(*(texts(each, definitions, path) for each in schema.get(kind, [])), set())
    if "items" in schema:
        found |= texts(schema["items"], definitions, path)
    for name, each in schema.get("properties", {}).items():
        found |= texts(each, definitions, f"{path}.{name}".lstrip("."))
    inside = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return found.union(*(texts(each, definitions, f"{path}.*") for each in inside if isinstance(each, dict)))


def test_the_fields_with_free_text_are_those_tested_here():
    schema = config.Config.model_json_schema()
    assert texts(schema, schema["$defs"]) == FREE


@pytest.mark.parametrize("values", NAMES, ids=str)
def test_an_odd_name_is_refused(values: dict):
    with pytest.raises(InputError) as refused:
        validate(values)
    assert "unknown field" not in str(refused.value), "a field that is gone tests nothing"


@pytest.mark.parametrize("read", [
    lambda: parse_options("mgg", {"ps": ODD}), lambda: parse_options("mgg", {"primitive": ODD}),
    lambda: settings_of("gcn", {"hidden": ODD}), lambda: parse_size(ODD),
    lambda: machines.find(ODD),
])  # fmt: skip
def test_an_odd_value_of_an_option_is_refused(read):
    with pytest.raises(InputError):
        read()


def test_odd_texts_reach_mgg_as_they_are(folder: Folder):
    folder.overlay(TINY | {"results": ODD, "report": {"title": ODD, "notes": {"mgg_fig7": ODD}}})
    run = folder.run("--dry-run", "--forceall")
    assert run.returncode == 0, run.stdout
    commands = [shlex.split(line.partition("Shell command: ")[2]) for line in run.stdout.splitlines() if "mgg " in line]
    report = next(words for words in commands if words[:2] == ["mgg", "report"])
    assert report[report.index("--title") + 1] == ODD
    assert report[report.index("--note") + 1] == f"mgg_fig7={ODD}"
    for words in commands:
        if words and "mgg" in words:
            assert words[words.index("--out") + 1].startswith(f"{ODD}/")
    assert any(words[:2] == ["mgg", "train"] or words[3:5] == ["mgg", "train"] for words in commands)


def test_what_a_shell_runs_is_quoted():
    """Every place of a rule's shell command that is filled in has `:q`; the launcher alone comes from a profile."""
    places = 0
    for file in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for command in re.findall(r"shell:\n((?:\s+\".*\"\n)+)", file.read_text()):
            for place in re.findall(r"\{(.*?)\}", command):
                places += 1
                assert place.endswith(":q") or place == "params.launcher", f"{file.name}: {{{place}}}"
    assert places > 60


@pytest.fixture
def no_umask():
    """A user whose files everybody may write."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_run_with_odd_names_obeys_none_and_lets_nobody_write(folder: Folder, no_umask: None):
    folder.overlay(TINY | {"results": ODD})
    run = folder.run("--printshellcmds", f"{ODD}/layout/planted/p1")
    assert run.returncode == 0, run.stdout
    made = list((folder.path / ODD).rglob("*"))
    assert len(made) > 10
    assert [path for path in made if path.stat().st_mode & 0o002] == []
    assert not list(Path(folder.path).rglob("obeyed"))


@pytest.mark.parametrize("results", ["it's", "back\\slash", "two\nlines"])
def test_names_that_would_break_a_clusters_script_are_refused(folder: Folder, results: str):
    from support.slurm import StandIns

    folder.overlay(TINY | {"results": results})
    stand_ins = StandIns(folder)
    run = folder.run(profile="slurm-cpu", env=stand_ins.environment())
    assert run.returncode == 2, run.stdout
    assert f"error: results: {results!r}: on a cluster this cannot have single quotes" in run.stdout
    assert not stand_ins.submitted()
