# One job per layout times every technique and width, so that a graph is loaded once.
rule aggregate:
    input:
        layout=f"{RESULTS}/layout/{SPLIT}",
        tuned=tuned("aggregate"),
    output:
        report(
            f"{RECORDS}/aggregate/{TIMED}.jsonl",
            caption="../report/aggregate.rst",
            category="aggregate",
            subcategory="records",
            labels={"data set": "{dataset}", "PEs": "{pes}", "place": "{place}"},
        ),
    log:
        f"{RECORDS}/logs/aggregate/{TIMED}.log",
    benchmark:
        f"{RECORDS}/benchmarks/aggregate/{TIMED}.jsonl"
    conda:
        "../../environment.yml"
    threads: SETTINGS.aggregate.threads
    resources:
        mem_mb=memory(multiplied, ranks=True),
        runtime=MINUTES["aggregate"],
        tasks=ranks(SETTINGS.aggregate.backend),
        mpi=mpiexec(SETTINGS.aggregate.backend),
        gpu=gpus(SETTINGS.aggregate.backend),
    params:
        launcher=launcher("aggregate"),
        options=lambda wildcards: aggregate_options(SETTINGS.aggregate)
        + network_options(SETTINGS.aggregate, wildcards.pes),
        # For the caption.
        techniques=",".join(SETTINGS.aggregate.techniques),
        dims=",".join(map(str, SETTINGS.aggregate.dims)),
        dtypes=",".join(SETTINGS.aggregate.dtypes),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg aggregate {input.layout:q} {params.options:q} --replace"
        " --out {output:q} > {log:q} 2>&1"


settle("aggregate", SETTINGS.aggregate.backend)
