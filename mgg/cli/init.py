"""``mgg init``: write a config for a graph, and a profile for the cluster that this host belongs to."""

from __future__ import annotations

import json
import logging
import re
import shlex
from pathlib import Path

import click
import yaml
from click.core import ParameterSource

from mgg import config
from mgg.backend.machine.slurm import SlurmPartition, cluster
from mgg.cli.demo import workflow_files
from mgg.cli.names import completes
from mgg.cli.options import FOLDER, CommaList, common, show, usual
from mgg.errors import InputError, MachineError
from mgg.files import check_file_output, write_text

_log = logging.getLogger(__name__)
_CONFIG = """\
# {run}
# It lists what differs from the defaults; docs/reference/config.md has every field.
graph:
  datasets:
    {key}:{dataset}
  # Memory that a job of this stage may take at its peak; a graph may be larger than that.
  memory: {graph.memory}

partition:
  # Numbers of PEs (one GPU or one CPU rank each) to compare.
  pes: {pes}
  # PEs joined by fast links: GPUs of one host.
  workgroup: {workgroup}

aggregate:
  # Products to time: techniques (mgg list techniques; auto: what the cost model picks) and embedding columns.
  # techniques: []: none.
  techniques: [halo, cola]
  dims: [64]

train:
  # mgg list models, or files of your own, ./my_model.py. []: no training, which takes labels and features.
  models: {models}
  # Numbers of PEs, of partition.pes.
  pes: {train_pes}
  epochs: {train.epochs}
  # Settings in place of the published ones, for example {{gcn: {{hidden: 32}}}}.
  settings: {{}}

report:
  title: {key}
"""

_OWN = """
      # Path of a file or folder, relative to the working folder.
      source: {source}
      # What reads it (mgg list loaders); null: its ending, or the folder itself, says it.
      loader: {loader}
      # true: nodes have labels, so models are trained on it.
      labels: {labels}
      # true: add the reverse of every edge.
      symmetrize: {symmetrize}
      # Numbering of the nodes (mgg list orders); rabbit puts communities side by side.
      order: natural"""


@click.command()
@click.argument("source", shell_complete=completes("datasets", files=True))
@click.option("--name", help="what the graph is called  [default: as the data set, file or folder]")
@click.option("--loader", shell_complete=completes("loaders"), help="reader of the files (mgg list loaders)")
@click.option("--labels", is_flag=True, help="the nodes have labels: train models")
@click.option("--symmetrize", is_flag=True, help="add the reverse of every arc")
@usual("--pes", "1,2", "PEs to compare", type=CommaList(int, most=config.MAX_PES))
@click.option("--partition", help="of a Slurm cluster: what the profile is for  [default: the cluster's default]")
@click.option("--profile", type=FOLDER, default="profiles/cluster", show_default=True, help="its folder, on a cluster")
@click.option("--out", type=FOLDER, help="the config  [default: NAME.yaml]")
@click.option("--force", is_flag=True, help="replace files that are there")
@common
def init(
    source: str, name: str | None, loader: str | None, labels: bool, symmetrize: bool, pes: list[int],
    partition: str | None, profile: Path, out: Path | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write a commented config for SOURCE, a data set or files of your own; on a Slurm cluster a profile, too.

    The cluster is asked for its partitions, and nothing is started there: mgg doctor --slurm tries it.
    """
    from mgg.graph import user_files
    from mgg.graph.datasets import catalog
    from mgg.graph.source import unknown_source
    from mgg.graph.sources import LOADERS

    known = catalog().get(source)
    if known:
        name, dataset, trained = name or source, " {}", bool(known.classes or known.tasks)
        if name != source or loader or labels or symmetrize:
            raise InputError(
                f"{source}: a data set: --name, --loader, --labels and --symmetrize are for your own files"
            )
    elif "/" not in source and not Path(source).exists():
        raise unknown_source(source)
    else:
        path = user_files.path_of(source)
        name = name or re.sub(r"[^A-Za-z0-9_-]", "-", path.name.partition(".")[0])
        user_files.check_name(name)
        if loader:
            LOADERS.find(loader)
        elif not user_files.says_loader(path):
            raise InputError(user_files.needs_loader(path, "--loader"))
        given = {"source": source, "loader": loader, "labels": labels or None, "symmetrize": symmetrize}
        dataset = _OWN.format(**{key: json.dumps(value) for key, value in given.items()})
        folder_made = user_files.made(source)
        trained = labels or bool(folder_made and (folder_made.classes or folder_made.tasks))
    named = click.get_current_context().get_parameter_source("profile") is not ParameterSource.DEFAULT
    try:
        found = cluster(partition)
    except MachineError as error:  # Slurm's programs are installed, but there is no cluster
        if partition or named:
            raise
        _log.warning("no profile for a cluster: %s", error)
        found = None
    if named and not found:
        raise InputError("--profile: there is no Slurm here (no sinfo on PATH), so no profile is written: leave it out")
    folder = str(profile if found else "profiles/local")
    out, base = out or Path(f"{name}.yaml"), config.Config()
    root = workflow_files()
    place = folder if found else str(_seen(root / folder))
    words = [] if Path("Snakefile").is_file() else ["-s", str(root / "Snakefile")]
    run = shlex.join(["snakemake", *words, "--profile", place, "--configfile", str(out)])
    text = _CONFIG.format(
        run=run, key=yaml.safe_dump(name).splitlines()[0], dataset=dataset, pes=pes, train_pes=pes[:1],
        models="[gcn]" if trained else "[]", graph=base.graph, train=base.train,
        workgroup=(found and found[1].gpus_per_node()) or base.partition.workgroup,
    )  # fmt: skip
    config.validate(yaml.safe_load(text))
    made = {out: text} | ({profile / "config.yaml": _profile(root, folder, *found)} if found else {})
    for file in made:
        if file.exists() and not force:
            raise InputError(f"{file}: is there already: --force replaces it, --out or --profile names another")
        check_file_output(file, "settings")
    for file, written in made.items():
        write_text(file, written)
    facts = {"config": str(out), "profile": folder if found else None, "partition": found and found[0]}
    shown = facts if as_json else {key: value for key, value in facts.items() if value is not None}
    show({**shown, "run": run}, as_json)


def _seen(path: Path) -> Path:
    """``path`` relative to the working folder if it lies in there, otherwise unchanged."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _profile(root: Path, folder: str, name: str, partition: SlurmPartition, flavours: list[str]) -> str:
    """MGG's profile that is nearest to a cluster, with the cluster's partition, GPUs per node and MPI filled in.

    Raises:
        AssertionError: MGG's profile lacks a line that has to change, which is a bug of MGG.
    """
    gpus, nodes = partition.gpus_per_node(), sum(count for count in partition.gpus.values())
    kind = "slurm-cpu" if not gpus else "dgx-multi" if nodes > 1 else "dgx"
    text = (root / "profiles" / kind / "config.yaml").read_text(encoding="utf-8")
    launcher = "srun --mpi=pmi2" if "pmi2" in flavours else "srun"
    changes = {
        r"^# .*\n": f"# {partition.described()}\n# Made from MGG's profile {kind}: snakemake --profile {folder}\n",
        r"^  # slurm_partition: .*": f"  slurm_partition: {json.dumps(name)}",
        r'^    mpi: ".*"': f"    mpi: \"'{launcher}'\"",
    }
    if kind == "dgx-multi":
        changes[r"wildcards\.pes\) // 8\)$"] = f"wildcards.pes) // {gpus})"
        changes["GPUs a node: 8"] = f"GPUs a node: {gpus}"
    for pattern, new in changes.items():
        text, times = re.subn(pattern, new.replace("\\", r"\\"), text, count=1, flags=re.M)
        if not times:
            raise AssertionError(f"profiles/{kind}/config.yaml has no line {pattern}")
    yaml.safe_load(text)
    return text
