"""Kinds of figures and tables in papers: comparisons of two or many sides, sweeps, volumes, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from mgg.schema import Fixed

#: Key of a claim about everything that a paper compares.
ALL = "all"


class StandIn(Fixed):
    """The paper's graph that a generated graph stands for."""

    name: str  # the papers' name
    nodes: int  # number of nodes
    arcs: int  # number of arcs; an undirected edge counts as two, as in our graphs
    edges: int = 0  # the number in papers that count each undirected edge once; 0: none does

    @property
    def counted(self) -> str:
        """Describe the arcs, with the number of edges if a paper prints it."""
        return f"{self.arcs:,} arcs" + (f", both directions of {self.edges:,} edges" if self.edges else "")


class Side(Fixed):
    """One side of a comparison."""

    name: str  # the name on the page
    technique: str  # the technique
    options: Mapping[str, Any] = Field(default_factory=dict)  # the technique's options that define this side
    #: The compared value: of a timing ``median_s``, ``compute_s`` (without transfers) or ``transfers_s`` (the rest);
    #: of a training also ``inference_s``; or ``gpu_memory_bytes``, which compares bytes instead of seconds.
    column: str = "median_s"
    ending: str = ""  # ending of its data sets' names, if the sides differ in the graph's order
    trained_by: str = "mgg"  # for trainings, the records' field ``side``; a library is also its technique


def claim_on(what: str, where: object) -> str:
    """Return the key of a claim about a graph on a number of PEs, or about a model on a graph."""
    return f"{what} on {where}"


#: Columns of a side for comparisons of memory, and of passes without gradients.
MEMORY, INFERENCE = "gpu_memory_bytes", "inference_s"


class Versus(Fixed):
    """A comparison of the paper's own method (``subject``) with another (``rival``)."""

    #: subject, rival: the sides.
    subject: Side
    rival: Side
    #: The rival's time (or memory) over the subject's in the paper: by data set (its stand-in's name) and PEs or by
    #: model and data set (``claim_on``), by data set, by width (``D=16``), by model, or for everything (``ALL``). A
    #: file may give ``printed`` and ``columns`` in their place: the paper's rows by such a key (by data set, then PEs,
    #: too), and which two of a row are the rival's and the subject's.
    claims: Mapping[str, float] = Field(default_factory=dict)
    slower: bool | None = None  # if the paper gives no number, whether it calls the rival slower; None: it does not say
    #: Kind of the numbers: an ``average`` over the paper's graphs, one ``graph`` each, one of a ``table`` of such, a
    #: lower ``bound``, the ``most`` over its graphs.
    claimed: Literal["average", "graph", "table", "bound", "most"] = "average"
    alike_in_one_workgroup: bool = False  # whether both sides do the same if all PEs are one workgroup
    #: Why CPU cores say nothing (``untold`` of page/texts.yaml has the words); empty: they may agree with the paper.
    untold_on_cpus: Literal["", "same_code", "same_memory", "sent_at_once"] = ""

    @model_validator(mode="before")
    @classmethod
    def _divided(cls, values: Any) -> Any:
        """Compute claims from printed rows."""
        if not isinstance(values, dict) or "printed" not in values:
            return values
        values = dict(values)
        (rival, subject), rows = values.pop("columns"), dict[str, Sequence[float]]()
        for key, row in values.pop("printed").items():
            rows |= {claim_on(key, pes): each for pes, each in row.items()} if isinstance(row, dict) else {key: row}
        return {**values, "claims": {key: row[rival] / row[subject] for key, row in rows.items()}}

    @property
    def memory(self) -> bool:
        """Return whether bytes are compared instead of seconds."""
        return self.subject.column == MEMORY

    def claim(self, *keys: str) -> float | None:
        """Return the paper's number for the first of ``keys`` that has one."""
        return next((self.claims[key] for key in (*keys, ALL) if key in self.claims), None)

    def expects_slower(self, claim: float | None) -> bool | None:
        """Return whether the paper calls the rival slower; None: it does not say."""
        return self.slower if claim is None else claim > 1


class Sweep(Fixed):
    """Times of several techniques over numbers of PEs or widths."""

    over: Literal["pes", "dim"]  # the quantity that changes along a line
    sides: tuple[Side, ...]  # the lines
    single: Side | None = None  # the side that stands for all sides on one PE
    #: The paper's milliseconds, by data set (its stand-in's name), then by PEs or width, in the order of the sides;
    #: for all that it prints.
    printed: Mapping[str, Mapping[int, Sequence[float]]] = Field(default_factory=dict)
    #: Per side, whether the paper says that two PEs take less time than one.
    falls: Mapping[str, bool] = Field(default_factory=dict)
    steepest: str = ""  # the side whose times the paper says differ most along its line


class Volumes(Fixed):
    """Communication volumes of partitions."""

    columns: tuple[str, ...]  # columns of table quality; the paper says that the last one is the least
    against: tuple[str, ...]  # columns of which figures show the last one as a share
    #: pes, workgroup, dim: the paper's values; volumes are scaled to its width, as they are proportional to it.
    pes: int
    workgroup: int
    dim: int
    #: The paper's MiB by data set (its stand-in's name), in the order of the columns.
    printed: Mapping[str, Sequence[float]]
    redundancy: bool = False  # also show the share of a volume beyond the last column
    #: Per data set, the value the paper should have printed in the first column, if its own is impossible.
    doubtful: Mapping[str, float] = Field(default_factory=dict)


class LookedUp(Fixed):
    """Embedding lookups: one side against others."""

    #: subject, rivals: names of sides.
    subject: str
    rivals: tuple[str, ...]
    printed: tuple[float, float]  # the paper's milliseconds of the subject and of its rival


class Occupied(Fixed):
    """Occupancy and SM utilization of several sides."""

    sides: tuple[Side, ...]  # the paper's own, its rival, and more of ours
    #: Per column, how much higher the first side is than the second in the paper, as a share of the second.
    gains: Mapping[str, float]


class Transfers(Fixed):
    """Times of transfers by size."""

    #: The paper's microseconds by link name and grain (``fine``, ``coarse``), for 256 KiB and each doubling of it.
    printed: Mapping[str, Mapping[str, Sequence[float]]]
    beside: Mapping[str, str]  # for each class of our links, the paper's link to compare with

    def seconds(self, link: str, grain: str) -> dict[int, float]:
        """Return the paper's times by size in bytes; empty if it has no such link."""
        return {2**18 << n: us * 1e-6 for n, us in enumerate(self.printed.get(link, {}).get(grain, ()))}


class Preparation(Fixed):
    """Time to prepare techniques, compared with their products."""

    #: subject, rival: the sides.
    subject: Side
    rival: Side
    #: The paper's seconds by data set (its stand-in's name): preparing the subject, preparing the rival, a product by
    #: the subject, one by the rival.
    printed: Mapping[str, tuple[float, float, float, float]]


class Repaid(Fixed):
    """Time to renumber a graph, compared with training epochs on shuffled and on renumbered nodes."""

    side: Side  # the side whose epochs count
    claim: float  # the paper's average share of renumbering
    of: Literal["epoch", "training"]  # the share's base: one ``epoch``, or the whole ``training``


class _Figure(Fixed):
    title: str  # heading of its section
    source: str  # paper, section and figure
    machine: str = ""  # the paper's machine; empty: the figure is ours, or was not measured
    says: str  # the paper's statement in a sentence or two, numbers included


class Experiment(_Figure):
    """A figure or table of a paper or of ours."""

    versus: tuple[Versus, ...] = ()  # the comparisons
    together: bool = False  # show the comparisons as one table, one column per side
    sweep: Sweep | None = None  # times over PEs or widths
    volumes: Volumes | None = None  # volumes of partitions
    mgg_sweep: bool = False  # show sweeps of ps, dist and wpb
    overlap: bool = False  # show whether communication is hidden
    lookups: LookedUp | None = None  # embedding lookups
    transfers: Transfers | None = None  # times of transfers by size
    faults: str = ""  # the technique over unified memory whose page faults are shown over PEs
    occupancy: Occupied | None = None  # occupancy and SM utilization
    preparation: Preparation | None = None  # time to prepare techniques
    repaid: Repaid | None = None  # time to renumber a graph, and when epochs have repaid it
    reached: bool = False  # show the time to an accuracy
    intergroup_bytes: str = ""  # the technique whose bytes between workgroups are shown
    #: Views of technique gnnadvisor: times over ``ngs`` or ``dw``; ``picks`` of the Decider and the grid's best;
    #: ``atomics`` with and without the leader; the graphs' averaged edge ``span``.
    advisor: tuple[Literal["ngs", "dw", "picks", "atomics", "span"], ...] = ()
    departs: str = ""  # why GPUs can deviate from the paper, based on our measurements; shown if they do


class Foreseen(_Figure):
    """A figure or table of a paper whose hosts or links are unavailable here; it is compared with predictions."""

    methods: Sequence[Side]  # the paper's methods and the techniques that represent them; the last is the paper's own
    #: The paper's milliseconds in the order of the methods, by graph (its stand-in's name) and PEs.
    printed: Mapping[str, Mapping[int, Sequence[float]]]
    #: Per number of PEs, the paper's geometric means over graphs of each method's time over its own method's.
    means: Mapping[int, Sequence[float]] = Field(default_factory=dict)
    curves: bool = False  # draw times over PEs
