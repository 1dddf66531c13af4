# Transfer times by size between the PEs of a job; no graph is involved.
rule links:
    output:
        report(
            f"{RECORDS}/links/{LINKED}.jsonl",
            caption="../report/links.rst",
            category="links",
            labels={"PEs": "{pes}", "place": "{place}"},
        ),
    log:
        f"{RECORDS}/logs/links/{LINKED}.log",
    benchmark:
        f"{RECORDS}/benchmarks/links/{LINKED}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=lambda wildcards: PROCESS_MB + RANK_MB * int(wildcards.pes),
        runtime=10,
    params:
        launcher=LAUNCH.launcher("links"),
        options=options.latency_options(SETTINGS.aggregate),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg links {params.options:q} --pes {wildcards.pes:q} --replace"
        " --out {output:q} > {log:q} 2>&1"


LAUNCH.settle("links", SETTINGS.aggregate.backend)
