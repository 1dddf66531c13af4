"""``mgg doctor``: GPUs, links, NVSHMEM, NCCL and the kernel cache of this host."""

import ctypes
import json
import sys
from types import SimpleNamespace

import pytest
from support.ranks import mpiexec
from support.ranks.ready import FAKE, ready

from mgg.backend.machine import probe

HALTED = "import of cupy halted; None in sys.modules"
MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\t0-63\t0\n"
    "GPU1\tNV18\t X \tSYS\t0-63\t0\n"
    "NIC0\tSYS\tSYS\t X \n\n"
    "Legend:\n\n  X    = Self\n"
)


def test_links_are_parsed_from_nvidia_smi_matrix():
    assert probe.parse_links(MATRIX) == {0: ", links X NV18", 1: ", links NV18 X"}
    assert probe.parse_links("GPU0\t X \t0-15\t0\n") == {} == probe.parse_links("")


def test_report_lists_gpu_requirements():
    report = probe.report()
    assert {"backend nvshmem", "NCCL", "GPUs", "nvcc", "kernel cache"} <= report.keys()
    assert "missing" in report["NCCL"] or report["NCCL"].startswith("works: NCCL 2.")
    assert report["backend nvshmem"].startswith(("missing: ", "works: "))


@pytest.mark.parametrize(
    ("init", "count", "line"),
    [
        (0, 2, f"none to use: the driver has 2, and CuPy is missing ({HALTED}); pip install 'mgg[gpu]'"),
        (0, 0, "none to use"),
        (100, 2, "none to use"),
        (None, 2, "none to use"),
    ],
)
def test_gpus_are_counted_without_cupy(monkeypatch, init, count, line):
    """The driver counts them, if there is one."""

    def device_count(pointer):
        pointer._obj.value = count
        return 0

    def library(name):
        if init is None or name != "libcuda.so.1":
            raise OSError(name)
        return SimpleNamespace(cuInit=lambda flags: init, cuDeviceGetCount=device_count)

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "mgg.backend.gpu", raising=False)
    assert probe._gpus() == {"GPUs": line}


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("environment", "lines"),
    [
        (
            {"FAKE_GPUS": "2"},
            {
                "backend nvshmem": "works: NVSHMEM 3.4.5, NVSHMEM_DISABLE_NVLS=1 NCCL_NVLS_ENABLE=0 ",
                "NCCL": "works: NCCL 2.",
                "GPUs": "2, driver: CUDA 13.0; CuPy uses 13.0",
                "GPU 0": "Fake H200, 128 GiB, sm_90, addresses GPU 1",
                "GPU 1": "Fake H200, 128 GiB, sm_90, addresses GPU 0",
            },
        ),
        (
            {"FAKE_GPUS": "3", "FAKE_NCCL": "0"},
            {
                "GPU 1": "Fake H200, 128 GiB, sm_90, addresses GPU 0, 2",
                "NCCL": "NCCL is missing: pip install nvidia-nccl-cu13; ring, the broadcasts and all-to-all lookups",
            },
        ),
        ({"FAKE_GPUS": "2", "FAKE_P2P": "0"}, {"GPU 1": "Fake H200, 128 GiB, sm_90, addresses no other GPU"}),
        ({"FAKE_GPUS": "0"}, {"backend nvshmem": "missing: no GPU to use (cudaErrorNoDevice", "GPUs": "none to use"}),
    ],
)
def test_doctor_lists_gpus_and_peer_access(environment, lines):
    done = mpiexec(1, [FAKE, "-m", "mgg.cli", "doctor", "--json"], under=ready(), **environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {name: report[name][: len(start)] for name, start in lines.items()} == lines
    gpus = int(environment.get("FAKE_GPUS", "4"))
    assert [name for name in report if name.startswith("GPU ")] == [f"GPU {number}" for number in range(gpus)]


def test_report_names_kernel_cache_and_counts_cubins(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert probe.report()["kernel cache"] == f"{tmp_path}/mgg/kernels, 0 cubins"
    (tmp_path / "mgg" / "kernels").mkdir(parents=True)
    (tmp_path / "mgg" / "kernels" / "rows-sm_90-0.cubin").touch()
    assert probe.report()["kernel cache"].endswith(", 1 cubins")


VERSIONS = "".join(
    f"#define NVSHMEM_VENDOR_{part}_VERSION {number}\n" for part, number in (("MAJOR", 3), ("MINOR", 4), ("PATCH", 5))
)


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (None, "unusable: {header}: cannot be read: No such file or directory; set NVSHMEM_HOME"),
        ("", "unusable: {header}: says no version of NVSHMEM"),
        (VERSIONS, "{home}, 3.4.5"),
    ],
)
def test_report_names_nvshmem_for_kernels(tmp_path, monkeypatch, version, line):
    monkeypatch.setenv("NVSHMEM_HOME", str(tmp_path))
    header = tmp_path / "include" / "non_abi" / "nvshmem_version.h"
    header.parent.mkdir(parents=True)
    (tmp_path / "include" / "nvshmem.h").touch()
    if version is not None:
        header.write_text(version)
    assert probe._kernels()["NVSHMEM for kernels"].startswith(line.format(header=header, home=tmp_path))
    monkeypatch.setattr(probe.kernels, "nvshmem_folder", lambda: None)
    assert "NVSHMEM_HOME" in probe._kernels()["NVSHMEM for kernels"]
