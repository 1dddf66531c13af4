"""What a figure or table of a paper can be: comparisons of two, of many side by side, sweeps, volumes, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from mgg.schema import Fixed

#: The key of a claim about everything that a paper compares.
ALL = "all"
#: Why CPU cores can tell nothing about a comparison: by what the files call it.
UNTOLD = {
    "same_code": "noise, since CPU cores run the same code for both",
    "same_memory": "no verdict, since on CPU cores both read host memory and no bus lies between",
    "sent_at_once": "noise, since CPU ranks send at once what they would send beside other work",
}


class StandIn(Fixed):
    """The paper's graph that a generated one stands for.

    Attributes:
        name: what papers call it.
        nodes: how many it has.
        arcs: both directions of an undirected edge, as our graphs have them.
        edges: what a paper prints that counts each undirected edge once; 0: none does.
    """

    name: str
    nodes: int
    arcs: int
    edges: int = 0

    @property
    def counted(self) -> str:
        """Its arcs in words, with the number of edges where a paper prints that."""
        return f"{self.arcs:,} arcs" + (f", both directions of {self.edges:,} edges" if self.edges else "")


class Side(Fixed):
    """One side of a comparison.

    Attributes:
        name: what the page calls it.
        technique: the technique.
        options: those of its options that make it this side.
        column: what of a timing counts: ``median``, ``compute`` (without transfers) or ``transfers`` (the rest), of a
            training also ``inference``; or ``gpu_memory``, of which bytes are compared in place of seconds.
        ending: of the names of its data sets, where the sides of a comparison differ in the graph's order.
        trained_by: of trainings, the field ``side`` of their records; a library is its technique, too.
    """

    name: str
    technique: str
    options: Mapping[str, Any] = Field(default_factory=dict)
    column: str = "median"
    ending: str = ""
    trained_by: str = "mgg"


def at(dataset: str, pes: int) -> str:
    """The key of a claim about one graph on so many PEs."""
    return f"{dataset} on {pes}"


def model_on(model: str, dataset: str) -> str:
    """The key of a claim about one model on one graph."""
    return f"{model} on {dataset}"


#: The column of a side of which the memory is compared.
MEMORY = "gpu_memory"
#: The column of a side of which passes without gradients are compared.
INFERENCE = "inference"


class Versus(Fixed):
    """A comparison: the paper's own (``subject``) against what it is compared with (``rival``).

    Attributes:
        subject, rival: the sides.
        claims: the rival's time (or memory) over the subject's in the paper: by data set and PEs (``at``), by
            data set (its stand-in's name), by width (``D=16``), by model and data set (``model_on``), by model, or for
            everything (``ALL``). A file may give ``printed`` and ``columns`` in their place: the paper's rows by such a
            key (by data set, then PEs, too), and which two of a row are the rival's and the subject's.
        slower: where the paper gives no number: whether it calls the rival slower; None: it says nothing about it.
        claimed: what the numbers are: an ``average`` over the paper's graphs, of one ``graph`` each, one of a
            ``table`` of such, a lower ``bound``, the ``most`` over its graphs.
        alike_in_one_workgroup: both sides do the same where all PEs are one workgroup.
        untold_on_cpus: why nothing is learned on CPU cores, as the page says it (files name a key of ``UNTOLD``);
            empty: they may go the paper's way.
    """

    subject: Side
    rival: Side
    claims: Mapping[str, float] = Field(default_factory=dict)
    slower: bool | None = None
    claimed: Literal["average", "graph", "table", "bound", "most"] = "average"
    alike_in_one_workgroup: bool = False
    untold_on_cpus: str = ""

    @model_validator(mode="before")
    @classmethod
    def _divided(cls, values: Any) -> Any:
        """Claims from printed rows."""
        if not isinstance(values, dict) or "printed" not in values:
            return values
        values = dict(values)
        (rival, subject), rows = values.pop("columns"), dict[str, Sequence[float]]()
        for key, row in values.pop("printed").items():
            rows |= {at(key, pes): each for pes, each in row.items()} if isinstance(row, dict) else {key: row}
        return {**values, "claims": {key: row[rival] / row[subject] for key, row in rows.items()}}

    @field_validator("untold_on_cpus")
    @classmethod
    def _in_words(cls, reason: str) -> str:
        if reason and reason not in UNTOLD:
            raise ValueError(f"must be one of {', '.join(UNTOLD)}")
        return UNTOLD.get(reason, "")

    @property
    def memory(self) -> bool:
        """Whether bytes are compared, and not seconds."""
        return self.subject.column == MEMORY

    def claim(self, *keys: str) -> float | None:
        """The paper's number for the first of ``keys`` that it has one for."""
        return next((self.claims[key] for key in (*keys, ALL) if key in self.claims), None)

    def expects_slower(self, claim: float | None) -> bool | None:
        """Whether the paper calls the rival slower; None: it says nothing about it."""
        return self.slower if claim is None else claim > 1


class Sweep(Fixed):
    """Times of several techniques over numbers of PEs or widths.

    Attributes:
        over: what changes along a line.
        sides: the lines.
        single: what stands for all sides on one PE.
        printed: the paper's milliseconds, by data set (its stand-in's name), then by PEs or width, in the order of the
            sides; for all that it prints.
        falls: by side, whether the paper says that two PEs take less time than one.
        steepest: the side whose times the paper says differ most along its line.
    """

    over: Literal["pes", "dim"]
    sides: tuple[Side, ...]
    single: Side | None = None
    printed: Mapping[str, Mapping[int, Sequence[float]]] = Field(default_factory=dict)
    falls: Mapping[str, bool] = Field(default_factory=dict)
    steepest: str = ""


class Volumes(Fixed):
    """Communication volumes of partitions.

    Attributes:
        columns: which, as table quality calls them; the last one is the least, says the paper.
        against: the columns that figures show the last one as a share of.
        pes, workgroup, dim: the paper's; volumes are shown for its width, to which they are proportional.
        printed: the paper's MiB by data set (its stand-in's name), in the order of the columns.
        redundancy: the share of a volume beyond the last column is shown, too.
        doubtful: what the paper should have printed, by data set, in the first column, where its value cannot be.
    """

    columns: tuple[str, ...]
    against: tuple[str, ...]
    pes: int
    workgroup: int
    dim: int
    printed: Mapping[str, Sequence[float]]
    redundancy: bool = False
    doubtful: Mapping[str, float] = Field(default_factory=dict)


class LookedUp(Fixed):
    """Embedding lookups, a side against others.

    Attributes:
        subject, rivals: names of sides.
        printed: the paper's milliseconds of the subject and of what it was compared with.
    """

    subject: str
    rivals: tuple[str, ...]
    printed: tuple[float, float]


class Occupied(Fixed):
    """Occupancy and SM utilization of several sides.

    Attributes:
        sides: the paper's own, what it is compared with, and more of ours.
        gains: by column how much higher the first side's is than the second's in the paper, as a share of the latter.
    """

    sides: tuple[Side, ...]
    gains: Mapping[str, float]


class Transfers(Fixed):
    """Times of transfers by their size.

    Attributes:
        printed: the paper's microseconds by a name of its link and the grain (``fine``, ``coarse``), of 256 KiB and
            each doubling of it.
        beside: by class of our links the paper's link that it stands beside.
    """

    printed: Mapping[str, Mapping[str, Sequence[float]]]
    beside: Mapping[str, str]

    def seconds(self, link: str, grain: str) -> dict[int, float]:
        """The paper's times by size in bytes; none where it has no such link."""
        return {2**18 << n: us * 1e-6 for n, us in enumerate(self.printed.get(link, {}).get(grain, ()))}


class Preparation(Fixed):
    """What it takes to prepare techniques, beside their products.

    Attributes:
        subject, rival: the sides.
        printed: the paper's seconds by data set (its stand-in's name): preparing the subject, preparing the rival, a
            product by the subject, one by the rival.
    """

    subject: Side
    rival: Side
    printed: Mapping[str, tuple[float, float, float, float]]


class Repaid(Fixed):
    """What it takes to renumber a graph beside the epochs of a training, on shuffled and on renumbered nodes.

    Attributes:
        side: whose epochs.
        claim: the paper's share that renumbering has, on average.
        of: what of: one ``epoch``, or the whole ``training``.
    """

    side: Side
    claim: float
    of: Literal["epoch", "training"]


class Experiment(Fixed):
    """A figure or table of a paper, or one of ours.

    Attributes:
        title: heading of its section.
        source: paper, section and figure.
        machine: what the paper measured on; empty: it is ours, or was not measured on one.
        says: what the paper says, in a sentence or two, numbers included.
        versus: the comparisons.
        together: the comparisons are one table, a column a side.
        sweep: times over PEs or widths.
        volumes: volumes of partitions.
        mgg_sweep: it shows ps, dist and wpb swept.
        overlap: it shows whether communication is hidden.
        lookups: it shows embedding lookups.
        transfers: times of transfers by their size.
        faults: the technique over unified memory whose page faults it shows over PEs.
        occupancy: occupancy and SM utilization.
        preparation: what it takes to prepare techniques.
        repaid: what it takes to renumber a graph, and when epochs have repaid it.
        intergroup_bytes: the technique whose bytes between workgroups it shows.
        advisor: what it shows of technique gnnadvisor: times over ``ngs`` or ``dw``, ``picks`` of the Decider beside
            the grid's best, ``atomics`` with and without the leader, the graphs' averaged edge ``span``.
        departs: why GPUs can go another way than the paper, from measurements of ours; shown where they do.
    """

    title: str
    source: str
    machine: str = ""
    says: str
    versus: tuple[Versus, ...] = ()
    together: bool = False
    sweep: Sweep | None = None
    volumes: Volumes | None = None
    mgg_sweep: bool = False
    overlap: bool = False
    lookups: LookedUp | None = None
    transfers: Transfers | None = None
    faults: str = ""
    occupancy: Occupied | None = None
    preparation: Preparation | None = None
    repaid: Repaid | None = None
    intergroup_bytes: str = ""
    advisor: tuple[Literal["ngs", "dw", "picks", "atomics", "span"], ...] = ()
    departs: str = ""


class Foreseen(Fixed):
    """A figure or table of a paper whose hosts or links are not to be had here: it is set beside predictions.

    Attributes:
        title, source, machine, says: as of ``Experiment``.
        methods: the paper's methods and the techniques that stand for them; the last is the paper's own.
        printed: the paper's milliseconds in the order of the methods, by graph (its stand-in's name) and PEs.
        means: by PEs, the paper's geometric means over its graphs of the methods' times over those of its own.
        curves: it is a figure of times over PEs.
    """

    title: str
    source: str
    machine: str = ""
    says: str
    methods: Sequence[Side]
    printed: Mapping[str, Mapping[int, Sequence[float]]]
    means: Mapping[int, Sequence[float]] = Field(default_factory=dict)
    curves: bool = False
