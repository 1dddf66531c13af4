"""Figures and tables of papers that take more hosts, or other links, than can be measured here: set beside predictions.

An overlay, config/experiments/NAME.yaml, predicts what NAME needs and names it in report.figures. ``foreseen_parts``
draws them: every start of the workflow reads the names here, and need not wait for matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mgg.errors import InputError
from mgg.report.experiments import EXPERIMENTS
from mgg.report.experiments.kinds import Side
from mgg.schema import nearest

Printed = Mapping[str, Mapping[int, Sequence[float]]]
Noted = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Foreseen:
    """A figure or table of a paper.

    Attributes:
        title, source, machine, says: as of ``experiments.Experiment``.
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
    printed: Printed
    means: Mapping[int, Sequence[float]] = field(default_factory=dict)
    curves: bool = False


_COLA = "CoLa (ICS'25)"
_OTHERS = Side("CAGNET", "broadcast"), Side("MG-GCN", "broadcast_pipelined"), Side("MGG", "mgg")
_METHODS = (*_OTHERS, Side("CoLa", "cola"))
#: CoLa without link-aware steps: every PE fetches for itself.
_NUMA_METHODS = (*_OTHERS, Side("CoLa_w/o_LA", "cola", {"fusion": False}), Side("CoLa", "cola"))
_A800 = "hosts of 8 A800 with NVLink (300 GB/s), joined by InfiniBand (18 GB/s); the paper does not say at which D"
_LETTERS = (
    "livejournal-like", "orkut-like", "youtube-like", "citation2-like", "products-like", "soc-livejournal-like",
    "pokec-like", "stackoverflow-like",
)  # fmt: skip

#: Table 6, columns of 8 GPUs.
_EIGHT = (
    (17.69, 4.91, 9.00, 1.25), (21.75, 6.42, 21.74, 3.25), (2.75, 2.78, 8.77, 0.20), (6.80, 3.89, 3.08, 0.60),
    (13.63, 4.37, 7.32, 1.19), (19.57, 5.64, 8.72, 1.36), (6.92, 2.86, 3.70, 0.75), (9.24, 3.58, 13.01, 0.99),
)  # fmt: skip
#: Table 7: 16, 24 and 32 GPUs.
_SIXTEEN = (
    (23.06, 85.52, 715.59, 3.07), (25.77, 66.13, 12095.38, 5.90), (6.92, 23.57, 420.17, 0.62),
    (17.16, 62.81, 803.36, 1.65), (15.50, 52.32, 1042.96, 1.96), (28.17, 103.09, 7588.86, 3.78),
    (9.92, 34.09, 752.78, 2.07), (14.43, 56.13, 1476.79, 2.60),
)  # fmt: skip
_TWENTY_FOUR = (
    (25.31, 96.38, 636.89, 3.53), (25.17, 75.23, 5357.47, 7.30), (9.15, 27.65, 96.13, 0.71),
    (19.96, 70.47, 568.43, 1.87), (17.26, 60.37, 1798.72, 3.01), (32.72, 116.13, 734.60, 3.77),
    (12.14, 39.24, 637.61, 2.31), (17.30, 61.58, 746.64, 2.94),
)  # fmt: skip
_THIRTY_TWO = (
    (29.64, 100.62, 940.76, 3.68), (27.23, 78.81, 6317.69, 7.87), (12.57, 30.20, 231.85, 0.86),
    (20.66, 72.84, 636.57, 2.09), (20.17, 62.40, 766.68, 2.74), (34.42, 122.25, 4252.88, 5.01),
    (15.22, 42.07, 452.21, 2.46), (21.17, 66.78, 768.29, 3.13),
)  # fmt: skip
#: Table 9.
_NUMA = (
    (68.01, 109.32, 96.58, 27.86, 14.02), (61.73, 48.34, 446.25, 59.60, 33.14), (24.31, 20.58, 21.20, 3.44, 2.22),
    (48.60, 44.87, 37.25, 10.31, 6.55), (44.43, 38.06, 87.63, 10.31, 10.04), (82.07, 73.00, 138.12, 30.07, 17.91),
    (27.53, 25.65, 51.53, 18.66, 9.58), (47.61, 39.31, 109.32, 23.72, 15.08),
)  # fmt: skip


def _printed(columns: Mapping[int, Sequence[Sequence[float]]]) -> Printed:
    return {name: {pes: rows[n] for pes, rows in columns.items()} for n, name in enumerate(_LETTERS)}


_HOSTS = {16: _SIXTEEN, 24: _TWENTY_FOUR, 32: _THIRTY_TWO}
_NOT_OURS = (
    "CAGNET is the faster of 1D and 1.5D in the paper, 1D here; its MG-GCN was extended to several hosts by the "
    "paper's authors; what is predicted are our techniques."
)

FORESEEN: dict[str, Foreseen] = {
    "cola_table7": Foreseen(
        "CoLa on several hosts, predicted",
        f"{_COLA}, section 6.2.2, table 7",
        _A800,
        "On 16, 24 and 32 GPUs CoLa is 7.10, 23.41 and 400.19 times as fast as CAGNET, MG-GCN and MGG, geometric means "
        f"over eight graphs. {_NOT_OURS}",
        _METHODS,
        _printed(_HOSTS),
        {16: (7.04, 24.20, 657.72, 1.0), 24: (6.92, 23.44, 285.97, 1.0), 32: (7.36, 22.61, 340.76, 1.0)},
    ),
    "cola_fig4": Foreseen(
        "Scaling over several hosts, predicted",
        f"{_COLA}, section 6.4.1, figure 4 (its times are those of tables 6 and 7)",
        _A800,
        f"From 8 to 32 GPUs all methods fail to scale down, and CoLa stays the fastest. {_NOT_OURS}",
        _METHODS,
        _printed({8: _EIGHT} | _HOSTS),
        curves=True,
    ),
    "cola_table9": Foreseen(
        "CoLa over PCIe and QPI, predicted",
        f"{_COLA}, section 6.3.2, table 9",
        "8 V100 in two NUMA domains of 4, PCIe (20 GB/s) inside them and QPI (12 GB/s) between them",
        "CoLa is 4.48 (4.38 by its own times), 4.09 and 7.77 times as fast as CAGNET, MG-GCN and MGG, and 1.61 times "
        f"as fast as without its link-aware steps, geometric means over eight graphs. {_NOT_OURS}",
        _NUMA_METHODS,
        _printed({8: _NUMA}),
        {8: (4.48, 4.09, 7.77, 1.61, 1.0)},
    ),
}


def check_figure(name: str) -> None:
    """Raise InputError with the nearest names for a figure that there is not."""
    known = [*EXPERIMENTS, *FORESEEN]
    if name not in known:
        raise InputError(f"figure {name!r}: unknown; {nearest(name, known)}")


def divided(chosen: Noted) -> tuple[Noted, Noted]:
    """The figures that are measured, and those that are predicted."""
    return [each for each in chosen if each[0] not in FORESEEN], [each for each in chosen if each[0] in FORESEEN]
