"""Figures and tables of CoLa (ICS'25).

Its methods are techniques here: CAGNET is ``broadcast``, the faster of 1D and 1.5D as in the paper; MG-GCN is
``broadcast_pipelined``, MGG is ``mgg``. Printed times are milliseconds (table 11: seconds), printed volumes MiB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from mgg.report.experiments.kinds import (
    SENT_AT_ONCE,
    Experiment,
    Foreseen,
    Side,
    StandIn,
    Sweep,
    Transfers,
    Versus,
    Volumes,
    at,
)

_COLA = "CoLa (ICS'25)"
_HOST = "A800, 8 a host with NVLink"

#: CoLa, table 5, which counts arcs, in millions; all but the first two are web-like graphs with as many nodes. MGG has
#: these two as well, and counts their edges.
STAND_INS = {
    "orkut-like": StandIn("com-Orkut", 3_072_441, 234_370_166, 117_185_083),
    "products-like": StandIn("ogbn-products", 2_449_029, 123_718_280, 61_859_140),
    "livejournal-like": StandIn("com-LiveJournal", 3_997_962, 69_362_378),
    "youtube-like": StandIn("com-Youtube", 1_134_890, 5_975_248),
    "citation2-like": StandIn("ogbl-citation2", 2_927_963, 30_387_995),
    "soc-livejournal-like": StandIn("soc-LiveJournal1", 4_847_571, 68_993_773),
    "pokec-like": StandIn("soc-Pokec", 1_632_803, 30_622_564),
    "stackoverflow-like": StandIn("sx-stackoverflow", 2_601_977, 36_233_450),
}
#: The paper's letters for its graphs.
_CLJ, _COK, _CYT, _CIT = "livejournal-like", "orkut-like", "youtube-like", "citation2-like"
_PRD, _SLJ, _SPK, _SSO = "products-like", "soc-livejournal-like", "pokec-like", "stackoverflow-like"

#: Table 2: V_CG, V_FR, V_FC on 16 GPUs, 32 columns.
_TABLE2 = {
    _CLJ: (7320.49, 2481.61, 835.425),
    _COK: (5625.81, 12964.64, 1723.121),
    _CYT: (2078.05, 271.85, 92.75),
    _CIT: (5361.26, 858.12, 285.828),
    _PRD: (4484.31, 2714.10, 497.932),
    _SLJ: (8876.17, 2681.62, 822.492),
    _SPK: (2989.75, 1491.62, 575.964),
    _SSO: (4764.36, 2910.63, 818.91),
}
#: Table 3: VI_CG, VI_FR, VI_FC, VI_CoLa on 2 hosts of 8 GPUs.
_TABLE3 = {
    _CLJ: (309.65, 1078.84, 421.88, 164.75),
    _COK: (3904.26, 5415.27, 891.75, 306.01),
    _CYT: (1108.29, 124.03, 46.86, 25.77),
    _CIT: (2859.34, 381.14, 132.09, 86.50),
    _PRD: (165.37, 808.43, 195.89, 99.67),
    _SLJ: (2391.63, 1580.39, 436.14, 194.61),
    _SPK: (129.43, 618.48, 281.52, 109.98),
    _SSO: (894.95, 1184.79, 381.87, 140.34),
}
#: What equation 5 gives between the two hosts: 8 of the 15 blocks that a GPU gets come from the other one.
_BETWEEN = {graph: volumes[0] * 8 / 15 for graph, volumes in _TABLE2.items()}
#: Table 4, by link and grain: microseconds of 0.25, 0.5, 1, 2, 4 and 8 MB.
_TABLE4 = {
    ("NVLink", "fine"): (17.13, 18.10, 19.93, 25.55, 29.01, 41.46),
    ("NVLink", "coarse"): (19.00, 23.48, 26.50, 25.69, 32.30, 44.31),
    ("InfiniBand", "fine"): (3607.78, 7477.82, 15414.77, 31248.01, 63377.97, 128245.72),
    ("InfiniBand", "coarse"): (64.47, 79.67, 104.81, 160.20, 274.22, 495.09),
}
#: Table 6: CAGNET, MG-GCN, MGG and CoLa, on 2, 4 and 8 GPUs.
_TABLE6 = {
    _CLJ: {2: (27.44, 8.43, 19.30, 2.70), 4: (22.21, 5.29, 13.16, 1.84), 8: (17.69, 4.91, 9.00, 1.25)},
    _COK: {2: (52.81, 19.18, 46.43, 6.40), 4: (38.72, 10.50, 30.77, 4.60), 8: (21.75, 6.42, 21.74, 3.25)},
    _CYT: {2: (4.62, 1.58, 7.55, 0.48), 4: (3.43, 1.67, 8.14, 0.29), 8: (2.75, 2.78, 8.77, 0.20)},
    _CIT: {2: (13.41, 4.68, 9.02, 1.38), 4: (8.30, 3.41, 5.46, 0.88), 8: (6.80, 3.89, 3.08, 0.60)},
    _PRD: {2: (28.79, 10.76, 20.35, 2.96), 4: (18.14, 6.14, 12.90, 1.79), 8: (13.63, 4.37, 7.32, 1.19)},
    _SLJ: {2: (30.01, 8.98, 20.67, 2.81), 4: (24.17, 5.68, 11.69, 1.91), 8: (19.57, 5.64, 8.72, 1.36)},
    _SPK: {2: (11.97, 3.64, 9.10, 1.20), 4: (9.47, 2.58, 5.66, 0.94), 8: (6.92, 2.86, 3.70, 0.75)},
    _SSO: {2: (15.08, 4.68, 17.57, 1.63), 4: (11.89, 3.23, 14.04, 1.25), 8: (9.24, 3.58, 13.01, 0.99)},
}
#: Table 7: the same on 16, 24 and 32 GPUs.
_TABLE7 = {
    _CLJ: {16: (23.06, 85.52, 715.59, 3.07), 24: (25.31, 96.38, 636.89, 3.53), 32: (29.64, 100.62, 940.76, 3.68)},
    _COK: {16: (25.77, 66.13, 12095.38, 5.90), 24: (25.17, 75.23, 5357.47, 7.30), 32: (27.23, 78.81, 6317.69, 7.87)},
    _CYT: {16: (6.92, 23.57, 420.17, 0.62), 24: (9.15, 27.65, 96.13, 0.71), 32: (12.57, 30.20, 231.85, 0.86)},
    _CIT: {16: (17.16, 62.81, 803.36, 1.65), 24: (19.96, 70.47, 568.43, 1.87), 32: (20.66, 72.84, 636.57, 2.09)},
    _PRD: {16: (15.50, 52.32, 1042.96, 1.96), 24: (17.26, 60.37, 1798.72, 3.01), 32: (20.17, 62.40, 766.68, 2.74)},
    _SLJ: {16: (28.17, 103.09, 7588.86, 3.78), 24: (32.72, 116.13, 734.60, 3.77), 32: (34.42, 122.25, 4252.88, 5.01)},
    _SPK: {16: (9.92, 34.09, 752.78, 2.07), 24: (12.14, 39.24, 637.61, 2.31), 32: (15.22, 42.07, 452.21, 2.46)},
    _SSO: {16: (14.43, 56.13, 1476.79, 2.60), 24: (17.30, 61.58, 746.64, 2.94), 32: (21.17, 66.78, 768.29, 3.13)},
}
#: Table 8: basic, RF, RF+CF, RF+CF+RC, RF+CF+RC+PP on 4 hosts of 8 GPUs.
_TABLE8 = {
    _CLJ: (940.76, 484.45, 19.67, 5.48, 3.68),
    _COK: (6317.69, 721.51, 16.32, 11.07, 7.87),
    _CYT: (231.85, 40.24, 5.66, 1.20, 0.86),
    _CIT: (636.57, 154.09, 14.15, 2.88, 2.09),
    _PRD: (766.68, 280.43, 12.28, 3.91, 2.74),
    _SLJ: (4252.88, 476.86, 23.84, 6.32, 5.01),
    _SPK: (452.21, 236.66, 8.19, 3.79, 2.46),
    _SSO: (768.29, 361.71, 12.87, 4.82, 3.13),
}
#: Table 9: CAGNET, MG-GCN, MGG, CoLa without link-aware steps, CoLa, on 8 V100.
_TABLE9 = {
    _CLJ: (68.01, 109.32, 96.58, 27.86, 14.02),
    _COK: (61.73, 48.34, 446.25, 59.60, 33.14),
    _CYT: (24.31, 20.58, 21.20, 3.44, 2.22),
    _CIT: (48.60, 44.87, 37.25, 10.31, 6.55),
    _PRD: (44.43, 38.06, 87.63, 10.31, 10.04),
    _SLJ: (82.07, 73.00, 138.12, 30.07, 17.91),
    _SPK: (27.53, 25.65, 51.53, 18.66, 9.58),
    _SSO: (47.61, 39.31, 109.32, 23.72, 15.08),
}
#: Table 11, seconds an epoch: CAGNET, MG-GCN, MGG, CoLa on 8 GPUs.
_TABLE11 = {
    _CLJ: (7.04, 2.31, 4.69, 1.12),
    _COK: (9.87, 3.18, 10.74, 1.54),
    _CYT: (7.69, 1.52, 4.43, 0.20),
    _CIT: (3.26, 1.75, 1.68, 0.51),
    _PRD: (5.51, 2.07, 3.79, 0.66),
    _SLJ: (7.99, 2.50, 4.58, 0.93),
    _SPK: (3.21, 1.66, 1.93, 0.52),
    _SSO: (5.82, 1.74, 6.61, 0.68),
}

_SIDES = (
    Side("CAGNET", "broadcast"),
    Side("MG-GCN", "broadcast_pipelined"),
    Side("MGG", "mgg"),
    Side("CoLa", "cola"),
)
_HALO = Side("halo (ours)", "halo")
_FULL = {"fusion": True, "coalesced": True, "pipelined": True}
_STEPS = (
    Side("basic", "mgg"),
    Side("RF", "cola", _FULL | {"fusion": False}),
    Side("RF+CF", "cola", _FULL | {"coalesced": False, "pipelined": False}),
    Side("RF+CF+RC", "cola", _FULL | {"pipelined": False}),
    Side("RF+CF+RC+PP", "cola", _FULL),
)


def _against(
    sides: Sequence[Side], printed: Mapping[str, Sequence[float]], claimed: Literal["graph", "table"] = "table"
) -> tuple[Versus, ...]:
    """Each side against the last one; ``printed``: times by key of a claim, in the order of the sides."""
    *rivals, subject = sides
    claims = [{key: times[n] / times[-1] for key, times in printed.items()} for n in range(len(rivals))]
    return tuple(Versus(subject, rival, each, claimed=claimed) for rival, each in zip(rivals, claims, strict=True))


def _table8() -> tuple[Versus, ...]:
    """All steps against those before; all of CoLa's but the first are about what crosses between workgroups."""
    basic, *steps = _against(_STEPS, _TABLE8)
    without_last = _STEPS[-2]
    return (
        basic,
        *(
            replace(
                step, alike_in_one_workgroup=True, untold_on_cpus=SENT_AT_ONCE if step.rival == without_last else ""
            )
            for step in steps
        ),
    )


def _table10() -> tuple[Versus, ...]:
    """Each method on both orders, then CoLa on either against the others on either; the numbers are geometric means."""
    shuffled, reordered = "-shuffled", "-reordered"
    printed = {
        shuffled: {"CAGNET": (4.76, 4.11), "MG-GCN": (1.92, 2.68), "MGG": (5.23, 3.70)},
        reordered: {"CAGNET": (10.95, 9.46), "MG-GCN": (4.41, 6.16), "MGG": (12.03, 8.50)},
    }
    *rivals, cola = _SIDES
    # Time before over time after: the quotient of two columns of the table, for CoLa of its two lines.
    gains = {name: before / after for name, (before, after) in printed[reordered].items()}
    gains[cola.name] = printed[reordered]["MGG"][0] / printed[shuffled]["MGG"][0]

    def side(each: Side, ending: str) -> Side:
        return Side(f"{each.name}, {ending[1:]}", each.technique, ending=ending)

    orders = [
        Versus(side(cola, mine), side(rival, other), {"": printed[mine][rival.name][n]})
        for mine in (shuffled, reordered)
        for rival in rivals
        for n, other in enumerate((shuffled, reordered))
    ]
    alone = [Versus(side(each, reordered), side(each, shuffled), {"": gains[each.name]}) for each in _SIDES]
    return (*alone, *orders)


_NO_K = "The paper does not say how many columns its embeddings have here; 32 are those of its table 2."

EXPERIMENTS = {
    "cola_table2": Experiment(
        "Volumes of the ways to communicate",
        f"{_COLA}, section 3.1.3, table 2",
        "16 GPUs, 2 hosts of 8; computed for 32 columns",
        "Fetching each needed row once (V_FC) moves the least on every graph. Of a broadcast of all rows (V_CG) 69 % "
        "to 96 % is redundant, of a row an arc (V_FR) 61 % to 87 %.",
        volumes=Volumes(("v_cg", "v_fr", "v_fc"), ("v_cg", "v_fr"), 16, 8, 32, _TABLE2, redundancy=True),
    ),
    "cola_table3": Experiment(
        "Volumes between hosts",
        f"{_COLA}, section 4.1, table 3",
        "2 hosts of 8 GPUs; computed for 32 columns",
        "Between hosts, fetching a row once for each host that needs it (VI_CoLa) moves the least on every graph, 34 % "
        "to 66 % of VI_FC. Six of the eight values printed for VI_CG belong to other rows or to none (they are below "
        "VI_FC, or not 8/15 of V_CG in table 2): what equation 5 gives stands beside them.",
        volumes=Volumes(
            ("vi_cg", "vi_fr", "vi_fc", "vi_cola"),
            ("vi_fr", "vi_fc"),
            16,
            8,
            32,
            _TABLE3,
            doubtful={graph: _BETWEEN[graph] for graph in _TABLE3 if graph not in (_CYT, _CIT)},
        ),
    ),
    "cola_table4": Experiment(
        "Transfers by their size, row by row and at once",
        f"{_COLA}, section 4.1, table 4",
        "A800 with NVLink, InfiniBand between hosts",
        "Over NVLink a get of each row of 128 bytes takes no longer than one transfer of all of them; through the "
        "proxy of InfiniBand it takes 56 times as long at 0.25 MB and 259 times at 8 MB. The table calls its times ms, "
        "but 8 MB in 495 ms would be 17 MB/s: they are microseconds, and stand here as such.",
        transfers=Transfers(
            {key: {2**18 << n: us * 1e-6 for n, us in enumerate(each)} for key, each in _TABLE4.items()},
            {"nvlink": "NVLink", "shared_memory": "NVLink", "mpi": "InfiniBand", "network": "InfiniBand"},
        ),
    ),
    "cola_table6": Experiment(
        "Methods on the GPUs of one host",
        f"{_COLA}, section 6.2.1, table 6",
        f"2, 4 and 8 {_HOST}",
        "CoLa is the fastest on every graph; the geometric means of the others' times over its are, on 2, 4 and 8 "
        "GPUs, 9.66, 10.42 and 10.95 for CAGNET, 3.19, 3.18 and 4.41 for MG-GCN, 8.29, 8.40 and 8.50 for MGG; section "
        "6.2.1 names these two the other way round. The paper reorders its graphs for MGG and CoLa alone, here all "
        f"methods have them in the same order. {_NO_K}",
        (
            *_against(_SIDES, {at(graph, pes): row for graph, rows in _TABLE6.items() for pes, row in rows.items()}),
            Versus(_SIDES[-1], _HALO),
        ),
        together=True,
    ),
    "cola_table8": Experiment(
        "CoLa, step by step",
        f"{_COLA}, section 6.3.1, table 8",
        f"32 {_HOST}, InfiniBand between 4 hosts",
        "Each step takes time off: fetching rows once (RF) instead of once an arc (basic), once a host (CF), in one "
        "message (RC), while the GPUs multiply (PP). Most of it is saved on InfiniBand, which carries single rows "
        "badly; where workgroups are GPUs of one host, no link between them is slow, and the steps have less to save. "
        "There RF and RF+CF fetch rows of other workgroups by loads of their GPUs' memory, which goes on one host "
        "alone; the paper's get them through NVSHMEM, between hosts, too.",
        _table8(),
        together=True,
        between="cola",
    ),
    "cola_table10": Experiment(
        "Reordering the graph by communities",
        f"{_COLA}, section 6.5, table 10",
        f"8 {_HOST}",
        "With Rabbit order CoLa is 2.30 times as fast as without, MGG 1.42 times; CAGNET, which moves all rows "
        "whatever their order, gains little, and MG-GCN loses. Without it CoLa is still the fastest. The paper starts "
        "from the order in which its graphs are published; here nodes are shuffled, which leaves the most to find.",
        _table10(),
        together=True,
    ),
    "cola_table11": Experiment(
        "Training a GCN",
        f"{_COLA}, section 6.6, table 11",
        f"8 {_HOST}; 5-layer GCN, 16 features, 32 hidden columns, 16 outputs",
        "An epoch takes CAGNET 8.88, MG-GCN 3.07 and MGG 6.22 times as long as CoLa, geometric means over eight "
        "graphs. An epoch here ends with an evaluation, a forward pass more; CAGNET is its 1D algorithm. The printed "
        "seconds are 49 to 71 times ten products of table 6, of which an epoch has no more (geometric means of each "
        "method): they cannot be one epoch's, so ratios alone are compared.",
        (*_against(_SIDES, _TABLE11), Versus(_SIDES[-1], _HALO)),
        together=True,
    ),
    "cola_fig3": Experiment(
        "Scaling over the GPUs of one host",
        f"{_COLA}, section 6.4.1, figure 3 (its numbers for 2, 4 and 8 GPUs are those of table 6)",
        f"1 to 8 {_HOST}; cuSPARSE for all methods on one GPU",
        f"From one GPU to two CoLa alone takes less time on every graph; the others take longer. {_NO_K}",
        sweep=Sweep(
            "pes",
            (*_SIDES, _HALO),
            Side("local", "local"),
            _TABLE6,
            {"CAGNET": False, "MG-GCN": False, "MGG": False, "CoLa": True},
        ),
    ),
    "cola_fig5": Experiment(
        "Narrower embeddings",
        f"{_COLA}, section 6.4.2, figure 5 (prints no numbers)",
        f"8 {_HOST}",
        "With fewer columns every method takes less time; CAGNET's depends on them the most.",
        sweep=Sweep("dim", (*_SIDES, _HALO), steepest="CAGNET"),
    ),
}

#: CoLa without link-aware steps: every PE fetches for itself.
_NUMA_SIDES = (*_SIDES[:-1], Side("CoLa_w/o_LA", "cola", {"fusion": False}), _SIDES[-1])
_NOT_OURS = (
    "CAGNET is the faster of 1D and 1.5D in the paper, 1D here; its MG-GCN was extended to several hosts by the "
    "paper's authors; what is predicted are our techniques."
)

_NOT_MONOTONE = (
    "MGG's printed times go down and up again with the number of GPUs (soc-LiveJournal1: 7589, 735 and 4253 ms on 16, "
    "24 and 32)."
)
_HOSTS = "hosts of 8 A800 with NVLink (300 GB/s), joined by InfiniBand (18 GB/s); the paper does not say at which D"

FORESEEN = {
    "cola_table7": Foreseen(
        "CoLa on several hosts, predicted",
        f"{_COLA}, section 6.2.2, table 7",
        _HOSTS,
        "On 16, 24 and 32 GPUs CoLa is 7.10, 23.41 and 400.19 times as fast as CAGNET, MG-GCN and MGG, geometric means "
        "over eight graphs; section 6.2.2 names the last two the other way round than its table does. "
        f"{_NOT_MONOTONE} {_NOT_OURS}",
        _SIDES,
        _TABLE7,
        {16: (7.04, 24.20, 657.72, 1.0), 24: (6.92, 23.44, 285.97, 1.0), 32: (7.36, 22.61, 340.76, 1.0)},
    ),
    "cola_fig4": Foreseen(
        "Scaling over several hosts, predicted",
        f"{_COLA}, section 6.4.1, figure 4 (its times are those of tables 6 and 7)",
        _HOSTS,
        f"From 8 to 32 GPUs all methods fail to scale down, and CoLa stays the fastest. {_NOT_MONOTONE} {_NOT_OURS}",
        _SIDES,
        {graph: {8: _TABLE6[graph][8], **times} for graph, times in _TABLE7.items()},
        curves=True,
    ),
    "cola_table9": Foreseen(
        "CoLa over PCIe and QPI, predicted",
        f"{_COLA}, section 6.3.2, table 9",
        "8 V100 in two NUMA domains of 4, PCIe (20 GB/s) inside them and QPI (12 GB/s) between them",
        "CoLa is 4.48 (4.38 by its own times), 4.09 and 7.77 times as fast as CAGNET, MG-GCN and MGG, and 1.61 times "
        f"as fast as without its link-aware steps, geometric means over eight graphs. {_NOT_OURS}",
        _NUMA_SIDES,
        {graph: {8: times} for graph, times in _TABLE9.items()},
        {8: (4.48, 4.09, 7.77, 1.61, 1.0)},
    ),
}
