# One job a layout: it times every technique and width, so that a graph is loaded once.
rule aggregate:
    input:
        f"{RESULTS}/layout/{{dataset}}/p{{pes}}",
    output:
        report(
            f"{RECORDS}/aggregate/{{dataset}}/p{{pes}}.jsonl",
            caption="../report/aggregate.rst",
            category="aggregate",
            subcategory="records",
            labels={"data set": "{dataset}", "PEs": "{pes}"},
        ),
    log:
        f"{RECORDS}/logs/aggregate/{{dataset}}/p{{pes}}.log",
    benchmark:
        f"{RECORDS}/benchmarks/aggregate/{{dataset}}/p{{pes}}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=memory(multiplied, ranks=True),
        runtime=MINUTES["aggregate"],
        tasks=ranks(SETTINGS.aggregate.backend),
        mpi=mpiexec(SETTINGS.aggregate.backend),
        gpu=gpus(SETTINGS.aggregate.backend),
    params:
        launcher=launcher("aggregate"),
        techniques=",".join(SETTINGS.aggregate.techniques),
        dims=",".join(map(str, SETTINGS.aggregate.dims)),
        dtypes=",".join(SETTINGS.aggregate.dtypes),
        backend=SETTINGS.aggregate.backend,
        launches=SETTINGS.aggregate.launches,
        warmup=SETTINGS.aggregate.warmup,
        iterations=SETTINGS.aggregate.iterations,
        options=aggregate_options(SETTINGS.aggregate),
    shell:
        "{params.launcher} mgg aggregate {input:q} --technique {params.techniques:q} --dim {params.dims:q}"
        " --dtype {params.dtypes:q} --backend {params.backend:q} --launches {params.launches:q}"
        " --warmup {params.warmup:q} --iterations {params.iterations:q} {params.options:q} --replace"
        " --out {output:q} > {log:q} 2>&1"


settle("aggregate", SETTINGS.aggregate.backend)
