rule graph:
    input:
        f"{RESULTS}/retrieve/{{dataset}}",
    output:
        directory(f"{RESULTS}/graph/{{dataset}}"),
    log:
        f"{RESULTS}/logs/graph/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/graph/{{dataset}}.jsonl"
    wildcard_constraints:
        dataset=any_of(name for name in DATASETS if name not in GENERATED),
    conda:
        "../../environment.yml"
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        flags=lambda wildcards: flags(symmetrize=DATASETS[wildcards.dataset].symmetrize),
    shell:
        "mgg graph {input:q} --out {output:q} {params.flags:q} > {log:q} 2>&1"


rule generate:
    output:
        directory(f"{RESULTS}/graph/{{dataset}}"),
    log:
        f"{RESULTS}/logs/graph/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/graph/{{dataset}}.jsonl"
    wildcard_constraints:
        dataset=any_of(GENERATED),
    conda:
        "../../environment.yml"
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        options=lambda wildcards: generator_options(DATASETS[wildcards.dataset]),
    shell:
        "mgg generate {wildcards.dataset:q} --out {output:q} {params.options:q} > {log:q} 2>&1"
