"""Records of stages partition, aggregate and train and of the workflow's jobs: the only input of the report.

A partition's folder holds a ``PartitionRecord``, a training run's folder a ``TrainRecord`` and a line per epoch; other
commands write JSON lines, a record per line. Hashes reveal any change (docs/reference/format.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mgg import hashed
from mgg.errors import InputError
from mgg.files import check_file_output, locked, write_text
from mgg.origin import HASH_PATTERN, PLACE_PATTERN, RUN_PATTERN
from mgg.schema import MAX_INT64, Fixed
from mgg.tune.epochs import Tuning

PARTITION_FILE = "partition.json"
RUN_FILE = "run.json"
INFERENCE_FILE = "inference.json"
METRICS_FILE, METRICS_TABLE = "metrics.jsonl", "metrics.parquet"
#: Subfolder of a run's folder for the user's own model file.
MODEL_FOLDER = "model"


class Frozen(Fixed):
    """A record: immutable, and unknown fields are rejected."""

    model_config = ConfigDict(ser_json_inf_nan="constants")


Sha256 = Annotated[str, Field(pattern=HASH_PATTERN)]


class Origin(Frozen):
    """Origin of a record (``mgg.origin``), which tells results of different runs, machines and versions apart."""

    run_id: str = Field(pattern=RUN_PATTERN, description="the run that made it: a command, or all those of a workflow")
    recorded_at: str = Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", description="when it was made, UTC, as in 2026-01-31T23:59:59Z"
    )
    mgg_version: str = Field(description="version of MGG")
    commit: str | None = Field(
        pattern=r"^[0-9a-f]{40,64}(-dirty)?$",
        description="commit of MGG's sources, -dirty where they were changed since; None: nothing told it",
    )
    config_hash: Sha256 | None = Field(
        description="sha256 of the settings: of the workflow's config, else of the command and its options; None: a"
        " program called MGG as a library"
    )
    machine_id: str = Field(
        pattern=r"^[0-9a-f]{16}(\+[0-9a-f]{16})*$",
        description="hash of processor, cores, memory and GPU models of a host, joined by + where a job's hosts differ",
    )


#: What can train a model besides plain MGG: layers of PyTorch Geometric, most of them only for some models.
Library = Literal["pyg", "pyg_csr", "pyg_bmm", "pyg_sampled"]
Side = Literal["mgg", "unfused", Library]
#: Display names of training metrics.
METRIC_NAMES = {"accuracy": "accuracy", "micro_f1": "micro-F1", "roc_auc": "ROC-AUC"}

Count = Annotated[int, Field(ge=0)]


class Quality(Frozen):
    """Quality of a partition: balance, cut, halos, and the communication volumes of the CoLa paper.

    Volumes are bytes of one forward product of ``dim`` fp32 columns over all PEs. V is the total, and VI the part that
    crosses between workgroups (CoLa's tables 2 and 3). A halo row is a row of another PE that a PE needs, counted once.
    """

    dim: int = Field(ge=1, description="embedding columns D that the volumes are for")
    nodes_per_pe: list[Count] = Field(min_length=1, description="rows that each PE owns")
    arcs_per_pe: list[Count] = Field(description="arcs of the rows that each PE owns")
    imbalance: float = Field(description="arcs of the fullest PE over the mean (1 = perfect)")
    edge_cut: int = Field(ge=0, description="arcs whose column another PE owns (E_R)")
    edge_cut_per_pe: list[Count] = Field(description="those of the rows of each PE")
    halo_rows_per_pe: list[Count] = Field(description="halo rows of each PE (their sum is N_R)")
    halo_rows_per_pair: list[list[Count]] | None = Field(
        description="entry [p][q]: rows of PE q in the halo of PE p; none for more than 128 PEs"
    )
    v_cg: int = Field(ge=0, description="eq. 5, 4 n D (P - 1): every PE broadcasts all of its rows")
    v_fr: int = Field(ge=0, description="eq. 6, 4 E_R D: one remote row per arc")
    v_fc: int = Field(ge=0, description="eq. 7, 4 N_R D: each needed remote row once per PE")
    v_cover: int | None = Field(
        None, ge=0,
        description="the least of rows and sums over arcs for each pair of PEs (SHIRO); None: not counted",
    )  # fmt: skip
    arcs_per_workgroup: list[Count] = Field(min_length=1, description="arcs of the rows that each workgroup owns")
    workgroup_imbalance: float = Field(description="arcs a PE of the fullest workgroup over the mean (1 = perfect)")
    workgroup_edge_cut: int = Field(ge=0, description="arcs whose column another workgroup owns")
    workgroup_halo_rows: list[Count] = Field(
        description="rows of other workgroups that a PE of each workgroup needs, counted once a workgroup"
    )
    vi_cg: int = Field(ge=0, description="V_CG between workgroups: 4 n D (P - G) where G divides P")
    vi_fr: int = Field(ge=0, description="V_FR between workgroups")
    vi_fc: int = Field(ge=0, description="V_FC between workgroups: once for each PE that needs the row")
    vi_cola: int = Field(ge=0, description="communication fusion (4.2): once for each workgroup that needs the row")
    span: float | None = Field(None, ge=0, description="averaged edge span (GNNAdvisor, eq. 4); None: not noted")


class Partition(Frozen):
    """Assignment of a graph's rows to PEs: a node permutation (none: unchanged order) and P - 1 split points."""

    name: str = Field(description="name of the graph")
    graph_hash: str = Field(description="hash of the graph that was partitioned")
    nodes: int = Field(ge=0, description="number of nodes")
    pes: int = Field(ge=1, description="number of PEs")
    scheme: str = Field(description="partition scheme")
    workgroup: int = Field(ge=1, description="PEs joined by fast links; the last workgroup may have fewer")
    order: Sha256 | None = Field(description="sha256 of order.npy, the new position of each node; none: as they are")
    bounds: list[Count] = Field(description="pes + 1 positions: PE p owns those from bounds[p] to bounds[p + 1] - 1")
    quality: Quality

    @model_validator(mode="after")
    def _consistent(self) -> Partition:
        bounds, quality = self.bounds, self.quality
        if len(bounds) != self.pes + 1 or bounds[0] != 0 or bounds[-1] != self.nodes or bounds != sorted(bounds):
            raise ValueError(f"bounds: they do not cut {self.nodes} rows into {self.pes} ranges")
        each = (quality.nodes_per_pe, quality.arcs_per_pe, quality.edge_cut_per_pe, quality.halo_rows_per_pe)
        pairs = quality.halo_rows_per_pair
        per_pe = {len(values) for values in (*each, *(pairs or []))} | ({len(pairs)} if pairs is not None else set())
        per_group = {len(quality.arcs_per_workgroup), len(quality.workgroup_halo_rows)}
        if per_pe != {self.pes} or per_group != {-(-self.pes // self.workgroup)}:
            raise ValueError(f"quality: its lists do not fit {self.pes} PEs in workgroups of {self.workgroup}")
        return self


class PartitionRecord(Origin, Partition):
    """The record that ``mgg partition`` writes."""

    again: ClassVar[str] = "run mgg partition again"
    schema_version: Literal[3] = 3


class Machine(Frozen):
    """The machine that a record was measured on."""

    cpu: str = Field(description="processor model")
    cores: int = Field(ge=1, description="cores that the PEs of the job may use, all hosts together")
    hosts: int = Field(1, ge=1, description="hosts of the job")
    threads: int = Field(1, ge=1, description="threads of each CPU PE")
    memory_bytes: int = Field(description="physical memory of the host, bytes")
    gpus: list[str] = Field(default_factory=list, description="GPU models, one entry a GPU of the job")
    system: str = Field(description="operating system and kernel")
    place: str | None = Field(
        None,
        pattern=PLACE_PATTERN,
        description="how the workflow started it: scheduler, devices, launcher, partition; None: by hand",
    )

    def oversubscribed(self, pes: int) -> bool:
        """Return whether ``pes`` PEs must share the machine's GPUs, or its cores if it has no GPUs."""
        return pes > (len(self.gpus) or self.cores)


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Used(Frozen):
    """Resources used by the processes of a job's PEs when a record was made; subprocesses (nvcc) do not count."""

    memory: int = Field(
        ge=0,
        description="sum of the peak resident sets of the processes of a host, bytes, on the host with the largest;"
        " pages that processes share count in each of them",
    )
    cpu_seconds: Seconds = Field(description="CPU seconds of all processes")
    seconds: Seconds = Field(description="how long the first of them had run")


class Common(Origin):
    """Fields that timings and training runs share."""

    dataset: str = Field(description="name of the graph")
    graph_hash: str = Field(description="hash of the graph's shards (its manifest's hash)")
    nodes: int = Field(description="number of nodes")
    arcs: int = Field(description="number of stored arcs (directed; a symmetric edge counts twice)")
    technique: str = Field(description="aggregation technique")
    options: dict[str, Any] = Field(description="options of the technique, defaults included")
    backend: str = Field(description="simulated, mpi or nvshmem")
    pes: int = Field(description="number of PEs")
    dtype: str = Field(description="type of the embeddings")
    machine: Machine
    versions: dict[str, str] = Field(description="versions of MGG and of the libraries that do the work")
    emulated: str | None = Field(
        None,
        description="the network that transfers between the layout's workgroups were held to, emulated 20 GB/s, 5 us"
        " for example; None: to none",
    )
    used: Used | None = Field(
        None, description="what the job had used until then, earlier records included; None: unknown"
    )
    gpu_memory: Count | None = Field(
        None,
        description="most bytes that arrays, and allocators for the next ones, held of a GPU's memory at a time, on the"
        " PE with the most, contexts, kernels and unified memory apart; of a timing since its plan was made, for the"
        " widest D of the job; of a run since it was started or resumed. None: CPUs, or not noted",
    )


class AggregateRecord(Common):
    """Timing of one technique, direction and width on one layout.

    The timing is repeated in launches. Each launch prepares a new plan, and the job measures everything else between
    two launches.
    """

    again: ClassVar[str] = "run mgg aggregate again"
    schema_version: Literal[3] = 3
    kind: Literal["aggregate"] = "aggregate"
    defaults: dict[str, Any] = Field(
        default_factory=dict, description="the technique's options where nothing else was asked for"
    )
    layout: Sha256 = Field(description="digest of the layout's manifest")
    direction: Literal["forward", "transpose"] = Field(description="A B or A^T B")
    dim: int = Field(description="embedding columns D")
    scheme: str = Field(description="partition scheme")
    imbalance: float = Field(description="arcs of the fullest PE over the mean")
    edge_cut: int = Field(description="arcs whose column another PE owns")
    halo_rows: int = Field(description="unique remote rows, summed over PEs")
    warmup: int = Field(description="products of a launch before the timed ones")
    seconds: list[float] = Field(
        min_length=1, description="seconds of each timed product, slowest PE; launch after launch, as many of each"
    )
    launches: list[float] = Field(min_length=1, description="median seconds of each launch")
    low: float = Field(description="smallest of launches")
    median: float = Field(description="median of launches")
    high: float = Field(description="largest of launches; low to high is the spread that comparisons rest on")
    q1: float = Field(description="first quartile of seconds, all launches together")
    q3: float = Field(description="third quartile of the same")
    prepare: Seconds | None = Field(
        None,
        description="seconds from the layout to a plan for the widest D of the job, slowest PE, median over launches;"
        " kernels are compiled before; None: not noted",
    )
    compute: float | None = Field(
        None,
        description="seconds of the same product with its transfers left out, median over launches; None if it"
        " was not asked for, or transfers and arithmetic cannot be told apart",
    )
    transfer: float | None = Field(
        None,
        description="median seconds of the transfers alone, where the technique's own launch does both; None as above",
    )
    bytes_wire: int = Field(description="bytes that crossed PEs in one product, counted, summed over PEs")
    bytes_per_pe: list[int] = Field(description="the same for each PE, counted where they arrive or are fetched")
    v_cg: int = Field(description="CoLa eq. 5, bytes: every PE broadcasts all of its rows")
    v_fr: int = Field(description="CoLa eq. 6, bytes: one remote row per arc")
    v_fc: int = Field(description="CoLa eq. 7, bytes: each needed remote row once per PE")
    error: float | None = Field(description="max |C - C*| / (|A| |B|) against float64, None if unchecked")
    tolerance: float | None = Field(description="the largest error allowed")
    workgroup: int | None = Field(
        None, description="PEs of a workgroup; None: the technique has no workgroups, or it was not noted"
    )
    bytes_between: int | None = Field(
        None,
        description="of bytes_wire what crossed between workgroups, counted; None: there is one, or it was not noted",
    )
    vi_fc: int | None = Field(
        None, description="bytes: each row of another workgroup once per PE that needs it; None: one, or not noted"
    )
    vi_cola: int | None = Field(
        None, description="CoLa 4.2, bytes: each row once a workgroup that needs it; None: one, or it was not noted"
    )
    repeats: bool | None = Field(None, description="the same inputs give the same bits every time; None: not noted")
    atomics: Count | None = Field(None, description="float atomics of gnnadvisor's kernel; None: another technique")
    decided: dict[str, int] | None = Field(None, description="gnnadvisor's ngs, dw and tpb; None: another technique")
    page_faults: float | None = Field(
        None,
        ge=0,
        description="page faults of GPUs in a product over unified memory, all PEs, mean of as many products as a"
        " launch times; None: faults_untold says why, or they were not asked for",
    )
    fault_seconds: Seconds | None = Field(
        None, description="sum of the driver's times for these page faults, which may overlap; None as above"
    )
    migrated_bytes: float | None = Field(
        None, ge=0, description="bytes of pages that moved in a product, to, from and between GPUs; None as above"
    )
    faults_untold: str | None = Field(None, description="why page faults that were asked for are not known")
    occupancy: Share | None = Field(
        None,
        description="achieved occupancy of a product's kernels by Nsight Compute: active warps of an active cycle over"
        " the most that a multiprocessor takes; mean of kernels and PEs by their time. None: --profile was not given,"
        " or profile_untold says why",
    )
    occupancy_limit: Share | None = Field(None, description="the same as the launch allows; None as above")
    sm_utilization: Share | None = Field(
        None, description="cycles in which a multiprocessor had a warp over all, same mean; None as above"
    )
    profile_untold: str | None = Field(None, description="why --profile found none of these three")
    profiler: str | None = Field(None, description="version of Nsight Compute that found them; None: it did not run")
    chosen: bool = Field(False, description="technique auto picked it")
    predicted: float | None = Field(
        None, gt=0, description="seconds that the cost model said before it was measured; None if it was not asked"
    )


class TrainRecord(Common):
    """One training run."""

    again: ClassVar[str] = "run mgg train again"
    schema_version: Literal[2] = 2
    kind: Literal["train"] = "train"
    model: str = Field(description="model")
    side: Side = Field(
        "mgg",
        description="what trained it: mgg; unfused: MGG, whose vertex programs took a pass over arcs for each"
        " aggregation and stored all values of arcs; pyg, pyg_csr, pyg_bmm, pyg_sampled: layers of PyTorch Geometric,"
        " which is its technique",
    )
    seed: int = Field(ge=0, le=MAX_INT64, description="seed of weights and dropout")
    epochs: int = Field(description="epochs trained")
    asked_epochs: int | None = Field(
        None, le=MAX_INT64, description="epochs asked for, of which patience may leave out the last; None: not noted"
    )
    scheme: str | None = Field(None, description="partition scheme; None: not noted")
    layout: str | None = Field(None, description="digest of the layout's manifest; None: not noted")
    settings: dict[str, Any] = Field(description="hyperparameters, defaults included")
    features: int = Field(description="input feature columns")
    classes: int = Field(description="number of classes")
    parameters: int = Field(description="trainable numbers")
    loss: float = Field(description="training loss of the last epoch")
    best_epoch: int = Field(
        description="epoch whose weights are kept: with the best validation score, or what the setting selection says"
    )
    train_accuracy: float = Field(description="accuracy on the training nodes at best_epoch, 0..1")
    validation_accuracy: float | None = Field(
        description="accuracy on the validation nodes at best_epoch, 0..1; None: there are none"
    )
    test_accuracy: float = Field(description="accuracy on the test nodes at best_epoch, 0..1")
    median: float = Field(description="median seconds of an epoch, slowest PE")
    q1: float = Field(description="first quartile of the seconds of an epoch")
    q3: float = Field(description="third quartile of the seconds of an epoch")
    inference: float | None = Field(
        None,
        gt=0,
        description="median seconds of a pass over the graph without dropout or gradients, slowest PE; None: not asked",
    )
    bytes_wire: int = Field(
        description="bytes that crossed PEs in one epoch's aggregations, evaluation included, all PEs"
    )
    activations: dict[str, Literal["recompute", "host"]] = Field(
        default_factory=dict,
        description="layers that did not keep their activations for the backward pass: recomputed then, or held in"
        " page-locked host memory, of CPU PEs in mapped files, until then; the same of features and arcs",
    )
    memory_predicted: Count | None = Field(
        None, description="bytes that the training was predicted to take on the fullest PE; None: not noted"
    )
    memory_per_pe: Count | None = Field(None, description="bytes that a PE was allowed to take; None: what is free")
    chosen: bool = Field(False, description="technique auto picked it")
    metric: Literal["accuracy", "micro_f1", "roc_auc"] = Field(
        "accuracy", description="what the fields called accuracy hold: accuracy, micro_f1 or roc_auc, each 0..1"
    )
    weights: str | None = Field(
        None, description="sha256 of names and values of the weights that it started from; None: random ones"
    )
    model_file: Sha256 | None = Field(None, description="sha256 of the user's own model file; None: it is MGG's")
    tuning: Tuning | None = Field(None, description="settings of MGG's kernel, where they were tuned; None: options")


class InferenceRecord(Common):
    """Inference on a graph with weights that were trained elsewhere."""

    again: ClassVar[str] = "run mgg infer again"
    schema_version: Literal[1] = 1
    kind: Literal["inference"] = "inference"
    model: str = Field(description="model")
    model_file: Sha256 | None = Field(
        None, description="sha256 of the user's own file that the model is; None: the model is MGG's"
    )
    scheme: str = Field(description="partition scheme")
    layout: Sha256 = Field(description="digest of the layout's manifest")
    settings: dict[str, Any] = Field(description="hyperparameters of its layers, defaults included, and row_normalize")
    weights: Sha256 = Field(description="sha256 of names and values of the weights, as the model takes them")
    weights_file: Sha256 = Field(description="sha256 of the file that they are from")
    chosen: bool = Field(False, description="technique auto picked it")
    metric: Literal["accuracy", "micro_f1", "roc_auc"] = Field(description="what mgg evaluate scores it by")


class PredictionRecord(Origin):
    """Prediction of the cost model for one technique, width and number of PEs; nothing ran (docs/concepts/costs.md)."""

    again: ClassVar[str] = "run mgg predict again"
    schema_version: Literal[2] = 2
    kind: Literal["prediction"] = "prediction"
    dataset: str = Field(description="name of the graph")
    graph_hash: str = Field(description="hash of the graph's shards (its manifest's hash)")
    nodes: int = Field(ge=0, description="number of nodes")
    arcs: int = Field(ge=0, description="number of stored arcs")
    scheme: str = Field(description="partition scheme")
    technique: str = Field(description="aggregation technique")
    options: dict[str, Any] = Field(default_factory=dict, description="its options that are not at their defaults")
    pes: int = Field(ge=1, description="number of PEs")
    workgroup: int = Field(ge=1, description="PEs joined by fast links")
    dim: int = Field(ge=1, description="embedding columns D")
    dtype: str = Field(description="type of the embeddings")
    machine: str = Field(description="machine of the model")
    basis: str = Field(description="where its constants are from: measured, fitted, or not measured")
    links: dict[str, dict[str, float]] = Field(
        description="its links by class: latency and message in seconds, bandwidth in bytes a second and PE"
    )
    network: str = Field(description="class of the link between workgroups")
    seconds: Seconds = Field(description="predicted seconds of one forward product, slowest PE")
    arithmetic: Seconds = Field(description="of that PE's arithmetic")
    transfer: Seconds = Field(description="of its transfers")
    fixed: Seconds = Field(description="of barriers and launches")
    hidden: Seconds = Field(description="of the shorter of arithmetic and transfer, beside the longer one")
    chosen: bool = Field(
        description="what auto would pick of the techniques that the model knows there (docs/concepts/costs.md)"
    )

    @model_validator(mode="after")
    def _adds_up(self) -> PredictionRecord:
        total = self.arithmetic + self.transfer + self.fixed - self.hidden
        if abs(total - self.seconds) > 1e-6 * max(total, 1e-9):
            raise ValueError(f"seconds: {self.seconds} is not arithmetic + transfer + fixed - hidden")
        return self


class EpochRecord(Frozen):
    """One line of ``metrics.jsonl``."""

    epoch: int = Field(description="1-based")
    loss: float = Field(description="training loss (with dropout)")
    train_accuracy: float
    validation_loss: float | None = Field(None, description="without dropout; None: no validation nodes")
    validation_accuracy: float | None = Field(None, description="None: no validation nodes")
    test_accuracy: float
    seconds: float = Field(description="seconds of the epoch, slowest PE, evaluation included")
    aggregate: float | None = Field(
        None, description="of them seconds in aggregations, mean of the PEs; None: not asked"
    )
    dense: float | None = Field(None, description="the same in products with weights")
    communication: float | None = Field(
        None,
        description="the same in transfers and waits for other PEs; on GPUs those of aggregations are in aggregate",
    )
    other: float | None = Field(None, description="the same in everything else")


R = TypeVar("R", bound=BaseModel)
#: File name of a folder's record.
_FILES: dict[type[BaseModel], str] = {TrainRecord: RUN_FILE, InferenceRecord: INFERENCE_FILE}


def as_json(record: BaseModel, *, indent: int | None = None, **more: Any) -> str:
    """Return a record and ``more`` fields as a JSON object with its own hash: one line, or several with ``indent``."""
    values = hashed.sealed(_values(record) | more)
    separators = (",", ":") if indent is None else None
    return json.dumps(values, ensure_ascii=False, indent=indent, separators=separators) + "\n"


def _values(record: BaseModel) -> dict[str, Any]:
    """Return a record's values as JSON represents them."""
    return dict(json.loads(record.model_dump_json()))


def write_lines(path: str | Path, records: Iterable[BaseModel]) -> None:
    """Write records as JSON lines, atomically (temporary name, fsync, rename)."""
    write_text(path, hashed.lines(map(_values, records)))


def add_lines(path: Path, records: Iterable[BaseModel], *, replace: bool) -> None:
    """Append records as JSON lines to ``path``, or with ``replace`` overwrite it.

    The write is atomic and locked against other commands that write to the same file.

    Raises:
        InputError: the existing lines were altered; appending valid lines must not hide that.
    """
    records = list(records)
    with locked(path):
        again = _again(type(records[0])) if records else ""
        held = "" if replace or not path.exists() else text_of(path)
        before = [values for _, values in hashed.read_lines(held, path, again)]
        write_text(path, hashed.lines([*before, *map(_values, records)]))


def check_lines_output(path: Path, model: type[R], *, replace: bool) -> list[R]:
    """Return the records in ``path`` that will be kept; with ``replace`` there are none.

    Raises:
        InputError: records cannot be written to ``path``; raised before anything is measured.
    """
    check_file_output(path, "records")
    if not (path.exists() and path.stat().st_size):
        return []
    try:
        return [] if replace and holds(path, model) else read_lines(path, model)
    except InputError as error:
        if holds(path, model):
            raise InputError(f"{error} (--replace replaces the file)") from None
        kind = {AggregateRecord: "timing records", PredictionRecord: "predictions"}.get(model, "records of this kind")
        raise InputError(f"{path}: exists and holds no {kind}; choose another name") from None


def holds(path: str | Path, model: type[BaseModel]) -> bool:
    """Return whether ``path`` has a record of ``model``, damaged or of any version; raises InputError if unreadable."""
    try:
        found = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return f'"kind":"{model.model_fields["kind"].default}"'.encode() in found.replace(b" ", b"")


def read_lines(path: str | Path, model: type[R]) -> list[R]:
    """Read JSON lines; raises InputError, which names the file, the line and the field."""
    lines = hashed.read_lines(text_of(path), path, _again(model))
    records = [_validated(values, model, f"{path}: line {number}") for number, values in lines]
    if not records:
        raise InputError(f"{path}: holds no records")
    return records


def read_run(folder: str | Path) -> tuple[TrainRecord, list[EpochRecord]]:
    """Read a training run's folder; raises InputError, which names the file and field."""
    record, files = _read_folder(folder, TrainRecord)
    path = Path(folder) / METRICS_FILE
    lines = text_of(_checked(folder, METRICS_FILE, files, TrainRecord)).splitlines()
    return record, [_validated(json.loads(line), EpochRecord, str(path)) for line in lines]


def read_predicted(folder: str | Path) -> TrainRecord | InferenceRecord:
    """Read the record of a folder with predictions (of mgg train or mgg infer); raises InputError as ``read_run``."""
    kind = _kind(folder)
    return _read_folder(folder, kind)[0] if kind is InferenceRecord else read_run(folder)[0]


def run_file(folder: str | Path, name: str) -> Path:
    """Return the path of file ``name`` in such a folder; raises InputError if its hash is not the recorded one."""
    kind = _kind(folder)
    return _checked(folder, name, _read_folder(folder, kind)[1], kind)


def _kind(folder: str | Path) -> type[TrainRecord] | type[InferenceRecord]:
    return InferenceRecord if (Path(folder) / INFERENCE_FILE).is_file() else TrainRecord


def _read_folder(folder: str | Path, kind: type[R]) -> tuple[R, dict[str, str]]:
    """Return a folder's record and the sha256 of its other files by name."""
    run = Path(folder) / _FILES[kind]
    missing = f"{folder}: not a run folder (no {RUN_FILE}); make it with mgg train"
    values = hashed.unsealed(text_of(run, missing), str(run), _again(kind))
    files = values.pop("files", {})
    return _validated(values, kind, str(run)), files


def _checked(folder: str | Path, name: str, files: dict[str, str], kind: type[BaseModel]) -> Path:
    path = Path(folder) / name
    try:
        if hashed.file_hash(path) == files.get(name):
            return path
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: {_again(kind)}") from None
    raise InputError(f"{path}: altered since the run was written: {_FILES[kind]} names another sha256: {_again(kind)}")


def read_partition(folder: str | Path) -> PartitionRecord:
    """Read a partition's record; raises InputError, which names the file and field."""
    path = Path(folder) / PARTITION_FILE
    return parsed(text_of(path), PartitionRecord, str(path))


def text_of(path: str | Path, missing: str = "") -> str:
    """Return the text of a file; ``missing`` is the message if there is no file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(missing or f"{path}: {error.strerror}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"{path}: {reason}") from None


def _again(model: type[BaseModel]) -> str:  # if a record was altered, or another version of MGG wrote it
    return getattr(model, "again", "make it again")


def parsed(text: str, model: type[R], where: str) -> R:
    """Parse a file's text as a record; ``where`` names the file in messages."""
    return _validated(hashed.unsealed(text, where, _again(model)), model, where)


def _validated(values: dict[str, Any], model: type[R], where: str) -> R:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = f"field {'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        raise InputError(f"{where}: {place}{first['msg'].removeprefix('Value error, ')}: {_again(model)}") from None
