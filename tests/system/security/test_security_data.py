"""Data from outside: names that lead elsewhere, addresses without https or with secrets, files for everybody."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType

import pytest
from support.workflow import ROOT
from urllib3.util.retry import Retry

from mgg.errors import InputError, MachineError
from mgg.graph import datasets
from mgg.graph.generate import generate
from mgg.graph.io.download import fetch, without_secrets
from mgg.graph.retrieve import retrieve

ELSEWHERE = ["../up", "/etc/passwd", "a/../../up", "..", "~/up"]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_data_set_names_stay_inside_their_folder(tmp_path: Path, name: str):
    for make in (retrieve, generate):
        with pytest.raises(InputError, match="unknown"):
            make(name, tmp_path / "in/out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*ELSEWHERE[:4], "a\\b", "line\nbreak"])
@pytest.mark.parametrize("field", ["files", "members", "stand_in"])
def test_data_set_files_stay_inside_their_folder(name: str, field: str):
    raw: dict = {"url": "https://example.org/a.zip", "unpack": True}
    raw |= {"members": {"members": {"a": name}}, "stand_in": {"stand_in": {name: "0" * 64}}}.get(field, {})
    files = {name if field == "files" else "a.zip": raw}
    with pytest.raises(ValueError, match="not the name of a file inside the folder"):
        datasets.Dataset.model_validate({"title": "x", "loader": "snap", "licence": "x", "nodes": 1, "files": files})


@pytest.mark.parametrize("url", ["http://example.org/a", "ftp://example.org/a", "gopher://a", "//example.org/a", "a"])
def test_only_https_is_downloaded(monkeypatch, tmp_path: Path, url: str):
    monkeypatch.delenv("MGG_ALLOW_HTTP", raising=False)
    with pytest.raises(InputError, match="only https is safe"):
        fetch(url, tmp_path / "a")
    assert not [path for path in tmp_path.iterdir() if path.stat().st_size]


def test_every_data_set_comes_by_https_or_from_a_package():
    urls = [raw.url for each in datasets.catalog().values() for raw in each.files.values() if raw.url]
    assert len(urls) > 30 and all(url.startswith("https://") for url in urls)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:secret@example.org/a.gz", "https://example.org/a.gz"),
        ("https://example.org/a.gz?X-Signature=secret&b=1#secret", "https://example.org/a.gz"),
        ("redirected to 'http://me:secret@h/x?token=secret': no", "redirected to 'http://h/x': no"),
        ("https://secret@h", "https://h"),
        ("what? nothing@all", "what? nothing@all"),
    ],
)
def test_messages_hide_secrets_in_addresses(text: str, shown: str):
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    "url", ["http://me:secret@localhost/a?token=secret", "https://me:secret@localhost:1/a?t=secret"]
)
def test_failing_address_hides_its_secret(monkeypatch, tmp_path: Path, capsys, url: str):
    monkeypatch.setattr("mgg.graph.io.download.PATIENCE", Retry(total=1, backoff_factor=0))
    with pytest.raises((InputError, MachineError)) as failed:
        fetch(url, tmp_path / "a")
    assert "localhost" in str(failed.value)
    assert "secret" not in str(failed.value) + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("proxy", "error", "said"),
    [
        ("http://me:secret@localhost:1", MachineError, "{scheme}://example.invalid/a: cannot be downloaded"),
        ("me:secret@localhost:1", InputError, "{scheme}_proxy: is not the address of a proxy: write http://host:port"),
        ("x://me:secret@localhost", InputError, "{scheme}_proxy: scheme x is none of proxies"),
    ],
)
@pytest.mark.parametrize("scheme", ["https", "http"])
def test_failing_proxy_hides_its_password(
    monkeypatch, tmp_path: Path, capsys, caplog, scheme: str, proxy: str, error: type[Exception], said: str
):
    """Nothing goes beyond this machine: no proxy is there."""
    monkeypatch.setattr("mgg.graph.io.download.PATIENCE", Retry(total=1, backoff_factor=0))
    monkeypatch.setenv("MGG_ALLOW_HTTP", "1")
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(f"{scheme}_proxy", proxy)
    caplog.set_level("DEBUG")
    with pytest.raises(error, match=f"^{said.format(scheme=scheme)}") as failed:
        fetch(f"{scheme}://example.invalid/a", tmp_path / "a")
    output = "".join(capsys.readouterr())
    assert ("a: " in output and "urllib3" in caplog.text) == (error is MachineError)
    assert "secret" not in str(failed.value) + output + caplog.text


def test_outputs_are_not_world_writable(tmp_path: Path):
    command = [sys.executable, "-m", "mgg.cli", "generate", "planted", "--scale", "0.05", "--out", "graph"]
    before = os.umask(0)
    try:
        subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    finally:
        os.umask(before)
    made = [tmp_path / "graph", *(tmp_path / "graph").rglob("*")]
    assert len(made) > 3 and [path for path in made if path.stat().st_mode & 0o002] == []


@pytest.fixture
def audit() -> ModuleType:
    """tools/audit.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools/audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("vulnerabilities", "skipped", "code", "said"),
    [
        ([], False, 0, "1 of 1 packages audited, 0 known"),
        ([{"id": "PYSEC-1", "fix_versions": ["2.0"]}], False, 1, "numpy 1.0: PYSEC-1; fixed in 2.0"),
        ([], True, 0, "dependency audit skipped: its list of advisories"),
    ],
)
def test_audit_reports_what_it_checked(
    audit: ModuleType, capsys, vulnerabilities: list, skipped: bool, code: int, said: str
):
    package = {"name": "numpy", "version": "1.0", "vulns": vulnerabilities} | ({"skip_reason": "x"} if skipped else {})
    assert audit.judge(CompletedProcess([], code, json.dumps({"dependencies": [package]}), "")) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected())", 0),
        ("ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed", 0),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(': [Errno 111] Connection refused')'", 0),
        ("ERROR:pip_audit._cli:invalid requirements input: constraints.txt", 1),
        ("requests.exceptions.SSLError: certificate verify failed", 1),
        ("", 1),
    ],
)
def test_failed_audit_is_no_success(audit: ModuleType, capsys, errors: str, code: int):
    """Only PyPI that cannot be reached is."""
    for output in ("", "{}", "[]", "null"):
        assert audit.judge(CompletedProcess([], 1, output, errors)) == code
    printed = capsys.readouterr()
    assert "skipped: PyPI cannot be reached" in printed.out if code == 0 else f"exit code 1:\n{errors}" in printed.err


#: Modules that make objects, and with them calls, out of bytes; and where they may be named.
UNSAFE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_WORDS = UNSAFE | {"read_pickle", "allow_pickle", "torch"}
ALLOWED = {
    ("mgg/graph/io/unpickle.py", "pickle"),  # the restricted reader itself
    ("mgg/backend/mpi.py", "pickle"),  # MPI.pickle, between ranks of one job: the same program for the same user
}


def unsafe_calls(call: ast.Call) -> set[str]:
    """What a call has to be told not to run pickles with; what it is told must stand there."""
    options = {each.arg: getattr(each.value, "value", None) for each in call.keywords}
    called = ast.unparse(call.func)
    found = {called} if called.endswith(".read_pickle") else set()
    found |= {"allow_pickle"} if options.get("allow_pickle", False) is not False else set()
    return found | ({called} if called == "torch.load" and options.get("weights_only") is not True else set())


def unsafe(text: str) -> set[str]:
    """What a program names that could run a pickle: modules by any name or path, and calls that unpickle if told to."""
    found: set[str] = set()
    if not re.search("|".join(UNSAFE_WORDS), text):  # as most: saves the time to parse it
        return found
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [part for each in node.names for part in each.name.split(".")]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(each.name for each in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # import_module("pickle"), getattr
            names = [node.value]
        elif isinstance(node, ast.Call):
            found |= unsafe_calls(node)
        found |= UNSAFE.intersection(names)
    return found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import pickle", {"pickle"}),
        ("def f():\n    from dill import loads", {"dill"}),
        ("from mpi4py.MPI import pickle as p", {"pickle"}),
        ("MPI.pickle.loads(data)", {"pickle"}),
        ("importlib.import_module('marshal')", {"marshal"}),
        ("np.load(file, allow_pickle=True)", {"allow_pickle"}),
        ("np.load(file, allow_pickle=told)", {"allow_pickle"}),
        ("pandas.read_pickle(file)", {"pandas.read_pickle"}),
        ("torch.load(file)", {"torch.load"}),
        ("torch.load(file, weights_only=True); np.load(file, allow_pickle=False); 'no pickle here'", set()),
    ],
)
def test_pickle_readers_are_detected(text: str, named: set[str]):
    assert unsafe(text) == named


def test_only_the_restricted_reader_reads_pickles():
    files = [file for folder in ("mgg", "tools", "benchmarks", "workflow") for file in (ROOT / folder).rglob("*.py")]
    named = {(str(file.relative_to(ROOT)), name) for file in files for name in unsafe(file.read_text(encoding="utf-8"))}
    assert named == ALLOWED


def test_no_rule_reads_pickles():
    """No Python to ``ast``: a workflow's file has none of the words."""
    files = [ROOT / "Snakefile", ROOT / "workflow/Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    named = {str(file.relative_to(ROOT)): set(re.findall(r"\w+", file.read_text(encoding="utf-8"))) for file in files}
    assert len(named) > 10 and {file for file, words in named.items() if words & UNSAFE_WORDS} == set()
