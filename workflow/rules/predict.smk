# What the cost model says for numbers of PEs that nothing runs on.
rule predict:
    input:
        expand(f"{RESULTS}/partition/{{{{dataset}}}}/p{{pes}}", pes=SETTINGS.predict.pes),
    output:
        report(
            f"{RECORDS}/predict/{{dataset}}.jsonl",
            caption="../report/predict.rst",
            category="predict",
            labels={"data set": "{dataset}"},
        ),
    log:
        f"{RECORDS}/logs/predict/{{dataset}}.log",
    benchmark:
        f"{RECORDS}/benchmarks/predict/{{dataset}}.jsonl"
    # It runs on this host, where a second attempt finds what the first one found.
    retries: 0
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        techniques=",".join(SETTINGS.predict.techniques),
        dims=",".join(map(str, SETTINGS.predict.dims)),
        dtype=SETTINGS.predict.dtype,
        machine=SETTINGS.predict.machine,
        options=predict_options(SETTINGS.predict),
    shell:
        "mgg predict {input:q} --technique {params.techniques:q} --dim {params.dims:q} --dtype {params.dtype:q}"
        " --machine {params.machine:q} {params.options:q} --replace --out {output:q} > {log:q} 2>&1"
