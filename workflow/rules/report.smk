rule report:
    input:
        partition=[OUTPUTS.split_at("partition", dataset, pes) for dataset in DATASETS for pes in PLAN.judged],
        describe=OUTPUTS.descriptions,
        predict=OUTPUTS.predictions,
        aggregate=[here for here, _ in OUTPUTS.timings],
        train=[here for here, _ in OUTPUTS.trainings],
        lookup=[here for here, _ in OUTPUTS.lookups],
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
    # Runs on this host, where a second attempt would end like the first.
    retries: 0
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
        runtime=10,
    params:
        # Results of the same config, shown apart from those measured here.
        elsewhere=[path for _, paths in OUTPUTS.reported for path in paths],
        folder=lambda wildcards, output: Path(output.page).parent,
        title=SETTINGS.report.title,
        figures=options.report_options(SETTINGS.report),
        jobs=JOBS.path,
    shell:
        "mgg report {input:q} {params.elsewhere:q} --out {params.folder:q} --title {params.title:q} {params.figures:q}"
        " --jobs {params.jobs:q} > {log:q} 2>&1"
