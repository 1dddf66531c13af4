# Predictions of the cost model for numbers of PEs that nothing runs on.
rule predict:
    input:
        lambda wildcards: [OUTPUTS.split_at("partition", wildcards.dataset, pes) for pes in SETTINGS.predict.pes],
    output:
        report(
            f"{RECORDS}/predict/{PLAN.prediction}.jsonl",
            caption="../report/predict.rst",
            category="predict",
            labels={"data set": "{dataset}"},
        ),
    log:
        f"{RECORDS}/logs/predict/{PLAN.prediction}.log",
    benchmark:
        f"{RECORDS}/benchmarks/predict/{PLAN.prediction}.jsonl"
    # Runs on this host, where a second attempt would end like the first.
    retries: 0
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        options=options.predict_options(SETTINGS.predict),
        machine=SETTINGS.predict.machine,  # for the caption
    shell:
        "mgg predict {input:q} {params.options:q} --replace --out {output:q} > {log:q} 2>&1"
