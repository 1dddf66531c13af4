# One job per layout, if something uses the result: settings of technique mgg, kept in the user's cache folder. The output
# records the result; a job that finds it in the cache's table tries nothing.
rule tune:
    input:
        f"{RESULTS}/layout/{PLAN.split}",
    output:
        f"{RECORDS}/tune/{PLAN.timed}.json",
    log:
        f"{RECORDS}/logs/tune/{PLAN.timed}.log",
    benchmark:
        f"{RECORDS}/benchmarks/tune/{PLAN.timed}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=REQUESTS.memory(REQUESTS.multiplied, ranks=True),
        runtime=REQUESTS.minutes["tune"],
    params:
        launcher=LAUNCH.launcher("tune"),
        options=options.tune_options(SETTINGS),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg tune {input:q} {params.options:q}"
        " --out {output:q} > {log:q} 2>&1"


LAUNCH.settle("tune", SETTINGS.aggregate.backend)
