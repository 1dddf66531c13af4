"""Kernels of ``mgg aggregate`` and ``mgg links`` are compiled before anything is measured, and say so."""

import os
import re
import shutil
from pathlib import Path

import pytest
from support.graphs import awkward_graphs, make_layout
from support.programs.spmm_program import VARIANTS
from support.ranks import succeeded

from mgg.aggregate import all_techniques, parse_options
from mgg.aggregate.expected_kernels import of_products
from mgg.kernel.compile import build_of
from mgg.records import AggregateRecord, read_lines

SUPPORT = Path(__file__).parents[2] / "support"
PROGRAM = [str(SUPPORT / "fake_gpu" / "run.py"), str(SUPPORT / "programs" / "ahead_program.py")]

#: Tells of itself, and writes down what it is to compile.
NVCC = """#!/bin/sh
[ "$1" = --version ] && { echo "release 13.0, V13.0.48"; exit; }
while [ "$1" != -o ]; do shift; done
echo cubin > "$2"
"""


@pytest.fixture
def machine(tmp_path):
    """Environment of a job that finds a compiler, and a cache with nothing in it."""
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    return {"CUDA_HOME": str(tmp_path / "cuda"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "FAKE_NVCC": "1"}


def mgg(pes, arguments, machine):
    """What the ranks of a job say on standard error."""
    done = succeeded(pes, [*PROGRAM, *arguments], **machine)
    return done.stderr


def asked(output):
    """Each kernel that was asked for: whether it was there, and its source."""
    return set(re.findall(r"asked (\w+) (\w+)", output))


def as_variant(label):
    name, options, _ = VARIANTS[label]
    return "".join([name, *(f":{key}={value}" for key, value in options.items())])


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("pes", [1, 4])
def test_products_request_only_kernels_compiled_ahead(pes, machine, tmp_path):
    """Every technique and variant, both types and both directions; hubs, rows that are cut, columns left over."""
    layout = make_layout(tmp_path, awkward_graphs()["row of 10,000 arcs"], pes)
    names = dict.fromkeys([*all_techniques(), *map(as_variant, VARIANTS)])
    found, said, out = set(), [], tmp_path / "records"
    for direction in ([], ["--transpose"]):
        output = mgg(
            pes,
            [
                "aggregate", str(layout), "--technique", ",".join(all_techniques()), "--dim", "7,64,300",
                "--dtype", "fp32,bf16", *(part for name in names for part in ("--variant", name)), *direction,
                "--backend", "nvshmem", "--no-check", "--warmup", "0", "--iterations", "1", "--out", str(out),
            ],
            machine,
        )  # fmt: skip
        found |= asked(output)
        said.append(re.findall(r"^compiling .*", output, re.MULTILINE))
    measured = {record.technique for record in read_lines(out, AggregateRecord)}
    assert measured == {name for name, plan in all_techniques().items() if pes == 1 or not plan.single_pe}
    assert {there for there, _ in found} == {"True"}, found
    others = {"halo", "pull", "cola", "columns"} if pes > 1 else {"gnnadvisor"}
    assert {source for _, source in found} - {"gather"} == {"rows", "narrow_rows", "mgg"} | others
    # gather, rows, narrow_rows, halo and pull in two types; cola and its hubs; mgg in five ways; gnnadvisor: for both
    # directions. On one PE, with the layout, those of seastar: of each width and choice; the mean row is the same both
    # ways.
    cores = max(len(os.sched_getaffinity(0)), pes)
    generated = 3 * (1 + sum(label.startswith("seastar") for label in VARIANTS)) * (pes == 1)
    counts = [18, *[generated] * (generated > 0)]
    # Kernels that are asked for while others are still being compiled join these, and are counted with them.
    progress = re.findall(r"compiling (\d+) kernels for sm_90, (\d+) at a time(?:: (\d+) done)?", "\n".join(said[0]))
    assert len(progress) == len(said[0]) and said[1] == []
    assert all(int(at_once) == min(cores - cores % pes, int(n)) for n, at_once, _ in progress)
    assert sum(int(n) for n, _, done in progress if done == n) == sum(counts)
    assert len(list(Path(machine["XDG_CACHE_HOME"]).rglob("*.cubin"))) == sum(counts)


@pytest.mark.slow
@pytest.mark.mpi
def test_link_and_rate_probes_compile_their_kernels_ahead(machine, tmp_path):
    """``mgg links`` has its kernels; ``auto`` has those, and the ones that its picks ask for."""
    output = mgg(2, ["links", "--backend", "nvshmem", "--refresh"], machine)
    assert asked(output) == {("True", source) for source in ("gather", "rows", "partitions", "columns")}
    assert "compiling 3 kernels for sm_90" in output  # gather is every job's, and not among them
    shutil.rmtree(machine["XDG_CACHE_HOME"])
    layout = make_layout(tmp_path, awkward_graphs()["weighted"], 2)
    arguments = ["aggregate", str(layout), "--technique", "auto", "--dim", "16", "--no-check", "--warmup", "0"]
    output = mgg(2, [*arguments, "--backend", "nvshmem", "--iterations", "1", "--out", str(tmp_path / "out")], machine)
    assert {there for there, _ in asked(output)} == {"True"}
    assert {source for _, source in asked(output)} >= {"gather", "rows", "partitions", "columns"}
    # At the start what halo asks for; partitions and columns, when the machine is measured, may find them under way.
    assert re.findall(r"compiling (\d) kernels.*: \1 done", output) in (["5", "2"], ["7"]), output


def test_refused_products_compile_nothing():
    chosen = [(name, parse_options(name, {})) for name in ("halo", "cola")]
    builds = of_products(chosen, ["fp32", "bf16"])
    assert [build for build in builds if build.source == "cola"] == [build_of("cola", 32)]  # takes no bf16
    assert len({(build.source, *build.defines.items()) for build in builds}) == len(builds)
    thread = [("mgg", parse_options("mgg", {"primitive": "thread"}))]
    assert build_of("mgg", 32, "thread") in of_products(thread, ["fp32"])
    assert "mgg" not in {build.source for build in of_products(thread, ["fp32"], shmem=False)}
    direct = [("direct", parse_options("direct", {}))]  # by other means where there is no NVSHMEM
    assert build_of("mgg", 32, "warp") in of_products(direct, ["fp32"])
    assert build_of("mgg", 32) in of_products(direct, ["fp32"], shmem=False)
