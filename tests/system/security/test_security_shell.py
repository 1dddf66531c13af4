"""Nothing out of a config is taken for a command: what is odd is refused, or reaches mgg as one word, as it is."""

import html
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.workflow import ROOT, TINY, Folder
from support.workflow.slurm import StandIns

from mgg import config
from mgg.aggregate import all_techniques, parse_options
from mgg.config import validate
from mgg.cost import machines
from mgg.errors import InputError
from mgg.graph.budget import parse_size
from mgg.model import models, settings_of
from mgg.workflow import launch

ODD = 'it\'s a "b" $(touch obeyed); `touch obeyed` & > obeyed | c *'
#: Fields whose text is free, by their path in the schema; all others have a pattern or a list of values.
FREE = {
    "report.title", "report.notes.*", "aggregate.options.*.*", "aggregate.variants.*.*", "train.settings.*.*",
    "train.dataset_settings.*.*.*", "train.options.*.*",
    "predict.machine", "predict.variants.*.*", "graph.datasets.*.columns", "graph.datasets.*.column.*",
}  # fmt: skip
#: Names in mappings, by their path: a pattern or a list of values in mgg/config.py restricts them, as it does all other
#: fields. Those of ``results``, ``source`` and of models' files refuse braces and a dash at the front alone, since a
#: folder may have any name: runs are below.
NAMES: dict[str, Callable[[str], dict]] = {
    "graph.datasets:names": lambda odd: {"graph": {"datasets": {odd: {}}}},
    "graph.datasets.*.column:names": lambda odd: {
        "graph": {"datasets": {"mine": {"source": "a", "column": {odd: "a"}}}}
    },
    "aggregate.options:names": lambda odd: {"aggregate": {"options": {odd: {"ps": 2}}}},
    "aggregate.options.*:names": lambda odd: {"aggregate": {"options": {"mgg": {odd: 2}}}},
    "aggregate.variants:names": lambda odd: {"aggregate": {"variants": {odd: [{}]}}},
    "aggregate.variants.*:names": lambda odd: {"aggregate": {"variants": {"mgg": [{odd: 2}]}}},
    "train.options:names": lambda odd: {"train": {"options": {odd: {"ps": 2}}}},
    "train.options.*:names": lambda odd: {"train": {"options": {"mgg": {odd: 2}}}},
    "train.settings:names": lambda odd: {"train": {"settings": {odd: {"hidden": 2}}}},
    "train.settings.*:names": lambda odd: {"train": {"settings": {"gcn": {odd: 2}}}},
    "train.dataset_settings:names": lambda odd: {"train": {"dataset_settings": {odd: {"gcn": {"hidden": 2}}}}},
    "train.dataset_settings.*:names": lambda odd: {"train": {"dataset_settings": {"digits": {odd: {"hidden": 2}}}}},
    "train.dataset_settings.*.*:names": lambda odd: {"train": {"dataset_settings": {"digits": {"gcn": {odd: 2}}}}},
    "train.sides:names": lambda odd: {"train": {"sides": {odd: ["gcn"]}}},
    "predict.variants:names": lambda odd: {"predict": {"variants": {odd: [{}]}}},
    "predict.variants.*:names": lambda odd: {"predict": {"variants": {"cola": [{odd: 2}]}}},
    "predict.links:names": lambda odd: {"predict": {"links": {odd: {"latency": 1}}}},
    "report.notes:names": lambda odd: {"report": {"notes": {odd: "text"}}},
}


def parts(schema: dict, definitions: dict, path: str = "") -> Iterator[tuple[str, dict]]:
    """All parts of a JSON schema with their paths; what a list or a mapping holds has the path of its own."""
    if "$ref" in schema:
        yield from parts(definitions[schema["$ref"].rpartition("/")[2]], definitions, path)
        return
    yield path, schema
    inside = [(path, each) for kind in ("anyOf", "oneOf", "allOf") for each in schema.get(kind, [])]
    inside += [(path, schema["items"])] if "items" in schema else []
    inside += [(f"{path}.{name}".lstrip("."), each) for name, each in schema.get("properties", {}).items()]
    inside += [(f"{path}.*", each) for each in mapped(schema) if isinstance(each, dict)]
    for where, each in inside:
        yield from parts(each, definitions, where)


def mapped(schema: dict) -> list:
    """What the values of a mapping may be; True stands for anything."""
    return [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]


def texts(fields: list[tuple[str, dict]]) -> dict[str, bool]:
    """Paths of all strings, names in mappings too, and whether anything restricts them."""
    found: dict[str, bool] = {}
    for path, schema in fields:
        if schema.get("type") == "string":
            found[path] = bool({"pattern", "enum", "const"} & set(schema))
        if any(isinstance(each, dict) or each is True for each in mapped(schema)):
            found[f"{path}:names"] = "patternProperties" in schema or "enum" in schema.get("propertyNames", {})
    return found


SCHEMA = config.Config.model_json_schema()
PARTS = list(parts(SCHEMA, SCHEMA["$defs"]))
KINDS = {path: {schema.get("type") for where, schema in PARTS if where == path} for path, _ in PARTS}
#: Integers, numbers and booleans, apart from those that may be free text.
NUMBERS = sorted(path for path in set(KINDS) - FREE if KINDS[path] & {"integer", "number", "boolean"})


#: Fields of restricted text that is not a name in a mapping.
RESTRICTED = sorted(path for path, restricted in texts(PARTS).items() if restricted and ":" not in path)


def test_every_text_field_is_tested():
    found = texts(PARTS)
    assert {path for path, restricted in found.items() if not restricted} == FREE
    assert {path for path, restricted in found.items() if restricted} == {*RESTRICTED, *NAMES} and len(RESTRICTED) > 25
    for path, schema in PARTS:
        assert {"type", "anyOf", "oneOf", "allOf"} & set(schema), f"{path}: anything at all"


ODD_NAMES = [
    ODD, "-a", "a\n", "it's", 'a"b', "a;b", "a$(b)", "a`b`", "a b", "--out=a", "a\nb", "../a", "a|b", "a>b", "{a}",
]  # fmt: skip


def written(path: str) -> str:
    """``path`` with a name that all mappings take, but one."""
    return path.replace("*", "pyg" if path == "train.sides.*" else "nvlink")


def at(path: str, value: object) -> dict:
    """A config with nothing but this value."""
    held = [value] if "array" in KINDS[path] else value
    for name in reversed(written(path).split(".")):
        held = {name: held}
    return held


def refused(path: str, value: object) -> bool:
    """Whether the field is named for what is at ``path``."""
    named = written(path) + (".0" if "array" in KINDS[path] else "")
    with pytest.raises(InputError) as error:
        validate(at(path, value))
    return bool(re.match(f"config: {re.escape(named)}: (?!unknown field)[^\n]+$", str(error.value)))


@pytest.mark.parametrize("path", NAMES)
def test_odd_name_is_refused(path: str):
    for odd in ODD_NAMES:
        with pytest.raises(InputError) as error:
            validate(NAMES[path](odd))
        assert "unknown field" not in str(error.value), "a field that is gone tests nothing"


@pytest.mark.parametrize("path", RESTRICTED)
def test_odd_text_is_refused(path: str):
    front = "-" * (path in ("results", "graph.datasets.*.source"))
    for odd in ODD_NAMES:
        assert refused(path, front + odd), odd


def test_odd_paths_of_models_are_refused():
    assert validate({"train": {"models": ["a b.py", "../a/b.py", "~/b.py"]}})
    for odd in ("-a.py", "{a}.py", "a\n.py\n", "a.py\n", "a.py b", ".py/a"):
        with pytest.raises(InputError, match=r"^config: train\.models\.0: string should match pattern"):
            validate({"train": {"models": [odd]}})


ODD_NUMBERS = (ODD, "1 2", None, "1;a", "1 $(a)", "`a`", "1\na", "1'", '"1"', "--out=a", "1|a", "{a}", "", [], {})


@pytest.mark.parametrize("path", NUMBERS)
def test_odd_number_is_refused(path: str):
    for odd in ODD_NUMBERS:
        assert (odd is None and "null" in KINDS[path]) or refused(path, odd), odd


OPTIONS = [(name, option) for name, each in all_techniques().items() for option in each.Options.model_fields]
SETTINGS = [(name, setting) for name in models() for setting in type(settings_of(name)).model_fields]


@pytest.mark.parametrize(("read", "fields"), [(parse_options, OPTIONS), (settings_of, SETTINGS)])
def test_no_technique_or_model_option_is_free_text(read: Callable, fields: list[tuple[str, str]]):
    assert len(fields) > 10
    for name, field in fields:
        with pytest.raises(InputError, match=field):
            read(name, {field: ODD})


@pytest.mark.parametrize("read", [parse_size, machines.find])
def test_odd_value_is_refused(read: Callable):
    with pytest.raises(InputError):
        read(ODD)


@pytest.mark.slow
def test_odd_texts_reach_mgg_unchanged(folder: Folder):
    (folder.path / "pairs.csv").write_text("source,target\n0,1\n")
    mine = {"source": "pairs.csv", "column": {"ignore": [ODD]}, "columns": ["source", ODD]}
    graph = {"datasets": {"planted": {"scale": 0.05}, "mine": mine}}
    model = folder.path / ODD / "mine.py"
    model.parent.mkdir()
    model.write_text("")
    train = TINY["train"] | {"models": [f"{ODD}/mine.py"]}
    report = {"title": ODD, "notes": {"mgg_fig7": ODD}}
    folder.overlay(TINY | {"graph": graph, "results": ODD, "report": report, "train": train})
    run = folder.run("--dry-run", "--forceall")
    assert run.returncode == 0, run.stdout
    commands = [shlex.split(line.partition("Shell command: ")[2]) for line in run.stdout.splitlines() if "mgg " in line]
    report = next(words for words in commands if words[:2] == ["mgg", "report"])
    assert report[report.index("--title") + 1] == ODD
    assert report[report.index("--note") + 1] == f"mgg_fig7={ODD}"
    graph = next(words for words in commands if words[:2] == ["mgg", "graph"])
    assert graph[graph.index("--column") + 1] == f"ignore={ODD}"
    assert graph[graph.index("--columns") + 1] == f"source,{ODD}"
    for words in commands:
        if words and "mgg" in words:
            assert words[words.index("--out") + 1].startswith(f"{ODD}/")
    trained = next(words for words in commands if words[:2] == ["mgg", "train"] or words[3:5] == ["mgg", "train"])
    assert trained[trained.index("--model") + 1] == f"{ODD}/mine.py"


def test_shell_commands_are_quoted():
    """Every place of a rule's shell command that is filled in has `:q`; the launcher alone comes from a profile."""
    places = 0
    for file in sorted((ROOT / "workflow").rglob("*")):
        if not (file.name == "Snakefile" or file.suffix == ".smk"):
            continue
        text = file.read_text()
        commands = re.findall(r"shell:\n((?: +\".*\"\n)+)(?=\n|\Z)", text)
        assert len(commands) == len(re.findall(r"\bshell\s*[:(]", text)), f"{file.name}: written in another way"
        for command in commands:
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


@pytest.mark.slow
def test_run_with_odd_texts_executes_none(folder: Folder, no_umask: None):
    """Every field with free text at once, through every stage that gets one."""
    machine = folder.path / f"{ODD}.json"
    machines.write(machine, machines.find("h200"))
    (folder.path / f"{ODD}.csv").write_text("0,1\n1,2\n")
    changed = {
        "graph": {"datasets": {"mine": {"source": f"{ODD}.csv"}}},
        "partition": {"pes": [1], "quality_pes": []},
        "train": {"models": []},
        "predict": {"pes": [2], "machine": machine.name, "techniques": ["halo"]},
        "report": {"title": ODD, "figures": ["mgg_fig8"], "notes": {"mgg_fig8": ODD}},
    }
    folder.overlay(TINY | changed | {"results": ODD})
    run = folder.run()
    assert run.returncode == 0, run.stdout
    made = list((folder.path / ODD).rglob("*"))
    assert {"graph", "layout", "aggregate", "predict", "report"} <= {path.name for path in made}
    page = (folder.path / ODD / "report/index.html").read_text(encoding="utf-8")
    assert page.count(ODD) == 0 and html.unescape(page).count(ODD) >= 2, "title and note"
    assert [path for path in made if path.stat().st_mode & 0o002] == []
    assert not list(folder.path.rglob("obeyed"))


@pytest.mark.slow
def test_cluster_script_keeps_odd_names(tmp_path: Path):
    """Of the folder, results, config files and --config: the shell of a job hands each on as one word."""
    odd = 'a "b" $(touch obeyed); `touch obeyed` & > obeyed | c *'
    title = 'report={title: a "b" $(touch obeyed); `touch obeyed` & > obeyed | c *}'
    (tmp_path / odd).mkdir()
    folder = Folder(tmp_path / odd)
    file = folder.overlay(TINY | {"results": odd}, f"{odd}.yaml")
    stand_ins = StandIns(folder)
    stand_ins.run("--until", "generate", "--config", title, overlay=file.name, env={"STAND_IN_CODE": "2"})
    [(arguments, script)] = stand_ins.submitted().values()
    assert arguments[arguments.index("-D") + 1] == str(folder.path)
    words = subprocess.run(
        ["sh"], input=script.replace(f"{sys.executable} -m snakemake", "printf '%s\\n'"), cwd=tmp_path, check=True,
        capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    assert words[words.index("--configfiles") + 1] == str(file)
    assert words[words.index("--config") + 1] == title
    assert any(word.startswith(f"{folder.path}/.snakemake/tmp.") for word in words)
    assert not list(tmp_path.rglob("obeyed"))


@pytest.mark.parametrize("odd", ["it's", "back\\slash", "two\nlines"])
@pytest.mark.parametrize(
    "place", ["the working folder", "the workflow's folder", "results", "--configfile", "--config", None]
)
def test_names_that_break_a_cluster_script_are_refused(odd: str, place: str | None, monkeypatch):
    """On a cluster alone."""
    names = {name: odd if name in (place, None) else "a $b; c" for name in (
        "the working folder", "the workflow's folder", "results", "--configfile", "--config",
    )}  # fmt: skip
    refusals: list[str] = []
    workflow = SimpleNamespace(
        basedir=names["the workflow's folder"], overwrite_configfiles=[names["--configfile"]],
        config_settings=SimpleNamespace(config_args=[names["--config"]]), non_local_exec=place is not None,
    )  # fmt: skip
    monkeypatch.setattr(os, "getcwd", lambda: names["the working folder"])
    monkeypatch.setattr(launch, "refuse", refusals.append)
    launch.refuse_broken_names(workflow, names["results"])
    said = f"{place}: {odd!r}: on a cluster this cannot have single quotes, backslashes or line breaks"
    assert refusals == ([said] if place else [])


@pytest.mark.slow
def test_name_that_breaks_a_cluster_script_ends_a_run(folder: Folder):
    folder.overlay(TINY | {"results": "it's"})
    stand_ins = StandIns(folder)
    run = stand_ins.run()
    assert run.returncode == 2, run.stdout
    assert 'error: results: "it\'s": on a cluster this cannot have single quotes' in run.stdout
    assert not stand_ins.submitted()
