"""Figures and tables of MGG (OSDI'23) and of its first version (arXiv, 2022)."""

from __future__ import annotations

from typing import Any

from mgg.report.experiments.kinds import SAME_CODE, SAME_MEMORY, Experiment, LookedUp, Side, StandIn, Versus

_DGX = "DGX-A100: 8 A100 of 40 GB, NVSwitch, CUDA 11.2, NVSHMEM 2.0.3"
_OSDI = "MGG (OSDI'23)"
_DGX_ARXIV = "DGX-A100, CUDA 11.7, NVSHMEM 2.6.0; the paper does not say how many GPUs"
_ARXIV = "MGG (arXiv, 2022)"


def _mgg(name: str, **options: Any) -> Side:
    return Side(name, "mgg", options)


#: MGG (OSDI'23), table 1, which counts each undirected edge of two of them once.
STAND_INS = {
    "reddit-like": StandIn("Reddit", 232_965, 114_615_892),
    "products-like": StandIn("ogbn-products", 2_449_029, 123_718_280, 61_859_140),
    "orkut-like": StandIn("com-Orkut", 3_072_441, 234_370_166, 117_185_083),
    "web-like": StandIn("enwiki-2013", 4_203_323, 202_623_226),
    "proteins-like": StandIn("ogbn-proteins", 132_534, 79_122_504, 39_561_252),
    "it-like": StandIn("it-2004", 41_291_594, 1_150_725_437),
}

_WITH = "MGG"
_WARP = _mgg("warp", primitive="warp")
_WHOLE = Side("whole graph", "local")
_SAMPLED = Side("sampled, in PyG", "pyg_sampled", trained_by="pyg_sampled")
EXPERIMENTS: dict[str, Experiment] = {
    "mgg_fig6": Experiment(
        "Asynchronous remote access",
        f"{_OSDI}, section 5.1, figure 6 (a scheme; the paper does not measure it alone)",
        _DGX,
        "A warp that asks for remote rows and works on its local partition until they arrive takes less time than one "
        "that waits for them; the paper gives no number. Here only primitive direct works on while rows are on their "
        "way over NVLink: NVSHMEM's get of memory that the GPU can address is a copy by the calling threads, done when "
        "it returns (read in the header of NVSHMEM 3.4.5, not profiled).",
        (
            Versus(
                _mgg("asynchronous", asynchronous=True),
                _mgg("synchronous", asynchronous=False),
                slower=True,
                untold_on_cpus=SAME_CODE,
            ),
        ),
        departs="On four H200 waiting takes 0.99 to 1.06 times as long, 1.00 to 1.02 on the skewed graph: 24 warps a "
        "multiprocessor cover for each other's waits, and where NVLink is the limit it does not matter when a warp "
        "waits. By ncu warps spend as many cycles on loads either way; arithmetic (18 % of its peak at most), L2 "
        "(23 %) and HBM (4 %) are not busy. Of a remote partition 4 KiB a warp are on the way beside the local one.",
    ),
    "mgg_fig7": Experiment(
        "MGG against zero-copy memory (DGL)",
        f"{_OSDI}, section 7.1, figure 7",
        f"4 and 8 GPUs of a {_DGX}",
        "DGL, whose GPUs read embeddings in host memory (PyTorch-Direct), is 4.25 times slower than MGG for GCN (2 "
        "layers of 16) and 4.57 times for GIN (5 layers of 64), averaged over seven graphs.",
        (
            Versus(
                Side(_WITH, "mgg"),
                Side("zero-copy", "zero_copy"),
                {"D=16": 4.25, "D=64": 4.57, "gcn": 4.25, "gin": 4.57},
                untold_on_cpus=SAME_MEMORY,
            ),
        ),
    ),
    "mgg_fig8": Experiment(
        "MGG against unified memory (MGG-UVM)",
        f"{_OSDI}, section 7.1, figure 8",
        f"4 and 8 GPUs of a {_DGX}",
        "The same kernel over unified memory is 4.58 times slower for GCN (D = 16) and 5.04 times for GIN (D = 64), "
        "averaged over seven graphs.",
        (
            Versus(
                Side(_WITH, "mgg"),
                Side("unified memory", "mgg_uvm"),
                {"D=16": 4.58, "D=64": 5.04, "gcn": 4.58, "gin": 5.04},
                untold_on_cpus=SAME_CODE,
            ),
        ),
    ),
    "mgg_fig10a": Experiment(
        "Neighbor partitioning",
        f"{_OSDI}, section 7.2, figure 10(a)",
        f"4 GPUs of a {_DGX}; 2 warps a block, interleaved",
        "Without neighbor partitions, each row whole, a product takes 2.26 times as long on average (3.47 in the "
        "paper's first version).",
        (
            Versus(
                _mgg("with partitions", neighbor_partition=True),
                _mgg("without", neighbor_partition=False),
                {"": 2.26},
            ),
        ),
        departs="Partitions balance warps and cost atomic additions. On four H200, at ps 16, they pay where rows are "
        "long and uneven (reddit-like, 492 arcs a row: whole rows took 1.26 to 1.33 times as long); where rows are "
        "short (products-like: 45 arcs) there is little to balance: 0.63 to 1.03 times as long.",
    ),
    "mgg_fig10b": Experiment(
        "Interleaving of local and remote work",
        f"{_OSDI}, section 7.2, figure 10(b)",
        f"{_DGX}; the paper does not say how many of them; ps = 16, 2 warps a block",
        "With local and remote partitions mapped to warps separately a product takes 1.89 times as long on average "
        "(1.32 in the paper's first version).",
        (Versus(_mgg("interleaved", interleave=True), _mgg("separate", interleave=False), {"": 1.89}),),
        departs="Interleaving fills the waits for remote rows with local work. On four H200 separate work took 1.02 to "
        "1.46 times as long; least at D = 16 on graphs with few arcs a row.",
    ),
    "mgg_fig10c": Experiment(
        "Communication primitives",
        f"{_OSDI}, section 7.2, figure 10(c)",
        f"2 GPUs of a {_DGX}; D = 16, ps = 2, dist = 2",
        "Remote rows fetched by a whole warp take the least time; thread-level access is not coalesced, and a block's "
        "threads have to wait for each other. Our default, direct loads of a peer's memory, is not in the paper.",
        (
            Versus(_WARP, _mgg("thread", primitive="thread"), slower=True, untold_on_cpus=SAME_CODE),
            Versus(_WARP, _mgg("block", primitive="block"), slower=True, untold_on_cpus=SAME_CODE),
            Versus(_WARP, _mgg("direct", primitive="direct"), untold_on_cpus=SAME_CODE),
        ),
    ),
    "mgg_fig11": Experiment(
        "The knobs ps, dist and wpb",
        f"{_OSDI}, sections 6 and 7.2, figure 11",
        f"Reddit, 2-layer GCN, on 4 and 8 GPUs of a {_DGX}, and on 4 V100 of a DGX-1",
        "A search that starts at 1, 1, 1 and raises one knob after the other ends near the best setting after about 10 "
        "measurements, and takes up to 68 % off the time of its start (70 % in section 6). Steps of one would not lead "
        "far in so few; here a step leads to the next value that was swept, and 16 settings are tried at most.",
        knobs=True,
    ),
    "mgg_table4": Experiment(
        "Embedding lookup of DLRM",
        f"{_OSDI}, section 7.3, table 4",
        f"4 GPUs of a {_DGX}; Criteo Kaggle; the paper gives neither the batch size nor the columns",
        "Looking up rows of embedding tables and adding them takes 119.66 ms with MGG's kernel and 315.27 ms with "
        "DLRM's own code over NCCL. That one usually has whole tables on a GPU, MGG's splits each by rows: so both "
        "all-to-alls are shown here, of single rows (alltoall) and of sums by table owner (alltoall_tables).",
        lookups=LookedUp("mgg", ("alltoall", "alltoall_tables"), (119.66, 315.27)),
    ),
    "mgg_arxiv_table1": Experiment(
        "Plain one-sided access against unified memory",
        f"{_ARXIV}, section 2.3, table 1",
        _DGX_ARXIV,
        "Reading each remote row where it is needed, with no management of the work, is no gain over unified memory: "
        "0.56 times its speed on Reddit, 1.24 on enwiki-2013, 1.44 on ogbn-products, 0.20 on com-Orkut.",
        (
            Versus(
                Side("direct", "direct"),
                Side("unified memory", "mgg_uvm"),
                {"reddit-like": 0.56, "web-like": 1.24, "products-like": 1.44, "orkut-like": 0.20},
                claimed="graph",
            ),
        ),
    ),
    "mgg_arxiv_fig2": Experiment(
        "Ring forwarding: communication against aggregation",
        f"{_ARXIV}, section 2.1, figure 2",
        _DGX_ARXIV,
        "In a layer that forwards blocks of embeddings around a ring with NCCL, moving data can take more than 5 times "
        "as long as aggregating them, on Reddit and enwiki-2013. Here aggregation is the time of the same launches "
        "with the transfers left out, and communication is what remains of the whole product's time.",
        (
            Versus(
                Side("aggregation", "ring", column="compute"),
                Side("communication", "ring", column="transfers"),
                {"": 5.0},
                claimed="bound",
            ),
        ),
    ),
    "mgg_table3": Experiment(
        "The whole graph against neighbor sampling",
        f"{_OSDI}, section 7.3, table 3",
        f"8 GPUs of a {_DGX}",
        "Trained on the whole graph, a model reaches 0.957 on Reddit and 0.825 on ogbn-proteins, by sampling 0.937 and "
        "0.776; an epoch takes 1.07 and 1.25 times as long. The paper names neither model nor samples. Here both are "
        "GraphSAGE on one GPU, in batches of 512 with 25 and 10 neighbors where sampled; a sampled epoch takes many "
        "steps, one of the whole graph a single one, so epochs alone say nothing of the time to an accuracy: the "
        "curves do.",
        (
            Versus(_WHOLE, _SAMPLED, {"reddit-like": 1 / 1.07, "proteins-like": 1 / 1.25}, claimed="table"),
            Versus(_WHOLE, Side("whole graph in PyG", "pyg", trained_by="pyg"), slower=True),
        ),
        together=True,
    ),
}
