from mgg.report.columns import ABOUT
from mgg.report.figure_files import FOLDERS


# `snakemake --report` takes the page along, and as files of their own its tables and figures.
def table(name):
    """The output that holds a table."""
    return report(
        f"{RECORDS}/report/{name}.csv",
        caption="../report/table.rst",
        category="report",
        subcategory="tables",
        labels={"table": name, "a row is": ABOUT[name].removeprefix("one row ")},
    )


def figures(kind):
    """The output that holds the figures of one kind."""
    return report(
        directory(f"{RECORDS}/report/{FOLDERS[kind]}"),
        patterns=["{figure}.svg"],
        caption=f"../report/figures_{kind}.rst",
        category=kind if kind in ("aggregate", "train") else "report",
        subcategory="figures",
        labels={"figure": "{figure}"},
    )


def drawn_kinds():
    """The kinds of figures that this config leads to."""
    yield "jobs"
    yield from ["aggregate"] if SETTINGS.aggregate.techniques else []
    yield from ["train"] if TRAINED and SETTINGS.train.models else []
    yield from ["papers"] if SETTINGS.report.figures else []


rule report:
    input:
        partition=expand(
            f"{RESULTS}/partition/{{dataset}}/p{{pes}}",
            dataset=DATASETS,
            pes=JUDGED,
        ),
        predict=expand(
            f"{RECORDS}/predict/{{dataset}}.jsonl",
            dataset=DATASETS if SETTINGS.predict.pes else [],
        ),
        aggregate=expand(
            f"{RECORDS}/aggregate/{{dataset}}/p{{pes}}.jsonl",
            dataset=DATASETS if SETTINGS.aggregate.techniques else [],
            pes=SETTINGS.partition.pes,
        ),
        train=expand(
            f"{RECORDS}/train/{{dataset}}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}",
            dataset=TRAINED,
            model=SETTINGS.train.models,
            technique=SETTINGS.train.techniques,
            pes=SETTINGS.train.pes,
            seed=SETTINGS.train.seeds,
        ),
    output:
        *[table(name) for name in ABOUT],
        *[figures(kind) for kind in drawn_kinds()],
        page=report(
            f"{RECORDS}/report/index.html",
            caption="../report/page.rst",
            category="report",
            subcategory="page",
            labels={"result": "page"},
        ),
    log:
        f"{RECORDS}/logs/report.log",
    benchmark:
        f"{RECORDS}/benchmarks/report.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
        runtime=10,
    params:
        folder=lambda wildcards, output: Path(output.page).parent,
        title=SETTINGS.report.title,
        figures=report_options(SETTINGS.report),
        jobs=JOBS,
    shell:
        "mgg report {input:q} --out {params.folder:q} --title {params.title:q} {params.figures:q}"
        " --jobs {params.jobs:q} > {log:q} 2>&1"
