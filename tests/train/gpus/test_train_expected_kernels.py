import pytest

from mgg.kernel.compile import build_of
from mgg.train.expected_kernels import of_training


@pytest.mark.parametrize(
    ("model", "technique", "dtype", "expected"),
    [
        ("gcn", "halo", "fp32", {("gather", False), ("rows", False), ("halo", False), ("pull", False)}),
        ("gat", "local", "fp32", {("gather", False), ("rows", False)}),
        (
            "gcn", "halo", "bf16",
            {("gather", True), ("rows", True), ("halo", True), ("pull", True), ("rows", False)},
        ),
        ("gcn", "auto", "fp32", {("gather", False), ("rows", False), ("halo", False), ("pull", False)}),
    ],
)  # fmt: skip
def test_kernels_are_predicted_before_their_first_launch(model, technique, dtype, expected):
    expected = expected | {("narrow_rows", bf16) for source, bf16 in expected if source == "rows"}
    builds = of_training(model, technique, {}, dtype)
    assert {(build.source, "MGG_BF16" in build.defines) for build in builds} == expected
    assert len(builds) == len(expected)


def test_mgg_kernel_is_predicted_with_its_primitive():
    assert build_of("mgg", 32, "warp") in of_training("gcn", "direct", {}, "fp32")
    assert build_of("mgg", 32, "thread") in of_training("gcn", "mgg", {"primitive": "thread"}, "fp32")
