# Samples are drawn once; then one job per number of PEs times every side and batch size.
rule samples:
    output:
        directory(f"{RESULTS}/lookup_samples/{SAMPLES}"),
    log:
        f"{RESULTS}/logs/lookup_samples/{SAMPLES}.log",
    benchmark:
        f"{RESULTS}/benchmarks/lookup_samples/{SAMPLES}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=PROCESS_MB,
        runtime=30,
    params:
        options=samples_options(SETTINGS.lookup),
    shell:
        "mgg generate criteo-like --out {output:q} {params.options:q} > {log:q} 2>&1"


rule lookup:
    input:
        f"{RESULTS}/lookup_samples/{SAMPLES}",
    output:
        report(
            f"{RECORDS}/lookup/{LOOKED_UP}.jsonl",
            caption="../report/lookup.rst",
            category="lookup",
            subcategory="records",
            labels={"samples": "criteo-like", "PEs": "{pes}", "place": "{place}"},
        ),
    log:
        f"{RECORDS}/logs/lookup/{LOOKED_UP}.log",
    benchmark:
        f"{RECORDS}/benchmarks/lookup/{LOOKED_UP}.jsonl"
    wildcard_constraints:
        pes=any_of(SETTINGS.lookup.pes),
    conda:
        "../../environment.yml"
    resources:
        mem_mb=memory(looked_up, ranks=True),
        runtime=MINUTES["lookup"],
        tasks=ranks(SETTINGS.lookup.backend),
        mpi=mpiexec(SETTINGS.lookup.backend),
        gpu=gpus(SETTINGS.lookup.backend),
    params:
        launcher=launcher("lookup"),
        options=lookup_options(SETTINGS.lookup),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg lookup {input:q} --pes {wildcards.pes:q}"
        " {params.options:q} --replace --out {output:q} > {log:q} 2>&1"


settle("lookup", SETTINGS.lookup.backend)
