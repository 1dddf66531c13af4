rule layout:
    input:
        graph=f"{RESULTS}/graph/{GRAPH}",
        partition=f"{RESULTS}/partition/{PLAN.split}",
    output:
        report(
            directory(f"{RESULTS}/layout/{PLAN.split}"),
            patterns=["{record}.yaml"],
            caption="../report/layout.rst",
            category="layout",
            labels={"data set": "{dataset}", "PEs": "{pes}"},
        ),
    log:
        f"{RESULTS}/logs/layout/{PLAN.split}.log",
    benchmark:
        f"{RESULTS}/benchmarks/layout/{PLAN.split}.jsonl"
    conda:
        "../../environment.yml"
    threads: 4
    resources:
        mem_mb=REQUESTS.budgeted(),
        runtime=REQUESTS.minutes["layout"],
    params:
        memory=untracked(SETTINGS.graph.memory),
    shell:
        "mgg layout {input.graph:q} {input.partition:q} --out {output:q} --memory {params.memory:q}"
        " --workers {threads:q} > {log:q} 2>&1"
