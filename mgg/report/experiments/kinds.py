"""What a figure or table of a paper can be: comparisons of two, of many side by side, sweeps, volumes, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


class StandIn(NamedTuple):
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


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: what the page calls it.
        technique: the technique.
        options: those of its options that make it this side.
        column: what of a timing counts: ``median``, ``compute`` (without transfers) or ``transfers`` (the rest); or
            ``gpu_memory``, of which bytes are compared in place of seconds.
        ending: of the names of its data sets, where the sides of a comparison differ in the graph's order.
        trained_by: of trainings, the field ``side`` of their records; a library is its technique, too.
    """

    name: str
    technique: str
    options: Mapping[str, Any] = field(default_factory=dict)
    column: str = "median"
    ending: str = ""
    trained_by: str = "mgg"


def at(dataset: str, pes: int) -> str:
    """The key of a claim about one graph on so many PEs."""
    return f"{dataset} on {pes}"


#: The column of a side of which the memory is compared.
MEMORY = "gpu_memory"
#: Why CPU cores can tell nothing about a comparison.
SAME_CODE = "noise, since CPU cores run the same code for both"
SAME_MEMORY = "no verdict, since on CPU cores both read host memory and no bus lies between"
SENT_AT_ONCE = "noise, since CPU ranks send at once what they would send beside other work"


@dataclass(frozen=True)
class Versus:
    """A comparison: the paper's own (``subject``) against what it is compared with (``rival``).

    Attributes:
        subject, rival: the sides.
        claims: the rival's time (or memory) over the subject's in the paper: by data set and PEs (``at``), by
            data set (its stand-in's name), by width (``D=16``), by model, or for all (key ``""``).
        slower: where the paper gives no number: whether it calls the rival slower; None: it says nothing about it.
        claimed: what the numbers are: an ``average`` over the paper's graphs, of one ``graph`` each, one of a
            ``table`` of such, a lower ``bound``, the ``most`` over its graphs.
        alike_in_one_workgroup: both sides do the same where all PEs are one workgroup.
        untold_on_cpus: why nothing is learned on CPU cores, as the page says it; empty: they may go the paper's way.
    """

    subject: Side
    rival: Side
    claims: Mapping[str, float] = field(default_factory=dict)
    slower: bool | None = None
    claimed: Literal["average", "graph", "table", "bound", "most"] = "average"
    alike_in_one_workgroup: bool = False
    untold_on_cpus: str = ""

    @property
    def memory(self) -> bool:
        """Whether bytes are compared, and not seconds."""
        return self.subject.column == MEMORY

    def claim(self, *keys: str) -> float | None:
        """The paper's number for the first of ``keys`` that it has one for."""
        return next((self.claims[key] for key in (*keys, "") if key in self.claims), None)

    def expects_slower(self, claim: float | None) -> bool | None:
        """Whether the paper calls the rival slower; None: it says nothing about it."""
        return self.slower if claim is None else claim > 1


@dataclass(frozen=True)
class Sweep:
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
    printed: Mapping[str, Mapping[int, Sequence[float]]] = field(default_factory=dict)
    falls: Mapping[str, bool] = field(default_factory=dict)
    steepest: str = ""


@dataclass(frozen=True)
class Volumes:
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
    doubtful: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LookedUp:
    """Embedding lookups, a side against others.

    Attributes:
        subject, rivals: names of sides.
        printed: the paper's milliseconds of the subject and of what it was compared with.
    """

    subject: str
    rivals: tuple[str, ...]
    printed: tuple[float, float]


@dataclass(frozen=True)
class Transfers:
    """Times of transfers by their size.

    Attributes:
        printed: the paper's seconds by size in bytes, by a name of its link and the grain (``fine``, ``coarse``).
        beside: by class of our links the paper's link that it stands beside.
    """

    printed: Mapping[tuple[str, str], Mapping[int, float]]
    beside: Mapping[str, str]


@dataclass(frozen=True)
class Experiment:
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
        knobs: it shows ps, dist and wpb swept.
        hidden: it shows whether communication is hidden.
        lookups: it shows embedding lookups.
        transfers: times of transfers by their size.
        between: the technique whose bytes between workgroups it shows.
        advisor: what it shows of technique gnnadvisor: times over ``ngs`` or ``dw``, ``picks`` of the Decider beside
            the grid's best, ``atomics`` with and without the leader, the graphs' averaged edge ``span``.
        departs: why GPUs can go another way than the paper, from measurements of ours; shown where they do.
    """

    title: str
    source: str
    machine: str
    says: str
    versus: tuple[Versus, ...] = field(default_factory=tuple)
    together: bool = False
    sweep: Sweep | None = None
    volumes: Volumes | None = None
    knobs: bool = False
    hidden: bool = False
    lookups: LookedUp | None = None
    transfers: Transfers | None = None
    between: str = ""
    advisor: tuple[Literal["ngs", "dw", "picks", "atomics", "span"], ...] = ()
    departs: str = ""


@dataclass(frozen=True)
class Foreseen:
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
    machine: str
    says: str
    methods: Sequence[Side]
    printed: Mapping[str, Mapping[int, Sequence[float]]]
    means: Mapping[int, Sequence[float]] = field(default_factory=dict)
    curves: bool = False
