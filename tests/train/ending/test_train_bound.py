"""Whatever a launcher binds ranks to, a training comes to its end, with the bits of one that is bound to nothing."""

import os
import shutil
from pathlib import Path

import pytest
from support.programs.train_program import tables
from support.ranks import run_with_progress

from mgg.records import read_run

FAKE = str(Path(__file__).parents[2] / "support" / "fake_gpu" / "run.py")
EPOCHS = 8
CORES = sorted(os.sched_getaffinity(0))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.mpi,
    pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset"),
]

ON_ONE = ["taskset", "-c", str(CORES[0])]
#: As Open MPI binds two ranks, and srun with --cpus-per-task=1; rank 1 shares the core where there is one alone.
ON_ONE_EACH = [
    "sh", "-c", f'core={CORES[0]}; [ "$PMI_RANK" = 1 ] && core={CORES[:2][-1]}; exec taskset -c $core "$@"', "sh",
]  # fmt: skip


def trained(layout, out, backend, **how):
    """What must not depend on the cores of a training by two ranks, the cores that it had, and what was said."""
    program = [FAKE, "-m", "mgg.cli"] if backend == "nvshmem" else ["-m", "mgg.cli"]
    arguments = [
        "train", str(layout), "--model", "gcn", "--technique", "halo", "--backend", backend, "--set", "hidden=16",
        "--epochs", str(EPOCHS), "--out", str(out),
    ]  # fmt: skip
    code, said = run_with_progress(2, [*program, *arguments], **how)
    assert code == 0, said
    record, epochs, weights = tables(out)
    assert len(epochs) == EPOCHS
    record.pop("machine")
    machine = read_run(out)[0].machine
    assert machine.gpus == (["Fake H200"] * 2 if backend == "nvshmem" else [])
    return (record, epochs, weights), machine.cores, said


@pytest.fixture(scope="module", params=["mpi", pytest.param("nvshmem", marks=pytest.mark.skipif(
    shutil.which("g++") is None, reason="no g++ to compile the kernels for the host"))])  # fmt: skip
def unbound(request, layouts, tmp_path_factory):
    """A backend, a layout, and what a run that is bound to nothing makes of it."""
    layout = layouts("planted", 2)
    return request.param, layout, trained(layout, tmp_path_factory.mktemp(request.param) / "run", request.param)[0]


@pytest.mark.parametrize(
    ("how", "cores", "choice"),
    [
        ({"before": ON_ONE}, 1, "auto"),  # the launcher, too
        ({"under": ON_ONE_EACH}, len(CORES[:2]), "auto"),
        ({"under": ON_ONE_EACH}, len(CORES[:2]), "keep"),
    ],
    ids=["all on a core", "a core each", "a core each, kept"],
)
def test_ranks_bound_to_one_core_finish_with_the_same_result(how, cores, choice, unbound, tmp_path):
    backend, layout, expected = unbound
    found, had, said = trained(layout, tmp_path / "run", backend, MGG_BIND=choice, **how)
    assert found == expected
    # CPU ranks stay where they are; those with GPUs share the cores that nobody is bound to, if they are told nothing.
    stays = backend == "mpi" or choice == "keep" or cores == 1 or len(CORES) <= cores
    assert had == cores if stays else had > cores
    shares = "2 ranks on this host share 1 core: GPUs wait for them"
    kept = "each bound to 1 core"
    assert (shares in said or kept in said) == (backend == "nvshmem")
