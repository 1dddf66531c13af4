"""Every technique on GPUs: products against float64, bytes against those of the simulated backend."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from support.devices.gpus import taken
from support.graphs import awkward_graphs, make_layout, random_csr
from support.graphs.checked_products import check, check_same_bits
from support.programs import spmm_program
from support.programs.spmm_program import VARIANTS, divides, variant
from support.ranks import succeeded

from mgg.aggregate import all_techniques, technique
from mgg.graph.csr import Csr, from_arcs
from mgg.records import AggregateRecord, read_lines

pytestmark = pytest.mark.gpu


def hub_csr(nodes: int = 30_000) -> Csr:
    """Weighted; two rows hold nearly every node, and one column is in nearly every row."""
    rng = np.random.default_rng(6)
    rows = [np.full(nodes, 5), np.full(nodes, nodes - 1), np.arange(nodes), rng.integers(0, nodes, nodes)]
    columns = [np.arange(nodes), np.arange(nodes), np.full(nodes, 7), rng.integers(0, nodes, nodes)]
    weights = rng.standard_normal(4 * nodes).astype(np.float32)
    return from_arcs(np.concatenate(rows), np.concatenate(columns), n=nodes, weights=weights)


GRAPHS = awkward_graphs() | {"rows and a column of 30,000 arcs": hub_csr()}


def labels(pes: int, threads: bool) -> set[str]:
    """Techniques and variants that must have run on ``pes`` PEs, derived from their classes alone."""

    def runs(label: str) -> bool:
        name, options, _ = variant(label)
        if pes > 1 and (technique(name).single_pe or (technique(name).one_process and not threads)):
            return False
        if not divides(options, pes):
            return False
        return not threads or options.get("primitive", "direct") == "direct"

    return {label for label in [*all_techniques(), *VARIANTS] if runs(label)}


def run(tmp_path: Path, backend: str, pes: int, ranks: int, graphs: Iterable[str]) -> None:
    wanted = labels(pes, threads=backend != "nvshmem")
    folders = {name: make_layout(tmp_path / str(number), GRAPHS[name], pes) for number, name in enumerate(graphs)}
    succeeded(ranks, [spmm_program.__file__, backend, str(tmp_path), "--variants", *map(str, folders.values())])
    for number, (name, folder) in enumerate(folders.items()):
        check(tmp_path, number, GRAPHS[name], folder, pes, wanted)


@pytest.mark.parametrize("pes", [1, 2, 3, 4, 8])
def test_products_and_bytes_of_ranks(tmp_path, pes):
    run(tmp_path, "nvshmem", pes, pes, GRAPHS)


@pytest.mark.parametrize("threads", [3])
def test_products_and_bytes_of_threads(tmp_path, threads):
    """One GPU per thread; with fewer GPUs several PEs share one (test_gpu_threads.py: all share one)."""
    names = ["weighted", "no arcs", "row of 10,000 arcs", "more PEs than nodes"]
    run(tmp_path, f"threads:{threads}", threads, 1, names)


@pytest.mark.parametrize("pes", [2, 4])
def test_deterministic_techniques_give_the_same_bits(tmp_path, pes):
    folder = make_layout(tmp_path, random_csr(500, 10_000, weighted=True), pes)
    succeeded(pes, [spmm_program.__file__, "nvshmem", str(tmp_path), str(folder), str(folder)])
    check_same_bits(tmp_path, pes)


@pytest.mark.parametrize("pes", [1, 4])
def test_command_records_gpus_and_seconds(tmp_path, pes):
    """All techniques in one command, which runs those of one process in threads."""
    folder = make_layout(tmp_path, random_csr(2_000, 30_000), pes)
    names = [name for name, plan in all_techniques().items() if pes == 1 or not plan.single_pe]
    out = tmp_path / "records.jsonl"
    arguments = ["aggregate", str(folder), "--technique", ",".join(names), "--dim", "16,41", "--backend", "nvshmem"]
    succeeded(pes, ["-m", "mgg.cli", *arguments, "--iterations", "3", "--out", str(out)])
    records = read_lines(out, AggregateRecord)
    assert sorted((record.technique, record.dim) for record in records) == [
        (name, dim) for name in names for dim in (16, 41)
    ]
    for record in records:
        in_threads = pes > 1 and technique(record.technique).one_process
        assert record.backend == ("simulated" if in_threads else "nvshmem")
        assert len(record.machine.gpus) == taken(pes)
        assert 0 < record.error <= 1e-6 and min(record.seconds) > 0
