"""Where records come from: run, time, MGG, settings and machine."""

import datetime
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.workflow import ROOT

from mgg import origin
from mgg.backend import job_fields, simulated
from mgg.cli.options import common
from mgg.errors import InputError
from mgg.records import Origin


@click.command()
@click.argument("layout", type=click.Path(path_type=Path))
@click.option("--dim", type=int, default=16)
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True)
@common
def measure(**options):
    """Print what a record of this command would say."""
    click.echo(Origin(**origin.origin()).model_dump_json())


def said(*arguments: str) -> Origin:
    done = CliRunner().invoke(measure, arguments, catch_exceptions=False)
    return Origin.model_validate_json(done.output)


@pytest.fixture(autouse=True)
def nobody_names_the_run(monkeypatch):
    for name in (origin.RUN_ID, origin.CONFIG_HASH):
        monkeypatch.delenv(name, raising=False)


def test_command_is_a_run_with_its_options():
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    first, again, other = said("a"), said("b", "--out", "c", "--replace", "--json"), said("a", "--dim", "32")
    assert len({first.run_id, again.run_id, other.run_id}) == 3
    assert first.config_hash == again.config_hash != other.config_hash
    assert first.machine_id == other.machine_id
    assert before <= datetime.datetime.fromisoformat(first.recorded_at) <= datetime.datetime.now(datetime.UTC)


def test_workflow_commands_are_one_run(monkeypatch):
    monkeypatch.setattr(origin._Command, "run_id", "night-7")
    monkeypatch.setattr(origin._Command, "config_hash", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    origin.share({"partition": {"pes": [1, 2]}})
    found = [said("a"), said("a", "--dim", "32"), Origin(**origin.origin())]
    assert {each.run_id for each in found} == {"night-7"}
    assert {each.config_hash for each in found} == {origin.settings_hash({"partition": {"pes": [1, 2]}})}
    origin.share({"partition": {"pes": [1]}})
    assert (said("a").run_id, said("a").config_hash != found[0].config_hash) == ("night-7", True)


@pytest.mark.parametrize(("name", "value"), [(origin.RUN_ID, "a b"), (origin.CONFIG_HASH, "12")])
def test_invalid_run_id_is_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=rf"\${name}: '{value}' does not match .*: unset it"):
        said("a")


def test_every_pe_has_the_origin_of_the_first():
    found = simulated.run(3, job_fields)
    assert found[0].items() >= Origin(**{name: found[0][name] for name in Origin.model_fields}).model_dump().items()
    assert all(
        {name: each[name] for name in Origin.model_fields} == {name: found[0][name] for name in Origin.model_fields}
        for each in found
    )


def test_machine_id_does_not_depend_on_the_jobs_share(monkeypatch, tmp_path):
    here = origin.this_host()
    code = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(origin.this_host())"
    program = [sys.executable, "-c", f"import os; from mgg import origin; {code}"]
    one_core = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT)
    assert one_core.stdout.strip() == here
    for bus in ("0000:18:00.0", "0000:2a:00.0"):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-{bus}\n")
    monkeypatch.setattr(origin, "_GPUS", tmp_path)
    with_gpus = origin.this_host()
    assert with_gpus != here and with_gpus == origin.this_host(["NVIDIA H200"])
    monkeypatch.setattr(origin, "cpu_model", lambda: "another")
    assert origin.this_host() != with_gpus
    assert origin.origin(["b" * 16, "a" * 16, "b" * 16])["machine_id"] == f"{'a' * 16}+{'b' * 16}"


def test_recorded_commit_is_that_of_the_checkout(tmp_path, monkeypatch):
    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    (tmp_path / "mgg").mkdir()
    source = tmp_path / "mgg" / "origin.py"
    source.write_text("")
    monkeypatch.setattr(origin, "__file__", str(source))
    monkeypatch.setattr(origin.metadata, "distribution", lambda name: type("D", (), {"read_text": lambda *_: None})())
    commit = origin.commit.__wrapped__
    assert commit() is None
    git("init", "-q")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a")
    head = git("rev-parse", "HEAD")
    (tmp_path / "notes").write_text("not what computes")
    assert commit() == head
    source.write_text("changed")
    assert commit() == f"{head}-dirty"
