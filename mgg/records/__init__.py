"""Records of stages partition, aggregate and train and of the workflow's jobs: the only input of the report.

A partition's folder holds a ``PartitionRecord``, a training run's folder a ``TrainRecord`` and a line per epoch; other
commands write JSON lines, a record per line. Hashes reveal any change (docs/reference/format.md). Times are in
seconds. Tables of the report and docs/ take over what fields are described as.
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

    run_id: str = Field(pattern=RUN_PATTERN, description="run that made it: a command, or a workflow ($MGG_RUN_ID)")
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
        description="16 hex digits of the sha256 of a host's processor model, cores, memory in GiB and GPU models,"
        " however few the job was given; joined by + where a job's hosts differ",
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

    dim: int = Field(ge=1, description="D, the number of embedding columns that the volumes are for")
    nodes_per_pe: list[Count] = Field(min_length=1, description="rows that each PE owns")
    arcs_per_pe: list[Count] = Field(description="arcs of the rows that each PE owns")
    imbalance: float = Field(description="arcs of the PE with the most, divided by the mean over PEs; 1 is even")
    edge_cut: int = Field(ge=0, description="arcs whose column another PE owns (E_R)")
    edge_cut_per_pe: list[Count] = Field(description="those of the rows of each PE")
    halo_rows_per_pe: list[Count] = Field(description="halo rows of each PE (their sum is N_R)")
    halo_rows_per_pair: list[list[Count]] | None = Field(
        description="entry [p][q]: rows of PE q in the halo of PE p; none for more than 128 PEs"
    )
    v_cg: int = Field(ge=0, description="CoLa eq. 5, 4 n D (P - 1): every PE broadcasts all of its rows")
    v_fr: int = Field(ge=0, description="CoLa eq. 6, 4 E_R D: one remote row per arc")
    v_fc: int = Field(ge=0, description="CoLa eq. 7, 4 N_R D: each remote row once per PE that needs it")
    v_cover: int | None = Field(
        None,
        ge=0,
        description="the least rows and sums that cover the arcs of each pair of PEs (SHIRO); None: not counted",
    )
    arcs_per_workgroup: list[Count] = Field(min_length=1, description="arcs of the rows that each workgroup owns")
    workgroup_imbalance: float = Field(
        description="arcs per PE of the fullest workgroup, divided by the mean over PEs; 1 is even"
    )
    workgroup_edge_cut: int = Field(ge=0, description="arcs whose column another workgroup owns")
    workgroup_halo_rows: list[Count] = Field(
        description="rows of other workgroups that a PE of each workgroup needs, counted once a workgroup"
    )
    vi_cg: int = Field(ge=0, description="part of v_cg between workgroups: 4 n D (P - G) if G divides P")
    vi_fr: int = Field(ge=0, description="part of v_fr between workgroups (CoLa table 3)")
    vi_fc: int = Field(ge=0, description="part of v_fc between workgroups (CoLa table 3)")
    vi_cola: int = Field(ge=0, description="each row once per workgroup that needs it (CoLa 4.2 and table 3)")
    span: float | None = Field(
        None, ge=0, description="averaged edge span (GNNAdvisor, eq. 4): the mean of |row - column|; None: not recorded"
    )


class Partition(Frozen):
    """Assignment of a graph's rows to PEs: a node permutation (none: unchanged order) and P - 1 split points."""

    name: str = Field(description="name of the graph")
    graph_hash: str = Field(description="hash of the graph's shards; graphs with equal hashes are equal")
    nodes: int = Field(ge=0, description="number of nodes")
    pes: int = Field(ge=1, description="number of PEs")
    scheme: str = Field(description="partition scheme")
    workgroup: int = Field(ge=1, description="G, PEs joined by fast links; the last workgroup may have fewer")
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
    graph_hash: str = Field(description="hash of the graph's shards; graphs with equal hashes are equal")
    nodes: int = Field(description="number of nodes")
    arcs: int = Field(description="number of stored arcs; a symmetric edge counts twice")
    technique: str = Field(description="aggregation technique")
    options: dict[str, Any] = Field(description="options of the technique, defaults included")
    backend: str = Field(description="what the PEs were: simulated (threads), mpi (processes) or nvshmem (GPUs)")
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
        " widest D of the job; of a run since it was started or resumed; None: CPUs, or not noted",
    )


class AggregateRecord(Common):
    """Timing of one technique, direction and width on one layout.

    The timing is repeated in launches. Each launch prepares a new plan, and the job measures everything else between
    two launches.
    """

    again: ClassVar[str] = "run mgg aggregate again"
    called: ClassVar[str] = "timing records"
    schema_version: Literal[3] = 3
    kind: Literal["aggregate"] = "aggregate"
    defaults: dict[str, Any] = Field(default_factory=dict, description="default options of the technique")
    layout: Sha256 = Field(description="digest of the layout's manifest")
    direction: Literal["forward", "transpose"] = Field(description="forward: A B; transpose: A^T B")
    dim: int = Field(description="D, the number of embedding columns")
    scheme: str = Field(description="partition scheme")
    imbalance: float = Field(description="arcs of the PE with the most, divided by the mean over PEs; 1 is even")
    edge_cut: int = Field(description="arcs whose column another PE owns")
    halo_rows: int = Field(description="remote rows that a PE needs, each counted once, summed over PEs")
    warmup: int = Field(description="untimed products of each launch, before the timed ones")
    seconds: list[float] = Field(
        min_length=1, description="seconds of each timed product, slowest PE; launch after launch, as many of each"
    )
    launches: list[float] = Field(min_length=1, description="median seconds of each launch")
    low: float = Field(description="time of the fastest launch; a launch's is the median of its products, slowest PE")
    median: float = Field(description="median of the times of the launches")
    high: float = Field(description="time of the slowest launch; low to high is the spread that comparisons rest on")
    q1: float = Field(description="first quartile of the time of a product, over all launches")
    q3: float = Field(description="third quartile of the time of a product, over all launches")
    prepare: Seconds | None = Field(
        None,
        description="time from the layout to a plan for the widest D of the job, slowest PE, median over launches; "
        "kernels are compiled before; None: not recorded",
    )
    compute: float | None = Field(
        None,
        description="time of a product without its transfers, median over launches; None: not measured, or transfers "
        "and arithmetic cannot be told apart",
    )
    transfer: float | None = Field(
        None,
        description="time of the transfers alone, where the technique's own launch does both, median over launches; "
        "None: not measured",
    )
    bytes_wire: int = Field(
        description="bytes that crossed between PEs in one product, counted where they crossed, summed over PEs"
    )
    bytes_per_pe: list[int] = Field(description="the same for each PE, counted where they arrive or are fetched")
    v_cg: int = Field(description="CoLa eq. 5: every PE broadcasts all of its rows")
    v_fr: int = Field(description="CoLa eq. 6: one remote row per arc")
    v_fc: int = Field(description="CoLa eq. 7: each remote row once per PE that needs it")
    error: float | None = Field(
        description="max |C - C*| / (|A| |B|), where C* is the float64 product; None: not checked"
    )
    tolerance: float | None = Field(description="largest error allowed")
    workgroup: int | None = Field(
        None, description="number of PEs of a workgroup; None: the technique has none, or not recorded"
    )
    bytes_between: int | None = Field(
        None,
        description="part of bytes_wire that crossed between workgroups, counted; None: one workgroup, or not recorded",
    )
    vi_fc: int | None = Field(
        None,
        description="CoLa 4.1: each row once per PE of another workgroup that needs it; None: one, or not recorded",
    )
    vi_cola: int | None = Field(
        None, description="CoLa 4.2: each row once per workgroup that needs it; None: one, or not recorded"
    )
    repeats: bool | None = Field(
        None, description="whether the same inputs give the same bits in every run; None: not recorded"
    )
    atomics: Count | None = Field(None, description="atomic additions of gnnadvisor's kernel; None: another technique")
    decided: dict[str, int] | None = Field(None, description="gnnadvisor's ngs, dw and tpb; None: another technique")
    page_faults: float | None = Field(
        None,
        ge=0,
        description="page faults of GPUs in a product over unified memory, all PEs, mean of as many products as a "
        "launch times; None: see faults_untold",
    )
    fault_seconds: Seconds | None = Field(
        None,
        description="sum of the times that the driver reports for these page faults, which may overlap; None: see "
        "faults_untold",
    )
    migrated_bytes: float | None = Field(
        None,
        ge=0,
        description="bytes of the pages that moved in a product, to, from and between GPUs; None: see faults_untold",
    )
    faults_untold: str | None = Field(
        None, description="why page faults are unknown; None: they are known, or were not requested"
    )
    occupancy: Share | None = Field(
        None,
        description="achieved occupancy of a product's kernels by Nsight Compute: active warps of an active cycle over "
        "the most that a multiprocessor takes; mean of kernels and PEs by their time; None: see "
        "profile_untold",
    )
    occupancy_limit: Share | None = Field(
        None, description="largest occupancy that the launch allows, same mean; None: see profile_untold"
    )
    sm_utilization: Share | None = Field(
        None, description="share of cycles in which a multiprocessor had a warp, same mean; None: see profile_untold"
    )
    profile_untold: str | None = Field(
        None, description="why occupancy and sm_utilization are unknown; None: they are known, or were not requested"
    )
    profiler: str | None = Field(None, description="version of Nsight Compute that found them; None: it did not run")
    chosen: bool = Field(False, description="whether technique auto picked it")
    predicted: float | None = Field(
        None, gt=0, description="time that the cost model predicted before the measurement; None: it was not asked"
    )


class TrainRecord(Common):
    """One training run."""

    again: ClassVar[str] = "run mgg train again"
    schema_version: Literal[2] = 2
    kind: Literal["train"] = "train"
    model: str = Field(description="name of the model")
    side: Side = Field(
        "mgg",
        description="what trained it: mgg; unfused: MGG, whose vertex programs took a pass over arcs for each"
        " aggregation and stored all values of arcs; pyg, pyg_csr, pyg_bmm, pyg_sampled: layers of PyTorch Geometric,"
        " which is its technique",
    )
    seed: int = Field(ge=0, le=MAX_INT64, description="seed of weights and dropout")
    epochs: int = Field(description="epochs trained; fewer than requested if patience ended the run")
    asked_epochs: int | None = Field(
        None, le=MAX_INT64, description="epochs asked for, of which patience may leave out the last; None: not noted"
    )
    scheme: str | None = Field(None, description="partition scheme; None: not recorded")
    layout: str | None = Field(None, description="digest of the layout's manifest; None: not noted")
    settings: dict[str, Any] = Field(description="hyperparameters, defaults included")
    features: int = Field(description="number of input features of a node")
    classes: int = Field(description="number of classes")
    parameters: int = Field(description="number of trainable parameters")
    loss: float = Field(description="training loss (cross-entropy, with dropout) of the last epoch")
    best_epoch: int = Field(
        description="epoch whose weights are kept: with the best validation score, or what the setting selection says"
    )
    train_accuracy: float = Field(description="metric of the training nodes at best_epoch, 0 to 1")
    validation_accuracy: float | None = Field(
        description="metric of the validation nodes at best_epoch, 0 to 1; None: there are none"
    )
    test_accuracy: float = Field(description="metric of the test nodes at best_epoch, 0 to 1")
    median: float = Field(description="median time of an epoch on the slowest PE")
    q1: float = Field(description="first quartile of the time of an epoch on the slowest PE")
    q3: float = Field(description="third quartile of the time of an epoch on the slowest PE")
    inference: float | None = Field(
        None,
        gt=0,
        description="median time of a pass without dropout or gradients on the slowest PE; None: not requested",
    )
    bytes_wire: int = Field(
        description="bytes that crossed between PEs in the aggregations of one epoch, evaluation included, summed over "
        "PEs"
    )
    activations: dict[str, Literal["recompute", "host"]] = Field(
        default_factory=dict,
        description="layers that did not keep their activations for the backward pass: recomputed then, or held in"
        " page-locked host memory, of CPU PEs in mapped files, until then; the same of features and arcs",
    )
    memory_predicted: Count | None = Field(
        None, description="predicted memory of the PE with the most; None: not recorded"
    )
    memory_per_pe: Count | None = Field(
        None, description="memory that a PE was allowed to use; None: all that was free"
    )
    chosen: bool = Field(False, description="whether technique auto picked it")
    metric: Literal["accuracy", "micro_f1", "roc_auc"] = Field(
        "accuracy",
        description="what the fields called accuracy hold: accuracy, micro_f1 or roc_auc, each 0 to 1",
    )
    weights: str | None = Field(
        None,
        description="sha256 of names and values of the weights that the training started from; None: random weights",
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


class EpochRecord(Frozen):
    """One line of ``metrics.jsonl``."""

    epoch: int = Field(description="number of the epoch, counted from 1")
    loss: float = Field(description="training loss (cross-entropy, with dropout)")
    train_accuracy: float = Field(description="metric of the training nodes, 0 to 1")
    validation_loss: float | None = Field(
        None, description="loss of the validation nodes, without dropout; None: there are none"
    )
    validation_accuracy: float | None = Field(
        None, description="metric of the validation nodes, 0 to 1; None: there are none"
    )
    test_accuracy: float = Field(description="metric of the test nodes, 0 to 1")
    seconds: float = Field(description="time of the epoch on the slowest PE, evaluation included")
    aggregate: float | None = Field(
        None, description="time of the epoch spent in aggregations, mean over PEs; None: without --phases"
    )
    dense: float | None = Field(None, description="time spent in products with weights, likewise")
    communication: float | None = Field(
        None,
        description="time spent in transfers and waits, likewise; on GPUs without those of aggregations",
    )
    other: float | None = Field(None, description="time spent in everything else, likewise")


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
        called = getattr(model, "called", "records of this kind")
        raise InputError(f"{path}: exists and holds no {called}; choose another name") from None


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
