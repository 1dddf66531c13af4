rule report:
    input:
        aggregate=expand(
            f"{RESULTS}/aggregate/{{dataset}}/p{{pes}}.jsonl",
            dataset=DATASETS,
            pes=SETTINGS.partition.pes,
        ),
        train=expand(
            f"{RESULTS}/train/{{dataset}}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}",
            dataset=TRAINED,
            model=SETTINGS.train.models,
            technique=SETTINGS.train.techniques,
            pes=SETTINGS.train.pes,
            seed=SETTINGS.train.seeds,
        ),
    output:
        page=report(
            f"{RESULTS}/report/index.html",
            caption="../report/report.rst",
            category="report",
        ),
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
        runtime=10,
    params:
        folder=lambda wildcards, output: Path(output.page).parent,
        title=SETTINGS.report.title,
    shell:
        "mgg report {input:q} --out {params.folder:q} --title {params.title:q} > {log:q} 2>&1"
