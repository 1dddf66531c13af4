"""Links of GPUs are measured and cached; technique ``auto`` picks by them, the same on every PE."""

import json

import pytest
from support.graphs import make_layout, random_csr
from support.ranks import succeeded

from mgg.aggregate.auto import EQUAL
from mgg.records import AggregateRecord, read_lines

pytestmark = pytest.mark.gpu

TECHNIQUES = "auto,mgg,broadcast,broadcast_pipelined,ring,cola,halo"


def mgg(pes, *arguments, **environment):
    done = succeeded(pes, ["-m", "mgg.cli", *map(str, arguments), "--backend", "nvshmem"], **environment)
    return done.stdout


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_measured_links_are_plausible_and_cached(tmp_path, pes):
    found = json.loads(mgg(pes, "links", "--json", XDG_CACHE_HOME=str(tmp_path)))
    links = found["links"]["links"]
    assert found["gpu"] and len(list((tmp_path / "mgg" / "links").iterdir())) == 1
    assert found["links"]["rows"] == ("nvlink" if pes > 1 else "cache")
    # Bounds that every GPU keeps: only a wrong clock or unit breaks them.
    assert 1e11 < links["hbm"]["bandwidth"] < 1e14
    assert 1e9 < links[found["links"]["rows"]]["bandwidth"] < 1e14
    for name in ("broadcast", "shift"):
        assert 1e8 < links[name]["bandwidth"] < 1e14 and links[name]["latency"] < 0.1
    assert mgg(pes, "links", "--json", XDG_CACHE_HOME=str(tmp_path)) == mgg(
        pes, "links", "--json", XDG_CACHE_HOME=str(tmp_path)
    )


@pytest.mark.parametrize("pes", [1, 2, 4])
def test_auto_picks_among_measured_techniques(tmp_path, pes):
    folder = make_layout(tmp_path, random_csr(50_000, 2_000_000), pes, scheme="edge_balanced")
    out = tmp_path / "records.jsonl"
    mgg(
        pes, "aggregate", folder, "--technique", TECHNIQUES, "--dim", "16,64,128", "--iterations", 5, "--out", out,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )  # fmt: skip
    records = read_lines(out, AggregateRecord)
    for dim in (16, 64, 128):
        of_dim = [record for record in records if record.dim == dim]
        assert len({record.technique for record in of_dim}) == len(of_dim) >= 6
        assert all(record.predicted > 0 and record.error <= record.tolerance for record in of_dim)
        (pick,) = [record for record in of_dim if record.chosen]
        if pes == 1:
            assert pick.technique == "local"  # all others do its work and more
        else:
            assert pick.predicted <= EQUAL * min(record.predicted for record in of_dim)


@pytest.mark.parametrize("pes", [1, 2])
def test_auto_takes_bf16_and_transposed_products(tmp_path, pes):
    folder = make_layout(tmp_path, random_csr(5_000, 100_000), pes)
    out = tmp_path / "records.jsonl"
    mgg(
        pes, "aggregate", folder, "--technique", "auto", "--dim", "64", "--dtype", "bf16", "--transpose", "--out", out,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )  # fmt: skip
    (record,) = read_lines(out, AggregateRecord)
    assert record.chosen and record.technique in ("halo", "local") and record.dtype == "bf16"
