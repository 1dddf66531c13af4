"""The file of records: those of the same layout come after each other, others are never replaced without a word."""

import threading

import pytest
from support.graphs import make_layout, random_csr

from mgg.aggregate import parse_options
from mgg.aggregate.job import AggregateJob
from mgg.aggregate.measure import TimingProtocol
from mgg.cli.group import cli
from mgg.cost import machines
from mgg.errors import InputError
from mgg.layout import read_manifest
from mgg.records import AggregateRecord, add_lines, read_lines
from mgg.records.prediction import PredictionRecord


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Layouts of one graph for 1 and 2 PEs."""
    folder = tmp_path_factory.mktemp("records")
    return {pes: make_layout(folder, random_csr(50, 300), pes) for pes in (1, 2)}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "records.jsonl"


def measure(layout, out, *techniques, replace=False):
    protocol = TimingProtocol("forward", 0, 1, check=True)
    job = AggregateJob(layout, "simulated", [4], ["fp32"], protocol, False, out, replace)
    return job.run([(name, parse_options(name, {})) for name in techniques])[0]


def test_records_of_the_same_layout_are_appended(made, out):
    first = measure(made[2], out, "halo")
    text = out.read_text()
    second = measure(made[2], out, "mgg", "ring")
    assert out.read_text() != text
    assert read_lines(out, AggregateRecord) == first + second
    assert [record.technique for record in first + second] == ["halo", "mgg", "ring"]
    assert {record.layout for record in first + second} == {read_manifest(made[2]).digest()}
    assert [record.technique for record in measure(made[2], out, "cola", replace=True)] == ["cola"]
    assert [record.technique for record in read_lines(out, AggregateRecord)] == ["cola"]


def test_records_of_another_layout_need_replace(made, out):
    measure(made[1], out, "halo")
    before = out.read_bytes()
    said = r"records\.jsonl: holds records of another layout \(test, P = 1, .* --replace"
    with pytest.raises(InputError, match=said):
        measure(made[2], out, "halo")
    assert out.read_bytes() == before
    measure(made[2], out, "halo", replace=True)
    assert [record.pes for record in read_lines(out, AggregateRecord)] == [2]


def test_damaged_records_need_replace_and_other_files_are_kept(made, out):
    measure(made[1], out, "halo")
    out.write_text(out.read_text().replace('"nodes":50', '"nodes":60'))
    said = r"line 1: altered since .*: run mgg aggregate again \(--replace replaces the file\)"
    with pytest.raises(InputError, match=said):
        measure(made[1], out, "halo")
    measure(made[1], out, "halo", replace=True)
    assert read_lines(out, AggregateRecord)[0].nodes == 50
    out.write_text("notes of mine\n")
    with pytest.raises(InputError, match="exists and holds no timing records; choose another name"):
        measure(made[1], out, "halo", replace=True)
    assert out.read_text() == "notes of mine\n"


def test_concurrent_writers_lose_nothing(made, out, tmp_path):
    (record,) = measure(made[1], tmp_path / "one.jsonl", "halo")
    ready = threading.Barrier(4)

    def write(number):
        ready.wait()
        for each in range(5):
            add_lines(out, [record.model_copy(update={"dim": 5 * number + each + 1})], replace=False)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.dim for record in read_lines(out, AggregateRecord)) == list(range(1, 21))


def test_predictions_are_appended(made, out):
    ask = ["predict", str(made[2]), "--technique", "halo", "--out", str(out)]
    for more in ([], ["--dim", "8"], ["--machine", "H100", "--dim", "8"]):
        cli.main([*ask, *more], standalone_mode=False)
    found = read_lines(out, PredictionRecord)
    assert [(record.dim, record.machine) for record in found] == [(64, "h200"), (8, "h200"), (8, "h100")]
    assert [record.basis == machines.MACHINES[record.machine].basis for record in found] == [True] * 3
    assert len({record.run_id for record in found}) == 3 and found[0].config_hash != found[1].config_hash
    cli.main([*ask, "--replace"], standalone_mode=False)
    assert [record.dim for record in read_lines(out, PredictionRecord)] == [64]
