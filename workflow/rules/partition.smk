rule partition:
    input:
        f"{RESULTS}/graph/{GRAPH}",
    output:
        report(
            directory(f"{RESULTS}/partition/{PLAN.split}"),
            patterns=["{record}.json"],
            caption="../report/partition.rst",
            category="partition",
            labels={"data set": "{dataset}", "PEs": "{pes}"},
        ),
    log:
        f"{RESULTS}/logs/partition/{PLAN.split}.log",
    benchmark:
        f"{RESULTS}/benchmarks/partition/{PLAN.split}.jsonl"
    wildcard_constraints:
        pes=any_of(PLAN.partitioned),
    conda:
        "../../environment.yml"
    resources:
        mem_mb=REQUESTS.memory(REQUESTS.partitioned),
        runtime=REQUESTS.minutes["partition"],
    params:
        scheme=SETTINGS.partition.scheme,
        workgroup=SETTINGS.partition.workgroup,
        dim=SETTINGS.partition.dim,
        cover=["--cover"] if SETTINGS.partition.cover else [],
    shell:
        "mgg partition {input:q} --pes {wildcards.pes:q} --scheme {params.scheme:q} --workgroup {params.workgroup:q}"
        " --dim {params.dim:q} {params.cover:q} --out {output:q} > {log:q} 2>&1"
