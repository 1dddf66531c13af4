# Samples are drawn once; then one job per number of PEs times every side and batch size.
rule samples:
    output:
        directory(f"{RESULTS}/lookup_samples/{PLAN.samples}"),
    log:
        f"{RESULTS}/logs/lookup_samples/{PLAN.samples}.log",
    benchmark:
        f"{RESULTS}/benchmarks/lookup_samples/{PLAN.samples}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=PROCESS_MB,
        runtime=30,
    params:
        options=options.samples_options(SETTINGS.lookup),
    shell:
        "mgg generate criteo-like --out {output:q} {params.options:q} > {log:q} 2>&1"


rule lookup:
    input:
        f"{RESULTS}/lookup_samples/{PLAN.samples}",
    output:
        report(
            f"{RECORDS}/lookup/{PLAN.looked_up}.jsonl",
            caption="../report/lookup.rst",
            category="lookup",
            subcategory="records",
            labels={"samples": "criteo-like", "PEs": "{pes}", "place": "{place}"},
        ),
    log:
        f"{RECORDS}/logs/lookup/{PLAN.looked_up}.log",
    benchmark:
        f"{RECORDS}/benchmarks/lookup/{PLAN.looked_up}.jsonl"
    wildcard_constraints:
        pes=any_of(SETTINGS.lookup.pes),
    conda:
        "../../environment.yml"
    resources:
        mem_mb=REQUESTS.memory(REQUESTS.looked_up, ranks=True),
        runtime=REQUESTS.minutes["lookup"],
    params:
        launcher=LAUNCH.launcher("lookup"),
        options=options.lookup_options(SETTINGS.lookup),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg lookup {input:q} --pes {wildcards.pes:q}"
        " {params.options:q} --replace --out {output:q} > {log:q} 2>&1"


LAUNCH.settle("lookup", SETTINGS.lookup.backend)
