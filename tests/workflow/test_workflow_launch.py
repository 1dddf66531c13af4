"""Ranks, nodes and GPUs of a job: what the profile gives, as the backend takes it."""

from types import SimpleNamespace

import pytest
import yaml
from snakemake.iocontainers import Wildcards
from snakemake.resources import Resources
from support.workflow import ROOT, TINY, settings_of

from mgg.workflow.launch import JobLaunch


def settled(profile: str, backend: str, pes: int, needrun: bool = True) -> tuple[JobLaunch, SimpleNamespace, Wildcards]:
    """The launch of rule aggregate through a profile, the rule, and the wildcards of a job that is to run."""
    given = yaml.safe_load((ROOT / f"profiles/{profile}/config.yaml").read_text())
    words = [f"{name}={value}" for name, value in given.get("set-resources", {}).get("aggregate", {}).items()]
    given = Resources.parse(words, allow_expressions=True)
    rule = SimpleNamespace(name="aggregate", resources=Resources.from_mapping({}))
    rule.resources.update(given)
    wildcards = Wildcards(fromdict={"dataset": "digits", "pes": str(pes)})
    workflow = SimpleNamespace(
        get_rule=lambda name: rule, async_run=None, is_main_process=True,
        resource_settings=SimpleNamespace(overwrite_resources={"aggregate": given}),
        dag=SimpleNamespace(needrun_jobs=lambda: [SimpleNamespace(rule=rule, wildcards=wildcards)] * needrun),
    )  # fmt: skip
    launch = JobLaunch(workflow)
    launch.__dict__["gpus_here"] = 2
    launch.settle("aggregate", backend)
    return launch, rule, wildcards


def asked(rule: SimpleNamespace, wildcards: Wildcards, *names: str) -> list[object]:
    """What a job asks for."""
    rest = {"input": [], "attempt": 1, "threads": 1, "rulename": "aggregate", "async_run": None}
    return [rule.resources[name].evaluate(wildcards, **rest).value for name in names]


@pytest.mark.parametrize(
    ("profile", "backend", "pes", "resources"),
    [
        ("dgx-multi", "auto", 9, None),
        ("dgx-multi", "auto", 1, [1, 1, 1, ""]),
        ("dgx-multi", "auto", 10, [10, 2, 10, "--ntasks-per-node=5 --gpus-per-node=5"]),
        ("dgx-multi", "mpi", 9, [9, 2, 0, "--ntasks-per-node=5"]),
        ("dgx-multi", "simulated", 16, [1, 1, 0, ""]),
        ("slurm-cpu", "auto", 9, [9, 3, 0, "--ntasks-per-node=3"]),
    ],
)
def test_gpu_ranks_are_spread_evenly_or_refused(profile: str, backend: str, pes: int, resources: list, capsys):
    """Slurm knows one number of GPUs for all nodes of a job; CPU ranks need none."""
    launch, rule, wildcards = settled(profile, backend, pes)
    if resources is None:
        with pytest.raises(SystemExit, match="2"):
            launch.refuse_uneven_ranks()
        assert "error: aggregate: 9 PEs do not divide evenly over the 2 nodes that" in capsys.readouterr().err
        return
    launch.refuse_uneven_ranks()
    assert asked(rule, wildcards, "tasks", "nodes", "gpu", "slurm_extra") == resources


@pytest.mark.parametrize(
    ("backend", "pes", "shared", "gpus"),
    [("auto", 2, 0, 2), ("auto", 4, 0, 0), ("auto", 4, 1, 2), ("nvshmem", 4, 0, 4), ("mpi", 2, 0, 0)],
)
def test_gpus_of_this_host_are_found(monkeypatch: pytest.MonkeyPatch, backend: str, pes: int, shared: int, gpus: int):
    monkeypatch.setenv("MGG_SHARED_GPUS", str(shared))
    launch, rule, wildcards = settled("local", backend, pes)
    assert asked(rule, wildcards, "gpu", "mpi") == [gpus, "mpiexec"]
    place = "gpus_shared" if shared else "gpus" if gpus else "cpus"
    assert launch.places["aggregate"](wildcards).startswith(f"local-{place}-mpiexec-")


def test_jobs_left_to_cpus_are_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr("mgg.workflow.launch.logger.propagate", True)
    monkeypatch.delenv("MGG_SHARED_GPUS", raising=False)
    launch, *_ = settled("local", "auto", 2)
    launch.warn_of_mixed_devices(settings_of(TINY, {"aggregate": {"backend": "mpi"}, "train": {"backend": "mpi"}}))
    assert not caplog.records
    launch.warn_of_mixed_devices(settings_of(TINY, {"partition": {"pes": [1, 2, 4]}}))
    assert "on this host with 2 GPUs jobs of 4 PEs compute on CPU cores" in caplog.text
