"""Figures of GNNAdvisor (OSDI'21). Its rivals are of 2020: for PyTorch Geometric today's stands, DGL is not run."""

from __future__ import annotations

from typing import Any

from mgg.report.experiments.kinds import SAME_CODE, Experiment, Side, StandIn, Sweep, Versus

_PAPER = "GNNAdvisor (OSDI'21)"
_P6000 = "Quadro P6000 of 24 GB"
_NAME = "gnnadvisor"

#: Table 1, which counts both directions; generated graphs with as many nodes or arcs.
STAND_INS = {
    "amazon-like": StandIn("amazon0505", 410_236, 4_878_875),
}


def _with(name: str, ending: str = "", **options: Any) -> Side:
    return Side(name, _NAME, options, ending=ending)


EXPERIMENTS: dict[str, Experiment] = {
    "gnna_fig10": Experiment(
        "Training beside PyTorch Geometric",
        f"{_PAPER}, section 7.3, figure 10",
        f"{_P6000}; PyTorch Geometric of 2020; means of 200 epochs",
        "An epoch of GCN (2 layers of 16) takes PyTorch Geometric 1.78 times as long as GNNAdvisor, one of GIN (5 "
        "layers of 64) 2.13 times, averaged over fifteen graphs. Here PyTorch Geometric is today's, with 64-bit ids; "
        "the kernel is GNNAdvisor's with fixed parameters and sums in order, all else of an epoch is ours.",
        (
            Versus(
                Side("GNNAdvisor's kernel", _NAME),
                Side("PyG", "pyg", trained_by="pyg"),
                {"gcn": 1.78, "gin": 2.13},
            ),
        ),
    ),
    "gnna_fig12a": Experiment(
        "Neighbor partitioning: arcs of a group",
        f"{_PAPER}, section 7.4, figure 12(a)",
        _P6000,
        "Time falls as groups grow, since threads have more to do and there are fewer atomics, until a group is as "
        "much as a thread can take (ngs = 32 on artist); beyond, it rises. No numbers are printed.",
        advisor=("ngs",),
    ),
    "gnna_fig12b": Experiment(
        "Dimension partitioning: workers of a group",
        f"{_PAPER}, section 7.4, figure 12(b)",
        _P6000,
        "From 1 to 16 dimension workers time falls, by more than it does over the size of groups; from 16 to 32 it "
        "hardly changes. No numbers are printed.",
        advisor=("dw",),
    ),
    "gnna_fig12c": Experiment(
        "Renumbering nodes by communities",
        f"{_PAPER}, sections 5.1 and 7.4, figure 12(c)",
        f"{_P6000}; GCN and GIN on five graphs",
        "Rabbit order makes GCN up to 1.74 and GIN up to 1.49 times as fast, and takes 40.62 % and 42.33 % off the "
        "bytes of DRAM on average, which are not counted here. The paper starts from the order in which "
        "its graphs are published; here nodes are shuffled first, which leaves the most to find.",
        (
            Versus(
                _with("reordered", "-reordered"),
                _with("shuffled", "-shuffled"),
                {"D=16": 1.74, "D=64": 1.49},
                claimed="most",
            ),
        ),
        advisor=("span",),
    ),
    "gnna_fig12d": Experiment(
        "The leader of a block",
        f"{_PAPER}, sections 5.2 and 7.4, figure 12(d)",
        f"{_P6000}; three large graphs",
        "Block-level optimization, the warp-aligned mapping included, takes 47.85 % off the atomics and 57.93 % off "
        "the bytes of DRAM on average, which are not counted here; the paper prints no times.",
        (
            Versus(
                _with("leader", leader=True),
                _with("every group writes", leader=False),
                slower=True,
                untold_on_cpus=SAME_CODE,
            ),
        ),
        advisor=("atomics",),
    ),
    "gnna_fig13a": Experiment(
        "Columns of the hidden layers",
        f"{_PAPER}, section 7.5, figure 13(a)",
        _P6000,
        "Time grows with the columns of the hidden layers, as there is more to add and to move; the paper times whole "
        "models and prints no numbers. Here a product is timed, beside technique local.",
        sweep=Sweep("dim", (Side("gnnadvisor", _NAME), Side("local", "local"))),
    ),
    "gnna_fig14": Experiment(
        "The Decider's picks beside the whole grid",
        f"{_PAPER}, sections 6 and 7.5, figure 14",
        f"{_P6000} and Tesla V100; amazon0505 and soc-BlogCatalog, GCN and GIN",
        "The paper's marks lie at the least time of ngs and dw on all four of its settings; it prints no times. As "
        "printed, the Decider takes ngs = 1024 at D = 16, which figure 12(a) calls too much.",
        advisor=("picks", "ngs"),
    ),
}
