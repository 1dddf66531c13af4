rule layout:
    input:
        graph=f"{RESULTS}/graph/{GRAPH}",
        partition=f"{RESULTS}/partition/{SPLIT}",
    output:
        report(
            directory(f"{RESULTS}/layout/{SPLIT}"),
            patterns=["{record}.yaml"],
            caption="../report/layout.rst",
            category="layout",
            labels={"data set": "{dataset}", "PEs": "{pes}"},
        ),
    log:
        f"{RESULTS}/logs/layout/{SPLIT}.log",
    benchmark:
        f"{RESULTS}/benchmarks/layout/{SPLIT}.jsonl"
    conda:
        "../../environment.yml"
    threads: 4
    resources:
        mem_mb=budgeted(),
        runtime=MINUTES["layout"],
    params:
        memory=untracked(SETTINGS.graph.memory),
    shell:
        "mgg layout {input.graph:q} {input.partition:q} --out {output:q} --memory {params.memory:q}"
        " --workers {threads:q} > {log:q} 2>&1"
