# Predictions of the cost model for numbers of PEs that nothing runs on.
PREDICTION = f"{GRAPH}/{split_name(SETTINGS.partition)}-{short_hash(what_is_predicted(SETTINGS.predict))}"


rule predict:
    input:
        lambda wildcards: [split_at("partition", wildcards.dataset, pes) for pes in SETTINGS.predict.pes],
    output:
        report(
            f"{RECORDS}/predict/{PREDICTION}.jsonl",
            caption="../report/predict.rst",
            category="predict",
            labels={"data set": "{dataset}"},
        ),
    log:
        f"{RECORDS}/logs/predict/{PREDICTION}.log",
    benchmark:
        f"{RECORDS}/benchmarks/predict/{PREDICTION}.jsonl"
    # Runs on this host, where a second attempt would end like the first.
    retries: 0
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        options=predict_options(SETTINGS.predict),
        machine=SETTINGS.predict.machine,  # for the caption
    shell:
        "mgg predict {input:q} {params.options:q} --replace --out {output:q} > {log:q} 2>&1"
