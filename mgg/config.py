"""The one configuration schema: every field of ``config/*.yaml``, its unit, default and limits.

``workflow/schemas/config.schema.yaml`` is generated from it; the command line takes its defaults from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from mgg.errors import InputError
from mgg.network import NetworkText
from mgg.schema import MAX_INT64, Closed, Fixed, nearest, parsed

#: File names contain them along with how and where the file was made, and file systems allow 255 bytes.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
Name = Annotated[str, Field(pattern=NAME, description="letters, digits, '_', '.', '-', at most 128")]
#: A name or a file path. In a path, Snakemake would expand braces, and a leading dash would look like an option.
ModelName = Annotated[
    str, Field(pattern=rf"{NAME}|^[^{{}}-][^{{}}]*\.py$", description="name of a model, or path of a .py file")
]
MAX_PES = 4096
Pes = Annotated[int, Field(ge=1, le=MAX_PES, description="processing elements (one GPU or one CPU rank each)")]
MAX_DIM = 65536
MAX_THREADS = 1024
Threads = Annotated[
    int,
    Field(
        ge=1,
        le=MAX_THREADS,
        description="threads of each CPU PE for row-wise products and vertex programs; results have the same bits with"
        " any number",
    ),
]
#: More than a machine does in a year, yet few enough to count them and store their times.
MAX_EPOCHS, MAX_PRODUCTS = 10**9, 10**6
#: Three years: practically never, and still a timeout that operating systems accept.
MAX_SECONDS = 1e8
Dim = Annotated[int, Field(ge=1, le=MAX_DIM, description="embedding columns")]


def with_exponents(value: Any) -> Any:
    """Return ``value``, converted to float if it is text like 5e-4, which YAML 1.1 does not read as a number."""
    is_one = isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value)
    return float(value) if is_one else value


def scalar(text: str) -> Any:
    """Return ``text`` as a YAML scalar (true, 3, 0.5, 5e-4, null), or unchanged if it is not one."""
    try:
        return with_exponents(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError):  # ValueError: text like 2024-13-45, which looks like a date
        return text


Scalar = Annotated[bool | int | float | str, BeforeValidator(with_exponents)]
Choice = Scalar | Annotated[list[Scalar], Field(min_length=1)]
Dtype = Literal["fp32", "bf16"]
#: Roles of columns; the first four are for edge tables, the rest for node tables.
Role = Literal[
    "source", "target", "weight", "type", "id", "label", "split", "train", "validation", "test", "feature", "ignore"
]  # fmt: skip
#: How repeated arcs and self-loops are handled.
Repeats = Literal["first", "sum", "max"]
Loops = Literal["drop", "keep"]
Backend = Literal["auto", "simulated", "mpi", "nvshmem"]
#: Methods for looking up rows of embedding tables.
LookupSide = Literal["mgg", "direct", "alltoall", "alltoall_tables", "halo"]
LOOKUP_SIDES: tuple[LookupSide, ...] = get_args(LookupSide)
#: How activations are stored (``mgg.train.activations``).
Activations = Literal["auto", "keep", "recompute", "host"]
#: What can train models besides plain MGG: the other values of ``mgg.records.Side``.
OtherSide = Literal["unfused", "pyg", "pyg_csr", "pyg_bmm", "pyg_sampled"]


S = TypeVar("S", bound="Section")


class Section(Closed):
    """A group of fields."""


class Assigned(Fixed):
    """Named values assigned by ``--set`` or the config; the text ``none`` means null where a value may be null."""

    model_config = ConfigDict(strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _null(cls, value: Any, info: ValidationInfo) -> Any:
        nullable = type(None) in get_args(cls.model_fields[str(info.field_name)].annotation)
        return None if nullable and str(value).lower() == "none" else value


class DatasetConfig(Section):
    """How one data set is made; a generated one takes ``generator`` and on, files of one's own ``source`` and on."""

    symmetrize: bool = Field(False, description="add the reverse of every arc (some sources always do)")
    repeats: Repeats | None = Field(
        None,
        description="what arcs that repeat one another weigh: first (the one that is listed first counts), sum, max;"
        " none: sum for matrices of your own, else first",
    )
    loops: Loops | None = Field(
        None, description="arcs from a node to itself: drop or keep; none: keep for matrices of your own, else drop"
    )
    order: Name = Field(
        "natural",
        description="numbering of the nodes: natural (the source's), degree, rcm, rabbit, or auto: rabbit where"
        " GNNAdvisor's test says that it pays",
    )
    generator: Name | None = Field(
        None,
        description="the generator that makes a graph under this name; none: the name is that of a data set or of a"
        " generator",
    )
    scale: float | None = Field(None, gt=0, le=16, description="generators: size as a share of the full graph")
    seed: int | None = Field(None, ge=0, le=MAX_INT64, description="generators: seed of the random draws")
    shuffle: bool = Field(False, description="generators: permute the node ids, which hides the communities")
    features: int | None = Field(
        None, ge=1, le=65536, description="generators without labels: columns of random features, to time training"
    )
    classes: int | None = Field(None, ge=2, le=65536, description="with features: classes of random labels")
    source: str | None = Field(
        None,
        pattern=r"^[^{}-][^{}]*$",
        description="files of your own under this name: path of a file or folder, relative to the working folder, or"
        " file:///PATH; no braces, no dash at the front",
    )
    loader: Name | None = Field(
        None,
        description="own files: what reads them (docs/concepts/data.md); none: endings, or the folder itself, say it",
    )
    columns: list[str] = Field(
        default_factory=list,
        description="own tables of edges without a header: what their columns are, in order, for example"
        " [source, target, weight]; ignore: not read",
    )
    column: dict[Role, str | list[str]] = Field(
        default_factory=dict,
        description="own tables: names of columns by what they are, where MGG does not know them, for example"
        " {id: paper, ignore: [title, year]}",
    )
    labels: bool | None = Field(
        None,
        description="own files: nodes have labels, so that models are trained on them; none: only if source is a graph"
        " folder with labels",
    )


class GraphConfig(Section):
    """Stages retrieve and graph."""

    datasets: dict[Name, DatasetConfig] = Field(
        default_factory=lambda: {"digits": DatasetConfig()},
        description="data sets of this run: names of config/datasets.yaml, of generators, or new ones, with options;"
        " none, where embeddings alone are looked up",
    )
    scale: float = Field(
        1.0,
        gt=0,
        le=16,
        description="multiplies the scale of every generator: one number fits a run to a small machine",
    )
    memory: str = Field(
        "4GiB",
        pattern=r"^[0-9.]+ *[A-Za-z]*$",
        description="memory of a job of this stage, or of stage layout, at its peak, for example 1GiB",
    )
    shards: int = Field(1, ge=1, le=1024, description="jobs among which the sorting of one data set is divided")
    describe: bool = Field(
        False,
        description="also find what each graph is like (mgg describe), rabbit order and what it takes among it; needs"
        " the graph in memory",
    )


class PartitionConfig(Section):
    """Stage partition."""

    pes: list[Pes] = Field(default_factory=lambda: [1, 2, 4], min_length=1, description="numbers of PEs to compare")
    scheme: Name = Field(
        "edge_balanced",
        description="edge_balanced: equal arcs for every PE (MGG algorithm 1); equal_nodes: equal nodes;"
        " metis: few arcs between PEs",
    )
    workgroup: int = Field(8, ge=1, description="PEs joined by fast links (GPUs of one host)")
    dim: Dim = Field(64, description="embedding columns for which the quality report states volumes in bytes")
    cover: bool = Field(
        False, description="count V_cover, too: what option split: cover of technique halo moves without workgroups"
    )
    quality_pes: list[Pes] = Field(
        default_factory=lambda: [2, 4, 8, 16, 32],
        description="numbers of PEs whose partitions the report compares, beside those of pes; nothing runs on them",
    )


class AggregateConfig(Section):
    """Stage aggregate: which products are timed."""

    techniques: list[Name] = Field(
        default_factory=lambda: ["mgg", "broadcast", "cola", "halo"],
        description="techniques to compare; auto: the one that the cost model picks; none: nothing is timed",
    )
    dims: list[Dim] = Field(default_factory=lambda: [16, 64], min_length=1, description="embedding columns to compare")
    dtypes: list[Dtype] = Field(
        default=["fp32"],
        min_length=1,
        description="types of the embeddings to compare, fp32 and bf16; techniques that do not take bf16 are left out"
        " there",
    )
    transpose: bool = Field(False, description="time the transposed (backward) product instead of the forward one")
    backend: Backend = Field(
        "auto",
        description="nvshmem: GPUs; mpi: CPU ranks; simulated: threads; auto: ranks of mpiexec or srun and one PE take"
        " nvshmem where there is a GPU for each, else mpi; several PEs without a launcher are simulated",
    )
    threads: Threads = 1
    launches: int = Field(
        3,
        ge=1,
        le=MAX_PRODUCTS,
        description="how often everything is measured, one round after the other, each time on plans prepared anew; the"
        " report stars nothing that has fewer than 3",
    )
    warmup: int = Field(2, ge=0, le=MAX_PRODUCTS, description="products of a launch before the timed ones")
    iterations: int = Field(7, ge=1, le=MAX_PRODUCTS, description="timed products of a launch")
    check: bool = Field(
        True, description="compare every result of the first launch with a float64 product before it is timed"
    )
    options: dict[Name, dict[Name, Scalar | None]] = Field(
        default_factory=dict, description="per technique: its options, for example {mgg: {ps: 32}}"
    )
    variants: dict[Name, Annotated[list[dict[Name, Choice]], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="per technique: sets of options to time one after another, each on top of options; a list of values"
        " stands for each of them, several lists for all combinations: {mgg: [{}, {ps: [2, 4], dist: [1, 8]}]}",
    )
    breakdown: bool = Field(
        False, description="also time each product with its transfers left out, for techniques where that can be done"
    )
    faults: bool = Field(
        False,
        description="also count page faults of GPUs, and the bytes that they move, for techniques over unified memory",
    )
    profile: bool = Field(
        False,
        description="also find occupancy and use of multiprocessors by Nsight Compute (ncu), where there are GPUs",
    )
    emulate_network: NetworkText | None = Field(
        None,
        description="bandwidth and latency that transfers between workgroups are held to, for example 20GB/s,5us"
        " (docs/concepts/emulation.md); a single PE is left as it is; none: nothing is held up",
    )
    latency: bool = Field(
        False,
        description="also time transfers of 0.25 to 8 MiB between PEs, row by row and at once (mgg links --latency),"
        " for each number of partition.pes from 2",
    )


class TuneConfig(Section):
    """Stage tune: settings of technique mgg, for those that take them by its option tune: cached."""

    dims: list[Dim] = Field(
        default_factory=list,
        description="embedding columns to tune technique mgg for, both directions, with aggregate.backend and the"
        " technique's options there; empty: nothing is tuned",
    )


class LookupConfig(Section):
    """Stage lookup: embedding lookups of samples that are generated (docs/concepts/lookup.md)."""

    sides: list[LookupSide] = Field(
        default_factory=list, description="how rows are looked up; none: nothing is looked up"
    )
    pes: list[Pes] = Field(default_factory=lambda: [2], min_length=1, description="numbers of PEs to compare")
    dim: Dim = Field(64, description="columns of the tables")
    batches: list[Annotated[int, Field(ge=1, le=2**24)]] = Field(
        default=[256, 512, 1024, 2048, 4096], min_length=1, description="samples of a batch, all PEs together"
    )
    scale: float = Field(
        1.0, gt=0, le=60, description="rows of each table as a share of those of Criteo's Kaggle challenge"
    )
    samples: int = Field(262_144, ge=1, description="samples that are generated")
    seed: int = Field(0, ge=0, le=MAX_INT64, description="of the generator")
    backend: Backend = Field("auto", description="as of aggregate")
    launches: int = Field(
        3, ge=1, le=MAX_PRODUCTS, description="how often everything is measured, each time on tables prepared anew"
    )
    warmup: int = Field(2, ge=0, le=MAX_PRODUCTS, description="batches of a launch before the timed ones")
    iterations: int = Field(7, ge=1, le=MAX_PRODUCTS, description="timed batches of a launch")
    check: bool = Field(True, description="compare the first batch of each size with float64 sums before it is timed")

    @model_validator(mode="after")
    def _whole_batches(self) -> LookupConfig:
        if max(self.batches) > self.samples:
            raise ValueError(f"batches: one of {max(self.batches)} is more than the {self.samples} samples")
        return self


class TrainConfig(Section):
    """Stage train: every combination of these lists is one run."""

    datasets: list[Name] | None = Field(
        None, description="data sets to train on; none: all that are known to have labels"
    )
    models: list[ModelName] = Field(
        default_factory=lambda: ["gcn"],
        description="models to train: names, or paths of files of your own, relative to the working folder, that end in"
        " .py; results are called by a file's name without .py; no braces, no dash at the front",
    )
    techniques: list[Name] = Field(
        default_factory=lambda: ["halo"],
        min_length=1,
        description="techniques to train with; auto: the one that the cost model picks",
    )
    sides: dict[OtherSide, list[Name]] = Field(
        default_factory=dict,
        description="models to train once more by another side, to compare, by their names: unfused: vertex programs"
        " with a pass over arcs for each value; pyg: PyTorch Geometric, on 1 PE; pyg_csr: its GCN and GIN"
        " by products of CSR matrices; pyg_bmm: its batched R-GCN; pyg_sampled: its GraphSAGE by neighbor sampling; for"
        " example {pyg: [gcn, gat]}",
    )
    pes: list[Pes] = Field(default_factory=lambda: [1, 2], min_length=1, description="numbers of PEs, of partition.pes")
    seeds: list[Annotated[int, Field(ge=0, le=MAX_INT64)]] = Field(
        default_factory=lambda: [0], min_length=1, description="seeds of weights and dropout"
    )
    epochs: int = Field(200, ge=1, le=MAX_EPOCHS, description="passes over the graph")
    backend: Backend = Field(
        "auto",
        description="nvshmem: GPUs; mpi: CPU ranks; simulated: threads; auto: ranks of mpiexec or srun and one PE take"
        " nvshmem where there is a GPU for each, else mpi; several PEs without a launcher are simulated",
    )
    threads: Threads = 1
    dtype: Dtype = Field(
        "fp32", description="type of embeddings and halos; sums and weights are fp32; halo and local take bf16"
    )
    metric: Literal["auto", "accuracy", "micro_f1", "roc_auc"] = Field(
        "auto",
        description="what is scored and picks the best epoch: accuracy for classes; micro_f1 or roc_auc for several"
        " yes-or-no labels a node; auto: accuracy, or for such labels micro_f1, for OGB's data sets roc_auc",
    )
    phases: bool = Field(
        False, description="also record how long aggregations, dense products and communication take in each epoch"
    )
    emulate_network: NetworkText | None = Field(None, description="as of aggregate")
    inference: bool = Field(False, description="also time passes without dropout and gradients, after the last epoch")
    memory_per_pe: str | None = Field(
        None,
        pattern=r"^[0-9.]+ *[A-Za-z]*$",
        description="memory that a PE may take at most, of its GPU or of its host, for example 20GiB; none: what is"
        " free. A training that takes more is refused, or holds its activations otherwise",
    )
    activations: Activations = Field(
        "auto",
        description="what layers keep for the backward pass: keep: all; recompute: their input, and the rest is made"
        " again; host: nothing, but in page-locked host memory, of CPU PEs in mapped files; auto: keep where that fits,"
        " else layer by layer what takes least time",
    )
    checkpoint_every: float = Field(
        60, gt=0, le=MAX_SECONDS, description="seconds of work that a fault may cost: checkpoints are written in time"
    )
    stall_after: float = Field(
        45,
        gt=0,
        le=MAX_SECONDS,
        description="seconds without progress after which a PE is named and the run ends, or ten times the time of"
        " an epoch if that is longer",
    )
    settings: dict[Name, dict[Name, Scalar | None]] = Field(
        default_factory=dict,
        description="per model: settings that replace the published ones, for example {gcn: {hidden: 32}}; files of"
        " your own by their names without .py",
    )
    options: dict[Name, dict[Name, Scalar | None]] = Field(
        default_factory=dict, description="per technique: its options, for example {mgg: {tune: epochs}}"
    )
    dataset_settings: dict[Name, dict[Name, dict[Name, Scalar | None]]] = Field(
        default_factory=dict,
        description="per data set and model: settings on top of those, for example {aifb: {rgcn: {bases: 0}}}",
    )


#: Classes of links that the cost model knows (docs/concepts/costs.md).
LINK_CLASSES = (
    "ram", "hbm", "cache", "shared_memory", "nvlink", "pcie", "qpi", "mpi", "broadcast", "shift", "infiniband",
    "infiniband-hdr", "infiniband-ndr",
)  # fmt: skip


class LinkConfig(Section):
    """What a link takes, in place of what the machine has."""

    latency: float | None = Field(None, ge=0, le=1, description="seconds of a request")
    bandwidth: float | None = Field(None, gt=0, le=1e15, description="bytes a second and PE")
    message: float | None = Field(None, ge=0, le=1, description="seconds of a row beyond its bytes")


class PredictConfig(Section):
    """Predictions by the cost model for numbers of PEs that nothing runs on; the report names them as such."""

    pes: list[Pes] = Field(
        default_factory=list,
        description="numbers of PEs to predict for, for example [8, 64, 1024]; none: no predictions",
    )
    techniques: list[Name] = Field(
        default_factory=lambda: ["mgg", "broadcast_pipelined", "cola", "halo"],
        min_length=1,
        description="techniques to predict",
    )
    variants: dict[Name, Annotated[list[dict[Name, Choice]], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="per technique: sets of options to predict, as aggregate.variants; none: its defaults, for example"
        " {cola: [{}, {fusion: false}]}",
    )
    dims: list[Dim] = Field(default_factory=lambda: [64], min_length=1, description="embedding columns to predict for")
    dtype: Dtype = Field("fp32", description="type of the embeddings")
    machine: str = Field(
        "h200",
        min_length=1,
        description="h200, h100, a100, a800, v100 (docs/concepts/costs.md), or a file that mgg links wrote",
    )
    network: Name | None = Field(
        None, description="class of the link between workgroups (partition.workgroup); none: the machine's own"
    )
    emulate_network: NetworkText | None = Field(
        None, description="bandwidth and latency of what joins workgroups, for example 20GB/s,5us, in place of network"
    )
    links: dict[Name, LinkConfig] = Field(
        default_factory=dict, description="per class of links: values in place of the machine's"
    )

    @model_validator(mode="after")
    def _known_links(self) -> PredictConfig:
        for name in [*self.links, *([self.network] if self.network else [])]:
            if name not in LINK_CLASSES:
                raise ValueError(f"link class {name!r} is unknown; {nearest(name, LINK_CLASSES)}")
        if self.network and self.emulate_network:
            raise ValueError("network and emulate_network both say what joins workgroups: leave one out")
        return self


class ReportConfig(Section):
    """Stage report."""

    title: str = Field("MGG report", min_length=1, description="heading of the page")
    figures: list[Name] = Field(
        default_factory=list, description="figures and tables of the papers that the page sets beside these records"
    )
    notes: dict[Name, str] = Field(
        default_factory=dict, description="per figure: a remark below it, for example why it differs from the paper's"
    )


class Config(Section):
    """A whole run of the workflow."""

    results: str = Field(
        "results",
        pattern=r"^[^{}-][^{}]*$",
        description="folder of all results, relative to the working folder; no braces, no dash at the front",
    )
    experiment: Name | None = Field(
        None,
        description="name of an experiment: its timings, training runs and report lie in a folder of that name under"
        " results, beside those of others; graphs, partitions and layouts are shared",
    )
    graph: GraphConfig = Field(default_factory=GraphConfig)
    partition: PartitionConfig = Field(default_factory=PartitionConfig)
    tune: TuneConfig = Field(default_factory=TuneConfig)
    aggregate: AggregateConfig = Field(default_factory=AggregateConfig)
    lookup: LookupConfig = Field(default_factory=LookupConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    predict: PredictConfig = Field(default_factory=PredictConfig)
    report: ReportConfig = Field(default_factory=ReportConfig)

    @model_validator(mode="after")
    def _something_to_do(self) -> Config:
        if not self.graph.datasets and not self.lookup.sides:
            raise ValueError("graph.datasets: there are none, and lookup.sides names nothing to look up")
        return self

    @model_validator(mode="after")
    def _train_within_graph_and_partition(self) -> Config:
        for name in self.train.datasets or []:
            if name not in self.graph.datasets:
                raise ValueError(
                    f"train.datasets: {name!r} is not in graph.datasets ({', '.join(self.graph.datasets)})"
                )
        for name in self.train.dataset_settings:
            if name not in self.graph.datasets:
                raise ValueError(
                    f"train.dataset_settings: {name!r} is not in graph.datasets; {nearest(name, self.graph.datasets)}"
                )
        names = [PurePath(model).stem if model.endswith(".py") else model for model in self.train.models]
        for side, models in self.train.sides.items():
            for model in models:
                if model not in names:
                    raise ValueError(f"train.sides: {side}: {model!r} is not in train.models; {nearest(model, names)}")
            if models and side != "unfused" and 1 not in self.train.pes:
                raise ValueError(f"train.sides: {side} trains on 1 PE, which is not in train.pes ({self.train.pes})")
        for pes in self.train.pes:
            if self.train.models and pes not in self.partition.pes:
                raise ValueError(f"train.pes: {pes} is not in partition.pes ({self.partition.pes})")
        return self

    @model_validator(mode="after")
    def _something_crosses_networks(self) -> Config:
        workgroup = self.partition.workgroup
        for name, held, numbers in (
            ("aggregate", self.aggregate.emulate_network and self.aggregate.techniques, self.partition.pes),
            ("train", self.train.emulate_network and self.train.models, self.train.pes),
        ):
            within = [pes for pes in numbers if 1 < pes <= workgroup]
            if held and within:
                raise ValueError(
                    f"{name}.emulate_network: {within[0]} PEs are one workgroup of partition.workgroup ({workgroup}),"
                    " so that nothing crosses the network: take a smaller one"
                )
        return self


def validate(values: Mapping[str, Any]) -> Config:
    """Check ``values`` against the schema.

    Raises:
        InputError: a field is wrong; names the first such field, its value and what is allowed.
    """
    return section(Config, values, "config")


def section(kind: type[S], values: Mapping[str, Any], source: str) -> S:
    """Parse ``values``, read from ``source``, as a section of the config; raises InputError as ``validate`` does."""
    return parsed(kind, dict(values), f"{source}: ")


def refuse_repeats(file: Path) -> None:
    """Raise InputError, with the line, if a mapping in a YAML (or JSON) file repeats a key.

    YAML readers silently take the last one. Unreadable files pass here, because those readers report them.
    """
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):  # an alias is the same node object
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            waiting.append(value)
            line, name = key.start_mark.line + 1, (key.tag, str(key.value))
            if name in lines:
                raise InputError(
                    f"{file}: line {line}: {key.value} is there again: line {lines[name]} has it, too, and one alone"
                    " can count"
                )
            lines[name] = line
