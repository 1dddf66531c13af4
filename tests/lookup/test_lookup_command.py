"""``mgg lookup``: records, columns, crossovers, and what it refuses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from support.programs.lookup_program import owners

from mgg import config
from mgg.cli.group import cli
from mgg.errors import CheckError, InputError
from mgg.kernel.cpu import lookups
from mgg.lookup import SIDES, criteo_like, samples
from mgg.records import read_lines
from mgg.records.lookup import LookupRecord, crossover, crossovers, told


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("samples") / "small"
    criteo_like.generate(out, scale=1e-4, samples=300)
    return out


def invoke(*arguments):
    return CliRunner().invoke(cli, ["lookup", *map(str, arguments)], catch_exceptions=True)


QUICK = ["--backend", "simulated", "--dim", "8", "--launches", "2", "--warmup", "1", "--iterations", "2"]


def test_every_side_writes_a_record(data, tmp_path):
    """Counted bytes against the samples; batches of two launches follow one another, then begin anew."""
    out = tmp_path / "records.jsonl"
    run = invoke(data, *QUICK, "--pes", 2, "--batches", "64,5", "--out", out, "--json")
    assert run.exit_code == 0, run.output
    records = read_lines(out, LookupRecord)
    assert json.loads(run.stdout)["records"] == [record.model_dump() for record in records]
    assert [(record.side, record.batch) for record in records] == [(side, size) for side in SIDES for size in (5, 64)]
    read = samples.load(data, verify=True)
    for record in records:
        assert (record.timed, len(record.launches), record.indices) == (4, 2, 26 * record.batch)
        assert record.distinct == 300 // record.batch and record.error <= record.tolerance
        assert record.low <= record.median <= record.high and record.q1 <= record.q3
        owned_by_table = np.repeat([0, 1], 13)  # of 26 tables the first half each
        remote = 0
        for number in (1, 2, 4, 5):  # the first of each launch is not timed
            for pe in (0, 1):
                ids = read.batch(number, record.batch, pe, 2)
                owner = owned_by_table[None, :] if record.split == "tables" else ids % 2
                remote += int(np.broadcast_to(owner != pe, ids.shape).sum())
        assert record.remote == remote and record.v_fr == 32 * remote
        if record.side in ("mgg", "direct", "alltoall"):
            assert record.bytes_wire == record.v_fr
        assert record.bytes_ids == (4 * remote if "alltoall" in record.side else 0)
    assert owners("mgg", 2)[3] == 1  # as above: row r is PE r mod P's


def test_output_lines_are_readable(data):
    run = invoke(data, *QUICK, "--sides", "halo,mgg", "--batches", "10,20")
    assert run.exit_code == 0, run.output
    lines = run.stdout.splitlines()
    assert lines[0].startswith("halo batch=10 D=8 P=1: ") and lines[0].endswith("  0 bytes  0.0% remote  one-sided")
    assert lines[-1].startswith("crossover: halo takes ") and len(lines) == 5


def test_crossover_batch_size_is_reported():
    medians = {"mgg": {1: 1.0, 2: 2.0, 4: 4.0}, "alltoall": {1: 2.0, 2: 3.0, 4: 3.0, 8: 1.0}, "halo": {8: 1.0}}
    found, other = crossovers(medians)
    assert (found.ratios, found.changes) == ({1: 2.0, 2: 1.5, 4: 0.75}, [(2, 4)])
    assert told(found) == "mgg takes less time than alltoall at 1 (2.00 at 1, 0.75 at 4); crossover between 2 and 4"
    assert told(other) == "mgg and halo have no batch size in common"
    slower = crossover("a", {1: 2.0}, "b", {1: 1.0})
    assert told(slower) == "a takes more time than b at every batch size (0.50 at 1, 0.50 at 1): no crossover"


def test_config_names_every_side():
    assert tuple(SIDES) == config.LOOKUP_SIDES


def test_wrong_sums_are_detected(data, monkeypatch):
    monkeypatch.setattr(lookups, "places", lambda *given, places=lookups.places: np.roll(places(*given), 1, axis=0))
    run = invoke(data, *QUICK, "--sides", "mgg", "--batches", "10")
    assert isinstance(run.exception, CheckError)
    assert str(run.exception).startswith("side mgg, batches of 10: PE 0 differs from the float64 sums by ")


def test_invalid_lookups_are_refused(data, tmp_path, monkeypatch):
    """A batch beyond the samples; a file of other samples; other ranks than asked for; a folder that is none."""
    run = invoke(data, *QUICK, "--batches", "301")
    assert isinstance(run.exception, InputError)
    assert str(run.exception) == "--batches 301: criteo-like has 300 samples: take smaller batches"
    out = tmp_path / "records.jsonl"
    assert invoke(data, *QUICK, "--batches", "10", "--sides", "halo", "--out", out).exit_code == 0
    criteo_like.generate(tmp_path / "others", scale=1e-4, samples=200, name="others")
    run = invoke(tmp_path / "others", *QUICK, "--batches", "10", "--sides", "halo", "--out", out)
    assert str(run.exception) == (
        f"{out}: holds records of other samples (criteo-like): choose another name, or replace them with --replace"
    )
    monkeypatch.setattr("mgg.lookup.job.job_size", lambda: 2)
    run = invoke(data, *QUICK, "--pes", 3)
    assert str(run.exception) == "--pes 3: the job has 2 ranks: leave --pes out, or start as many"
    monkeypatch.undo()
    run = invoke(tmp_path, *QUICK)
    assert str(run.exception).startswith(f"{tmp_path}: not a samples folder (no samples.yaml)")
