# Partitions for more PEs than any run uses are only for the report: judging them needs no run.
JUDGED = list(dict.fromkeys([*SETTINGS.partition.pes, *SETTINGS.partition.quality_pes]))
PARTITIONED = list(dict.fromkeys([*JUDGED, *SETTINGS.predict.pes]))


rule partition:
    input:
        f"{RESULTS}/graph/{GRAPH}",
    output:
        report(
            directory(f"{RESULTS}/partition/{SPLIT}"),
            patterns=["{record}.json"],
            caption="../report/partition.rst",
            category="partition",
            labels={"data set": "{dataset}", "PEs": "{pes}"},
        ),
    log:
        f"{RESULTS}/logs/partition/{SPLIT}.log",
    benchmark:
        f"{RESULTS}/benchmarks/partition/{SPLIT}.jsonl"
    wildcard_constraints:
        pes=any_of(PARTITIONED),
    conda:
        "../../environment.yml"
    resources:
        mem_mb=memory(partitioned),
        runtime=MINUTES["partition"],
    params:
        scheme=SETTINGS.partition.scheme,
        workgroup=SETTINGS.partition.workgroup,
        dim=SETTINGS.partition.dim,
        cover=["--cover"] if SETTINGS.partition.cover else [],
    shell:
        "mgg partition {input:q} --pes {wildcards.pes:q} --scheme {params.scheme:q} --workgroup {params.workgroup:q}"
        " --dim {params.dim:q} {params.cover:q} --out {output:q} > {log:q} 2>&1"
