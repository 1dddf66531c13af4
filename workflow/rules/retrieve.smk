rule retrieve:
    output:
        report(
            directory(f"{RESULTS}/retrieve/{{dataset}}"),
            patterns=["{record}.yaml"],
            caption="../report/retrieve.rst",
            category="retrieve",
            labels={"data set": "{dataset}"},
        ),
    log:
        f"{RESULTS}/logs/retrieve/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/retrieve/{{dataset}}.jsonl"
    # Runs on this host, where a second attempt would end like the first.
    retries: 0
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
        runtime=60,
    shell:
        "mgg retrieve {wildcards.dataset:q} --out {output:q} > {log:q} 2>&1"
