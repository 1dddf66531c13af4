"""The summary at the top of the report: what was compared, what came out, and what to be careful about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mgg.records import METRIC_NAMES
from mgg.report.page.parts import read, say
from mgg.report.papers import volumes
from mgg.report.tables.compute import GRAPH, SETTING, Rows, group, shared, sound
from mgg.report.tables.numbers import count, listing, span
from mgg.report.tables.spread import undecided


class Finding(NamedTuple):
    """A sentence and its topic."""

    topic: str
    text: str


#: With more graphs than this, findings are summed up instead of listed.
MOST = 4
#: Why no epoch time is called the fastest.
ONE_LAUNCH = "A training is one launch, of unknown spread: none is starred."

Tables = dict[str, Rows]


class Answer(NamedTuple):
    """A reader's question, its short answer, the findings behind it, and cautions."""

    question: str
    answer: str
    findings: list[Finding]
    cautions: Sequence[str] = ()


def answers(tables: Tables, everything: Tables) -> list[Answer]:
    """Answer what ran, what won and whether to trust it; ``everything`` also has the settings left off the page."""
    aggregate, training = tables["aggregate"], tables["training"]
    ran = [count(len(everything["aggregate"]), "timing")] if aggregate else []
    ran += [count(len(training), "training")] if training else []
    ran += [] if ran else [count(len(tables["quality"]) or len(tables["graphs"]), "record")]
    kinds = {"timings": everything["aggregate"], "runs": training}
    kinds["splits"] = [row for row in tables["quality"] if row["pes"] > 1]
    what = [Finding("", say(kind, rows)) for kind, rows in kinds.items() if rows]
    found = [Answer("What ran", listing(ran), what)]
    if aggregate or training:
        care, checks = cautions(tables), tables["checks"]
        judged = any(row["passed"] + row["failed"] for row in checks)
        right = [Finding("Correct results", say("right", checks))] if judged else []
        every = sum(row[name] for row in checks for name in ("passed", "failed", "unchecked"))
        trusted = [f"{sum(row['passed'] for row in checks)} of {every} results right"] if checks else []
        trusted.append(count(len(care), "caution") if care else "no cautions")
        found += [_won(tables), Answer("Can I trust it", ", ".join(trusted), right, care)]
    return found


def _won(tables: Tables) -> Answer:
    """Return the technique with the most stars, how many comparisons have none and why, products and epochs."""
    fastest, (faster, products) = tables["fastest"], _products(tables["aggregate"])
    several = [row for row in fastest if row["pes"] > 1]
    wins = Counter(row["label"] for row in several if not row["unstarred"])
    reasons = Counter(row["unstarred"] for row in several if row["unstarred"])
    ranked = sorted(wins.items(), key=lambda each: (-each[1], each[0]))
    first, close = list[Finding](), list[Finding]()
    if ranked:
        first.append(Finding("Fastest in these runs", say("winners", several, ranked)))
    if reasons:
        close.append(Finding("Not told apart", say("undecided", several, reasons)))
    elif fastest and not several:
        text = "With 1 PE alone no technique moves anything, so these times name no fastest technique."
        close.append(Finding("Fastest in these runs", text))
    answer = f"{ranked[0][0]}, in {ranked[0][1]} of {len(several)}" if ranked else "No technique stands out"
    answer = answer if several else "Nothing to compare on several PEs"
    more = [*products, *close] if faster else [*close, *products]
    return Answer("What won", answer, [*first, *more, *_epochs(tables["accuracy"])])


def others(tables: Tables) -> list[Finding]:
    """Return the other findings from the tables."""
    return [*_bytes(tables["aggregate"]), *_accuracy(tables["accuracy"]), *_splits(tables["quality"])]


def cautions(tables: Tables) -> list[str]:
    """Return cautions on why the numbers may mean less than they seem to."""
    machines, rows = tables["machines"], [*tables["aggregate"], *tables["training"]]
    beyond = [row for row in rows if row["oversubscribed"]]
    on = {row["machine"] for row in beyond}
    on_gpus = {row["graph_hash"] for row in rows if row["device"] == "GPUs"}
    mixed = [row for row in rows if row["device"] != "GPUs" and row["graph_hash"] in on_gpus]
    numbers = {"beyond": {row["pes"] for row in beyond}, "mixed": {row["pes"] for row in mixed}}
    unchecked, failed = (sum(row[name] for row in tables["checks"]) for name in ("unchecked", "failed"))
    words = {
        **{name: listing([str(pes) for pes in sorted(many)]) if many else "" for name, many in numbers.items()},
        "machines": len(machines) if len(machines) > 1 else "",
        "cores": say("capacities", [row for row in machines if row["machine"] in on]),
        "threads": any(row["device"] == "CPU threads" for row in rows),
        "cpus": any(row["device"] != "GPUs" for row in rows),
        "unchecked": count(unchecked, "timing") if unchecked else "",
        "failed": count(failed, "result") if failed else "",
    }
    return [text.format_map(words) for name, text in read("texts")["cautions"].items() if words[name]]


def _products(aggregate: Rows) -> tuple[bool, list[Finding]]:
    """Return whether a product on several PEs was faster than all on 1 PE, and the fastest, or why none was."""
    ones = group((row for row in sound(aggregate) if row["pes"] == 1), *SETTING, "dim")
    rows = [
        row | {"ones": ones[tuple(row[column] for column in (*SETTING, "dim"))]}
        for row in sound(aggregate)
        if row["speedup"] and row["pes"] > 1
    ]
    if not rows:
        return False, []
    honest = sorted((row for row in rows if not row["oversubscribed"]), key=lambda row: -row["speedup"])
    faster = [row for row in honest if row["speedup"] > 1 and not undecided(row, *row["ones"])]
    best = next(iter(faster or honest), None)
    why = undecided(best, *best["ones"]) if best else ""
    text = say("products", best, bool(faster), why, shared(rows))
    return bool(faster), [Finding("Products on several PEs", text)]


def _epochs(accuracy: Rows) -> list[Finding]:
    """Compare epochs on several PEs with those on 1 PE over all techniques, largest ratios first."""
    told, beyond = [], []
    columns = (*GRAPH, "machine", "device", "dtype", "scheme", "model_label", "metric")
    for rows in group(accuracy, *columns).values():
        ones = [row["epoch_s"] for row in rows if row["pes"] == 1]
        several = [row for row in rows if row["pes"] > 1]
        honest = [row for row in several if not row["oversubscribed"]]
        if ones and honest:
            best = min(honest, key=lambda row: (row["epoch_s"], row["pes"]))
            told.append((min(ones) / best["epoch_s"], min(ones), best))
        elif ones:
            beyond += several
    if not told and not beyond:
        return []
    told.sort(key=lambda each: -each[0])
    text = say("epochs", told[:MOST], [each[0] for each in told[MOST:]], shared(beyond))
    return [Finding("Epochs on several PEs", text)]


def _bytes(aggregate: Rows) -> list[Finding]:
    rows = [row for row in aggregate if row["pes"] > 1]
    if not rows:
        return []
    moved: dict[str, list[str]] = {name: [] for name in read("texts")["moved"]}
    for (label,), found in group(rows, "label").items():
        equal = set.intersection(*(set(row["equal_volumes"].split(", ")) for row in found))
        less = "<" if all(row["bytes_wire"] < row["v_fc"] for row in found) else ""
        moved[next((name for name in ("V_FC", "V_FR", "V_CG") if name in equal), less)].append(label)
    parts = [f"{listing(moved[name])} moved {text}" for name, text in read("texts")["moved"].items() if moved[name]]
    ratios = [row["v_cg"] / row["v_fc"] for row in rows if row["v_fc"]]
    return [Finding("Bytes on the wire", say("moved", parts, ratios, volumes.between_told(rows)))]


def _accuracy(accuracy: Rows) -> list[Finding]:
    graphs = group(accuracy, "graph", "metric")
    if len(graphs) > MOST:
        told = [_told(rows) for rows in graphs.values()]
        text = say("accuracies", [row for rows in told for row in rows], sum(len(rows) > 1 for rows in told))
        return [Finding(f"Accuracy on {len(graphs)} graphs", text)]
    return [
        Finding(f"Accuracy on {graph}", say("accuracy", _told(rows), len(rows) > 1, METRIC_NAMES[metric]))
        for (graph, metric), rows in graphs.items()
    ]


def _told(rows: Rows) -> Rows:
    """Return the run best on the validation nodes; without such nodes all runs, since test nodes must not choose."""
    known = [row for row in rows if row["validation_mean"] is not None]
    best = max(known, key=lambda row: (row["validation_mean"], row["model_label"], -row["pes"]), default=None)
    return [best] if best else rows


def _splits(quality: Rows) -> list[Finding]:
    found = []
    graphs = group((row for row in quality if row["v_fc"]), "graph")
    if len(graphs) > MOST:
        pes = max(row["pes"] for rows in graphs.values() for row in rows)
        shares = [100 * row["v_fc"] / row["v_cg"] for rows in graphs.values() for row in rows if row["pes"] == pes]
        return [Finding(f"Splitting {len(graphs)} graphs", f"{pes} PEs: V_FC is {span(shares)} % of V_CG.")]
    for (graph,), rows in graphs.items():
        most = [row for row in rows if row["pes"] == max(each["pes"] for each in rows)]
        best = min(most, key=lambda row: (row["v_fc"], row["scheme"], row["workgroup"], row["dim"]))
        rivals = [row for row in most if row["dim"] == best["dim"] and row["v_fc"] > best["v_fc"]]
        found.append(Finding(f"Splitting {graph}", say("split", best, rivals)))
    return found
