# One job per layout times every technique and width, so that a graph is loaded once.
rule aggregate:
    input:
        layout=f"{RESULTS}/layout/{PLAN.split}",
        tuned=PLAN.tuned("aggregate"),
    output:
        report(
            f"{RECORDS}/aggregate/{PLAN.timed}.jsonl",
            caption="../report/aggregate.rst",
            category="aggregate",
            subcategory="records",
            labels={"data set": "{dataset}", "PEs": "{pes}", "place": "{place}"},
        ),
    log:
        f"{RECORDS}/logs/aggregate/{PLAN.timed}.log",
    benchmark:
        f"{RECORDS}/benchmarks/aggregate/{PLAN.timed}.jsonl"
    conda:
        "../../environment.yml"
    threads: SETTINGS.aggregate.threads
    resources:
        mem_mb=REQUESTS.memory(REQUESTS.multiplied, ranks=True),
        runtime=REQUESTS.minutes["aggregate"],
    params:
        launcher=LAUNCH.launcher("aggregate"),
        options=lambda wildcards: options.aggregate_options(SETTINGS.aggregate)
        + options.network_options(SETTINGS.aggregate, wildcards.pes),
        # For the caption.
        techniques=",".join(SETTINGS.aggregate.techniques),
        dims=",".join(map(str, SETTINGS.aggregate.dims)),
        dtypes=",".join(SETTINGS.aggregate.dtypes),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg aggregate {input.layout:q} {params.options:q} --replace"
        " --out {output:q} > {log:q} 2>&1"


LAUNCH.settle("aggregate", SETTINGS.aggregate.backend)
