"""MGG from Python: the functions behind ``mgg graph``, ``mgg train``, ``mgg aggregate`` and ``mgg report``.

``import mgg`` offers them as ``mgg.graph``, ``mgg.train``, ``mgg.aggregate`` and ``mgg.report``. The names in
``__all__`` stay compatible within a minor version. Other modules of MGG may change with any release.

A mistake of the caller raises :class:`mgg.errors.InputError`. If the machine lacks something, the functions raise
:class:`mgg.errors.MachineError`. Both messages are one line that says what to do.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgg import config, origin
from mgg.errors import InputError
from mgg.records import AggregateRecord, TrainRecord, read_run, run_file
from mgg.schema import parsed

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from mgg.graph.manifest import Manifest
    from mgg.network import Network

__all__ = ["Graph", "Report", "Run", "Timings", "aggregate", "graph", "report", "train"]

_log = logging.getLogger(__name__)
_TRAIN, _AGGREGATE, _PARTITION = config.TrainConfig(), config.AggregateConfig(), config.PartitionConfig()
_Path = str | os.PathLike[str]


@dataclass(frozen=True)
class _Output(os.PathLike[str]):
    """What a function has written; accepted wherever its path is accepted."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class Graph(_Output):
    """A graph folder. Attributes: ``path``; ``manifest``, with ``nodes``, ``arcs``, ``features``, ``classes``."""

    manifest: Manifest


@dataclass(frozen=True)
class Run(_Output):
    """A finished training run. Attributes: ``path``, the run folder; ``record``, its ``mgg.records.TrainRecord``."""

    record: TrainRecord

    @property
    def test_accuracy(self) -> float:
        """Score of the test nodes (``record.metric``, 0 to 1) at the epoch that scores best on the validation nodes."""
        return self.record.test_accuracy

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per epoch: ``epoch``, ``loss``, accuracies, ``seconds`` (docs/concepts/training.md, columns)."""
        return _frame(read_run(self.path)[1])

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """One row per node: ``node`` (the source's id), ``prediction`` or ``logit``, ``label``, ``split``."""
        import pandas as pd

        from mgg.train.run.output import PREDICTIONS_FILE

        return pd.read_parquet(run_file(self.path, PREDICTIONS_FILE))

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """Weights of the best epoch by name, float32."""
        from safetensors.numpy import load_file

        from mgg.train.run.output import WEIGHTS_FILE

        return load_file(run_file(self.path, WEIGHTS_FILE))


@dataclass(frozen=True)
class Timings(_Output):
    """Timed products. Attributes: ``path``, a JSON lines file; ``records``, each a ``mgg.records.AggregateRecord``."""

    records: list[AggregateRecord]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per record, a column per field (docs/reference/format.md); ``median``, ``low``, ``high``: seconds."""
        return _frame(self.records)


@dataclass(frozen=True)
class Report(_Output):
    """A report folder. Attributes: ``path``; ``page``, the HTML page."""

    @property
    def page(self) -> Path:
        """Path of ``index.html``, which opens without a network."""
        return self.path / "index.html"

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of docs/reference/tables.md, for example ``training``.

        Raises:
            InputError: the report has no such table.
        """
        import pandas as pd

        file = self.path / f"{name}.parquet"
        if not file.is_file():
            known = sorted(each.stem for each in self.path.glob("*.parquet"))
            raise InputError(f"{self.path}: no table {name!r}; it has {', '.join(known)}")
        return pd.read_parquet(file)


def graph(
    source: _Path, *, out: _Path | None = None, loader: str | None = None, columns: Sequence[str] | None = None,
    column: Mapping[str, str | Sequence[str]] | None = None, symmetrize: bool = False,
    repeats: config.Repeats | None = None, loops: config.Loops | None = None, order: str = "natural",
    name: str | None = None, memory: str = "4GiB",
) -> Graph:  # fmt: skip
    """Turn a source into a graph folder, as ``mgg graph`` does.

    Args:
        source: the name of a data set, or a file or folder (docs/concepts/data.md).
        out: the graph folder, which appears once it is complete; None: a temporary one, removed when the process ends.
        loader: name of the reader, needed if the source's suffix does not determine it.
        columns: for edges without a header: the roles of their columns, in order.
        column: for tables: columns by role, for example ``{"id": "paper", "ignore": ["title", "year"]}``.
        symmetrize: add the reverse of every arc.
        repeats: weight of arcs that repeat one another, added reverses included: ``first``, ``sum`` or ``max``; None:
            the loader's default.
        loops: ``drop`` or ``keep`` arcs from a node to itself; None: the loader's default.
        order: numbering of the nodes: ``natural``, ``degree``, ``rcm``, ``rabbit`` or ``auto``.
        name: name of the graph; None: that of the data set, file or folder.
        memory: peak memory of the process, for example ``"1GiB"``.

    Raises:
        InputError: an unknown name, or files that are not what the loader expects.
        MachineError: too little memory, or a full disk.
    """
    from mgg.graph.budget import parse_size
    from mgg.graph.build import build
    from mgg.graph.external import Memory
    from mgg.graph.external.memory import usable_cores
    from mgg.graph.io.columns import ColumnChoice

    assigned = [f"{role}={each}" for role, names in (column or {}).items() for each in _several(names)]
    said = ColumnChoice.parsed(",".join(columns) if columns else None, assigned)
    folder = _place(out, "graph")
    found = source if isinstance(source, str) else Path(source)  # a str may be the name of a data set
    manifest = build(
        found, folder, loader=loader, columns=said, symmetrize=symmetrize, repeats=repeats, loops=loops, order=order,
        name=name, memory=Memory(parse_size(memory, "memory"), usable_cores()),
    )  # fmt: skip
    return Graph(folder, manifest)


def train(
    source: _Path, *, model: _Path = "gcn", settings: Mapping[str, Any] | None = None, epochs: int = _TRAIN.epochs,
    seed: int = 0, dtype: config.Dtype = _TRAIN.dtype, metric: str = _TRAIN.metric,
    technique: str = _TRAIN.techniques[0], options: Mapping[str, Any] | None = None, pes: int | None = None,
    backend: config.Backend = _TRAIN.backend, out: _Path | None = None, resume: bool = False,
    weights: _Path | None = None, progress: bool = False, memory_per_pe: str | None = _TRAIN.memory_per_pe,
    activations: config.Activations = _TRAIN.activations, threads: int = _TRAIN.threads,
    emulate_network: str | None = None,
) -> Run:  # fmt: skip
    """Train a model on a whole graph, as ``mgg train`` does.

    Args:
        source: a data set's name, a file, a graph folder or ``Graph``, or a layout folder. Call ``mgg.graph`` first
            for a file that needs options.
        model: name of a model (docs/concepts/models.md), or the path of a file of your own.
        settings: values that replace the model's published hyperparameters, for example ``{"hidden": 32}``.
        epochs: number of epochs.
        seed: seed of weights and dropout.
        dtype: type of embeddings and halos, ``fp32`` or ``bf16``; sums and weights are fp32.
        metric: the score, which also picks the best epoch: ``accuracy``, ``micro_f1``, ``roc_auc`` or ``auto``.
        technique: how PEs fetch rows from one another (docs/concepts/techniques.md), or ``auto``.
        options: options of the technique.
        pes: number of PEs, which are threads of this process; None: 1, or that of the layout. Under ``mpiexec`` each
            rank is a PE; then ``source`` must be a layout and ``out`` must be given.
        backend: ``auto``, ``simulated``, ``mpi`` or ``nvshmem``.
        out: the run folder, which appears once it is complete; None: a temporary one, removed when the process ends.
        resume: continue from the newest checkpoint of ``out``.
        weights: initial weights: a run, its weights, or a checkpoint.
        progress: report epochs on standard error.
        memory_per_pe: most memory per PE, for example ``"20GiB"``; None: the free memory.
        activations: what layers keep for the backward pass (docs/concepts/training.md, "Memory"): ``auto``, ``keep``,
            ``recompute`` or ``host``.
        threads: threads of each CPU PE, for row-wise products and vertex programs.
        emulate_network: bandwidth and latency between workgroups, ``"20GB/s,5us"`` (docs/concepts/emulation.md).

    Raises:
        InputError: an unknown name, setting or option, or a graph that lacks what training needs.
        MachineError: too little memory, or a missing package.
    """
    from mgg import layout as layouts
    from mgg.backend import World, launch_script, together
    from mgg.backend.emulated import emulating
    from mgg.graph.budget import parse_size
    from mgg.train import Result
    from mgg.train import train as run

    origin.begin("train", {
        "model": str(model), "settings": settings, "epochs": epochs, "seed": seed, "dtype": dtype, "metric": metric,
        "technique": technique, "options": options, "backend": backend, "memory_per_pe": memory_per_pe,
        "activations": activations, "threads": threads, "emulate_network": emulate_network,
    })  # fmt: skip
    _check(config.TrainConfig, threads=threads, epochs=epochs, seeds=[seed], dtype=dtype, activations=activations)
    seed = int(seed)  # of NumPy
    chosen, given = _by_name("settings", settings), _by_name("options", options)
    if resume and out is None:
        raise InputError("resume: needs out, the run folder of the training to continue")
    network = _network(emulate_network)
    allowed = None if memory_per_pe is None else parse_size(str(memory_per_pe), "memory_per_pe")
    place, start = _place(out, "run"), Path(weights) if weights else None
    folder = _layout(source, pes, out is not None)

    def program(world: World) -> Result:
        part = together(world, lambda: layouts.load(folder, world.rank))
        world = emulating(world, network, part.manifest.workgroup)
        return run(
            world, part, model=str(model), technique=technique, options=given, epochs=epochs, seed=seed,
            settings=chosen, out=place, dtype=dtype, metric=metric, weights=start, resume=resume,
            progress=progress, memory_per_pe=allowed, activations=activations,
        )  # fmt: skip

    found = launch_script(backend, lambda: layouts.read_manifest(folder).pes, program, threads)
    return Run(place, found[0].record)


def aggregate(
    source: _Path, *, technique: str | Sequence[str] = "halo", dim: int | Sequence[int] = 64,
    dtype: config.Dtype | Sequence[config.Dtype] = "fp32", options: Mapping[str, Any] | None = None,
    transpose: bool = False, launches: int = _AGGREGATE.launches, warmup: int = _AGGREGATE.warmup,
    iterations: int = _AGGREGATE.iterations, check: bool = True, pes: int | None = None,
    backend: config.Backend = _AGGREGATE.backend, out: _Path | None = None, threads: int = _AGGREGATE.threads,
    emulate_network: str | None = None,
) -> Timings:  # fmt: skip
    """Check the product C = A B against float64 and time it, as ``mgg aggregate`` does.

    Args:
        source: as for ``train``.
        technique: one or several names (docs/concepts/techniques.md).
        dim: embedding columns, one or several numbers.
        dtype: type of the embeddings, ``fp32``, ``bf16`` or both.
        options: options of every named technique.
        transpose: measure the transposed product, that of the backward pass.
        launches: how often to measure everything, each time on new plans.
        warmup: untimed products per launch.
        iterations: timed products per launch.
        check: compare the first launch with a float64 product.
        pes: as for ``train``.
        backend: as for ``train``.
        out: file of JSON lines, which is replaced; None: a temporary file, removed when the process ends.
        threads: as for ``train``.
        emulate_network: as for ``train``.

    Raises:
        InputError: an unknown technique or option, or nothing could be measured.
        CheckError: a result differs from the float64 product.
    """
    from mgg.aggregate.job import AggregateJob
    from mgg.aggregate.measure import TimingProtocol
    from mgg.aggregate.variants import expand

    names, dims, dtypes = _several(technique), _several(dim), _several(dtype)
    asked = {
        "technique": names, "dim": dims, "dtype": dtypes, "options": options, "transpose": transpose,
        "threads": threads, "emulate_network": emulate_network,
    }  # fmt: skip
    origin.begin("aggregate", asked | {"launches": launches, "warmup": warmup, "iterations": iterations})
    if not names:
        raise InputError("technique: none is named: mgg list techniques")
    _check(
        config.AggregateConfig, threads=threads, dims=dims, dtypes=dtypes, launches=launches, warmup=warmup,
        iterations=iterations,
    )  # fmt: skip
    given, place = _by_name("options", options), _place(out, "records.jsonl")
    folder = _layout(source, pes, out is not None)
    chosen = [(name, each) for name in names if name != "auto" for each in expand(name, given, [])]
    protocol = TimingProtocol("transpose" if transpose else "forward", warmup, iterations, check, launches=launches)
    network = _network(emulate_network)
    job = AggregateJob(
        folder, backend, dims, dtypes, protocol, "auto" in names, place, replace=True, network=network, threads=threads
    )
    records, refused = job.run(chosen)
    for error in refused:
        _log.warning("not measured: %s", " ".join(str(error).split()))
    return Timings(place, records)


def report(*paths: _Path, out: _Path, title: str = config.ReportConfig().title, figures: Sequence[str] = ()) -> Report:
    """Make the report of training runs, timings and partitions, as ``mgg report`` does.

    Args:
        paths: ``Run`` and ``Timings``, or paths of run folders, partitions and files of records.
        out: the report folder.
        title: heading of the page.
        figures: figures of the papers to compare with, for example ``mgg_fig10a`` (docs/guides/figures.md).

    Raises:
        InputError: no records, an altered record, or an unknown figure.
    """
    from mgg.report import build

    build([Path(each) for each in paths], Path(out), title, figures)
    return Report(Path(out))


def _frame(records: Sequence[Any]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([record.model_dump() for record in records])


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mgg-", ignore_cleanup_errors=True)


def _place(out: _Path | None, name: str) -> Path:
    """``out``, or a path named ``name`` in a temporary folder that is removed when the process ends."""
    return Path(out) if out is not None else Path(tempfile.mkdtemp(dir=_scratch().name)) / name


def _check(section: type[config.Section], **values: Any) -> None:
    """Raise InputError unless ``section`` of the config takes ``values``, by the names of its fields."""
    try:
        found = parsed(section, values, "")
        for name, value in values.items():
            for mine, theirs in zip(_several(value), _several(getattr(found, name)), strict=True):
                if isinstance(mine, str) and not isinstance(theirs, str):
                    raise InputError(f"{name}: input should be a number, found {mine!r}")
    except InputError as error:
        # These fields are lists of what an argument gives one of: "dims.0: ..." is about argument dim.
        raise InputError(re.sub(r"^(dim|dtype|seed|pes)s?(?:\.\d+)?:", r"\1:", str(error))) from None


def _by_name(argument: str, values: Any) -> dict[str, Any]:
    """Return ``values`` as a dictionary; raise InputError if they are neither a mapping nor None."""
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"{argument}: takes a dictionary, values by name, found {values!r}")
    return dict(values or {})


def _network(text: str | None) -> Network | None:
    """Parse ``text``; None without it."""
    from mgg.network import Network

    try:
        return None if text is None else Network.parse(str(text))
    except ValueError as error:
        raise InputError(f"emulate_network: {error}").on_every_pe() from None


def _several(values: Any) -> list[Any]:
    """The values as a list; a single value, or a text, makes a list of one."""
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]


def _layout(source: _Path, pes: int | None, kept: bool) -> Path:
    """The layout of ``source``, which is made unless the source is one."""
    from mgg import layout as layouts
    from mgg import partition
    from mgg.backend import job_size
    from mgg.graph.manifest import MANIFEST_FILE
    from mgg.layout.store import MANIFEST

    given = Path(source)
    is_layout = (given / MANIFEST).is_file()
    if job_size() > 1 and not (is_layout and kept):
        raise InputError(
            f"{source}: {job_size()} ranks need one layout folder (mgg partition, mgg layout) and a place for the"
            " results (out=)"
        ).on_every_pe()
    if is_layout:
        found = layouts.read_manifest(given).pes
        if pes not in (None, found):
            raise InputError(f"{source}: a layout of {found} PEs, and pes={pes}: leave pes out, or make another layout")
        return given
    wanted = 1 if pes is None else pes
    _check(config.PartitionConfig, pes=[wanted])
    folder = given if (given / MANIFEST_FILE).is_file() else graph(source).path
    part, made = _place(None, "part"), _place(None, "layout")
    partition.build(
        folder, part, pes=wanted, scheme=_PARTITION.scheme, workgroup=_PARTITION.workgroup, dim=_PARTITION.dim
    )
    layouts.build(folder, part, made)
    return made
