# One job per layout, if something uses the result: settings of technique mgg, kept in the user's cache folder. The output
# records the result; a job that finds it in the cache's table tries nothing.
rule tune:
    input:
        f"{RESULTS}/layout/{SPLIT}",
    output:
        f"{RECORDS}/tune/{TIMED}.json",
    log:
        f"{RECORDS}/logs/tune/{TIMED}.log",
    benchmark:
        f"{RECORDS}/benchmarks/tune/{TIMED}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=memory(multiplied, ranks=True),
        runtime=MINUTES["tune"],
        tasks=ranks(SETTINGS.aggregate.backend),
        mpi=mpiexec(SETTINGS.aggregate.backend),
        gpu=gpus(SETTINGS.aggregate.backend),
    params:
        launcher=launcher("tune"),
        options=tune_options(SETTINGS),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg tune {input:q} {params.options:q}"
        " --out {output:q} > {log:q} 2>&1"


settle("tune", SETTINGS.aggregate.backend)
