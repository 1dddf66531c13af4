rule layout:
    input:
        graph=f"{RESULTS}/graph/{{dataset}}",
        partition=f"{RESULTS}/partition/{{dataset}}/p{{pes}}",
    output:
        report(
            directory(f"{RESULTS}/layout/{{dataset}}/p{{pes}}"),
            patterns=["{record}.yaml"],
            caption="../report/layout.rst",
            category="layout",
            labels={"data set": "{dataset}", "PEs": "{pes}"},
        ),
    log:
        f"{RESULTS}/logs/layout/{{dataset}}/p{{pes}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/layout/{{dataset}}/p{{pes}}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=memory(laid_out),
        runtime=MINUTES["layout"],
    shell:
        "mgg layout {input.graph:q} {input.partition:q} --out {output:q} > {log:q} 2>&1"
