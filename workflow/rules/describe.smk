# Properties of each graph, if graph.describe asks for them; only the report reads them.
rule describe:
    input:
        f"{RESULTS}/graph/{GRAPH}",
    output:
        report(
            f"{RECORDS}/describe/{GRAPH}.jsonl",
            caption="../report/describe.rst",
            category="describe",
            labels={"data set": "{dataset}"},
        ),
    log:
        f"{RECORDS}/logs/describe/{GRAPH}.log",
    benchmark:
        f"{RECORDS}/benchmarks/describe/{GRAPH}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=REQUESTS.budgeted(reordered),
        runtime=REQUESTS.minutes["order"],
    params:
        memory=untracked(SETTINGS.graph.memory),
    shell:
        "mgg describe {input:q} --memory {params.memory:q} --replace --out {output:q} > {log:q} 2>&1"
