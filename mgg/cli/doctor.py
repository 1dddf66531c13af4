"""``mgg doctor``: what this machine or cluster can run."""

from __future__ import annotations

from pathlib import Path

import click

from mgg.cli.names import REGISTRIES, registry
from mgg.cli.options import common, show
from mgg.errors import InputError, MachineError


@click.command()
@click.option(
    "--slurm",
    is_flag=True,
    help="check the cluster instead: list partitions and GPUs, try MPI flavours and the shared folder on two nodes",
)
@click.option("--partition", help="with --slurm: the partition whose nodes are tried  [default: the cluster's]")
@click.option("--account", help="with --slurm: the account that is charged  [default: yours]")
@click.option("--qos", help="with --slurm: the quality of service of the trials  [default: yours]")
@common
def doctor(slurm: bool, partition: str | None, account: str | None, qos: str | None, as_json: bool) -> None:
    """Say what this machine can run, and why not."""
    from mgg.backend.machine import probe
    from mgg.backend.machine import slurm as cluster

    if not slurm:
        if partition or account or qos:
            raise InputError("--partition, --account and --qos need --slurm")
        show(probe.report() | _broken(), as_json)
        return
    facts, ready = cluster.report(Path.cwd(), partition, account, qos)
    show(facts, as_json)
    if not ready:
        raise MachineError("this cluster cannot run the workflow yet: see what fails above")


def _broken() -> dict[str, str]:
    """The errors of model, technique and other plug-in files that cannot be read."""
    broken = (registry(kind).broken.values() for kind in REGISTRIES)
    found = dict.fromkeys(str(error) for errors in broken for error in errors)
    return {"cannot be read": "; ".join(found)} if found else {}
