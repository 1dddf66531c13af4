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
        *[table_file(name) for name in ABOUT],
        *[figures_folder(kind) for kind in FOLDERS],
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
    # It runs on this host, where a second attempt finds what the first one found.
    retries: 0
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
