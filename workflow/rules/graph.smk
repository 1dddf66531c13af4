# Three ways to make a graph folder: one job; a generator; or scatter, shards and gather, which a cluster runs in parallel.
# If nodes are renumbered, these make graph_natural/ and the rule order makes graph/ from it.
scattergather:
    shards=SETTINGS.graph.shards,


# For a data set with renumbered nodes, the rule order makes results/graph/.
ruleorder: order > graph > generate > graph_gather


rule graph:
    input:
        PLAN.raw_files,
    output:
        graph_folder("{made}"),
    log:
        f"{RESULTS}/logs/{{made}}/{GRAPH}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{made}}/{GRAPH}.jsonl"
    wildcard_constraints:
        dataset=PLAN.made_by("graph"),
        made="graph|graph_natural",
    conda:
        "../../environment.yml"
    threads: 4
    resources:
        mem_mb=REQUESTS.budgeted(),
        runtime=REQUESTS.minutes["graph"],
    params:
        source=lambda wildcards, threads: PLAN.raw_source(wildcards),
        options=lambda wildcards: options.graph_options(wildcards.dataset, DATASETS[wildcards.dataset]),
        memory=untracked(SETTINGS.graph.memory),
    shell:
        "mgg graph {params.source:q} --out {output:q} {params.options:q} --memory {params.memory:q}"
        " --workers {threads:q} > {log:q} 2>&1"


rule generate:
    output:
        graph_folder("{made}"),
    log:
        f"{RESULTS}/logs/{{made}}/{GRAPH}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{made}}/{GRAPH}.jsonl"
    wildcard_constraints:
        dataset=PLAN.made_by("generate"),
        made="graph|graph_natural",
    conda:
        "../../environment.yml"
    threads: lambda wildcards: 4 if PLAN.streamed(wildcards.dataset) else 1
    resources:
        mem_mb=REQUESTS.generated,
        runtime=REQUESTS.minutes["generate"],
    params:
        generator=lambda wildcards: PLAN.generated[wildcards.dataset],
        options=lambda wildcards: options.generator_options(DATASETS[wildcards.dataset], SETTINGS.graph.scale),
        memory=PLAN.memory_of_generator,
    shell:
        "mgg generate {params.generator:q} --name {wildcards.dataset:q} --out {output:q} {params.options:q}"
        " {params.memory:q} > {log:q} 2>&1"


rule graph_scatter:
    input:
        PLAN.raw_files,
    output:
        temp(directory(f"{RESULTS}/graph_scatter/{GRAPH}")),
    log:
        f"{RESULTS}/logs/graph_scatter/{GRAPH}.log",
    benchmark:
        f"{RESULTS}/benchmarks/graph_scatter/{GRAPH}.jsonl"
    conda:
        "../../environment.yml"
    threads: 4
    resources:
        mem_mb=REQUESTS.budgeted(),
        runtime=REQUESTS.minutes["graph"],
    params:
        source=lambda wildcards, threads: PLAN.raw_source(wildcards),
        options=lambda wildcards: options.graph_options(wildcards.dataset, DATASETS[wildcards.dataset]),
        memory=untracked(SETTINGS.graph.memory),
    shell:
        "mgg graph-scatter {params.source:q} --out {output:q} {params.options:q} --memory {params.memory:q}"
        " --workers {threads:q} > {log:q} 2>&1"


rule graph_shard:
    input:
        f"{RESULTS}/graph_scatter/{GRAPH}",
    output:
        temp(directory(f"{RESULTS}/graph_shard/{GRAPH}/{{scatteritem}}")),
    log:
        f"{RESULTS}/logs/graph_shard/{GRAPH}/{{scatteritem}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/graph_shard/{GRAPH}/{{scatteritem}}.jsonl"
    conda:
        "../../environment.yml"
    threads: 4
    resources:
        mem_mb=REQUESTS.budgeted(),
        runtime=REQUESTS.minutes["graph"],
    params:
        memory=untracked(SETTINGS.graph.memory),
    shell:
        "mgg graph-shard {input:q} --part {wildcards.scatteritem:q} --out {output:q} --memory {params.memory:q}"
        " --workers {threads:q} > {log:q} 2>&1"


rule graph_gather:
    input:
        buckets=f"{RESULTS}/graph_scatter/{GRAPH}",
        shards=gather.shards(f"{RESULTS}/graph_shard/{{{{dataset}}}}@{{{{recipe}}}}/{{scatteritem}}"),
    output:
        graph_folder("{made}"),
    log:
        f"{RESULTS}/logs/{{made}}/{GRAPH}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{made}}/{GRAPH}.jsonl"
    wildcard_constraints:
        dataset=PLAN.made_by("graph_gather"),
        made="graph|graph_natural",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=REQUESTS.memory(lambda size: 50 * size.nodes),
        runtime=REQUESTS.minutes["graph"],
    shell:
        "mgg graph-gather {input.buckets:q} {input.shards:q} --out {output:q} > {log:q} 2>&1"


rule order:
    input:
        f"{RESULTS}/graph_natural/{GRAPH}",
    output:
        graph_folder("graph"),
    log:
        f"{RESULTS}/logs/graph/{GRAPH}.log",
    benchmark:
        f"{RESULTS}/benchmarks/graph/{GRAPH}.jsonl"
    wildcard_constraints:
        dataset=any_of(PLAN.ordered),
    conda:
        "../../environment.yml"
    threads: 4
    resources:
        mem_mb=REQUESTS.budgeted(reordered),
        runtime=REQUESTS.minutes["order"],
    params:
        order=lambda wildcards: DATASETS[wildcards.dataset].order,
        memory=untracked(SETTINGS.graph.memory),
    shell:
        "mgg graph {input:q} --out {output:q} --order {params.order:q} --memory {params.memory:q}"
        " --workers {threads:q} > {log:q} 2>&1"
