# Outputs shared by several rules, and sets of outputs, that `snakemake --report` includes.
from mgg.report.tables.columns import ABOUT
from mgg.report.figures.files import FOLDERS


def graph_folder(made):
    """Return the output with a graph: results/graph/, or results/graph_natural/ before nodes are renumbered."""
    return report(
        directory(f"{RESULTS}/{made}/{GRAPH}"),
        patterns=["{record}.yaml"],
        caption="../report/graph.rst",
        category="graph",
        labels={"data set": "{dataset}", "graph": made},
    )


def table_file(name):
    """Return the output with a table."""
    return report(
        f"{RECORDS}/report/{name}.csv",
        caption="../report/table.rst",
        category="report",
        subcategory="tables",
        labels={"table": name, "one row per": ABOUT[name].removeprefix("one row per ")},
    )


def figures_folder(kind):
    """Return the output with the figures of one kind."""
    return report(
        directory(f"{RECORDS}/report/{FOLDERS[kind]}"),
        patterns=["{figure}.svg"],
        caption=f"../report/figures_{kind}.rst",
        category=kind if kind in ("aggregate", "train") else "report",
        subcategory="figures",
        labels={"figure": "{figure}"},
    )
