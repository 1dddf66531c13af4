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
    assert {"backend nvshmem", "GPUs", "nvcc", "kernel cache"} <= report.keys()
    assert report["backend nvshmem"].startswith(("missing: ", "works: "))
