import pytest

from mgg.backend import probe

MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\t0-63\t0\n"
    "GPU1\tNV18\t X \tSYS\t0-63\t0\n"
    "NIC0\tSYS\tSYS\t X \n\n"
    "Legend:\n\n  X    = Self\n"
)


def test_links_are_read_from_the_matrix_of_nvidia_smi():
    assert probe.parse_links(MATRIX) == {0: ", links X NV18", 1: ", links NV18 X"}


def test_a_single_gpu_and_no_matrix_have_no_links():
    assert probe.parse_links("GPU0\t X \t0-15\t0\n") == {} == probe.parse_links("")


def test_the_report_says_what_gpus_need():
    report = probe.report()
    assert {"backend nvshmem", "NCCL", "GPUs", "nvcc", "kernel cache"} <= report.keys()
    assert "missing" in report["NCCL"] or report["NCCL"].startswith("works: NCCL 2.")
    assert report["backend nvshmem"].startswith(("missing: ", "works: "))


def test_the_kernel_cache_and_its_cubins_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert probe.report()["kernel cache"] == f"{tmp_path}/mgg/kernels, 0 cubins"
    (tmp_path / "mgg" / "kernels").mkdir(parents=True)
    (tmp_path / "mgg" / "kernels" / "rows-sm_90-0.cubin").touch()
    assert probe.report()["kernel cache"].endswith(", 1 cubins")


@pytest.mark.parametrize(
    ("version", "said"),
    [(None, "cannot be read: No such file or directory; set NVSHMEM_HOME"), ("", "says no version of NVSHMEM")],
)
def test_an_nvshmem_that_is_not_whole_is_unusable(tmp_path, monkeypatch, version, said):
    monkeypatch.setenv("NVSHMEM_HOME", str(tmp_path))
    header = tmp_path / "include" / "non_abi" / "nvshmem_version.h"
    header.parent.mkdir(parents=True)
    (tmp_path / "include" / "nvshmem.h").touch()
    if version is not None:
        header.write_text(version)
    told = probe.report()["NVSHMEM for kernels"]
    assert told.startswith(f"unusable: {header}: ") and said in told and "NVSHMEM_HOME" in told


def test_what_kernels_with_nvshmem_need_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("NVSHMEM_HOME", str(tmp_path))
    (tmp_path / "include" / "non_abi").mkdir(parents=True)
    (tmp_path / "include" / "nvshmem.h").touch()
    versions = "".join(
        f"#define NVSHMEM_VENDOR_{part}_VERSION {number}\n"
        for part, number in zip(("MAJOR", "MINOR", "PATCH"), (3, 4, 5), strict=True)
    )
    (tmp_path / "include" / "non_abi" / "nvshmem_version.h").write_text(versions)
    assert probe.report()["NVSHMEM for kernels"] == f"{tmp_path}, 3.4.5"
    monkeypatch.setattr(probe.kernels, "nvshmem_folder", lambda: None)
    assert "NVSHMEM_HOME" in probe.report()["NVSHMEM for kernels"]
