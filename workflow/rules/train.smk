# One job a run. A run that was stopped goes on from its checkpoint, which is no output: Snakemake deletes those.
rule train:
    input:
        f"{RESULTS}/layout/{{dataset}}/p{{pes}}",
    output:
        report(
            directory(f"{RECORDS}/train/{{dataset}}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}"),
            patterns=["{record,run}.json", "{record,metrics}.jsonl", "{record,predictions}.parquet"],
            caption="../report/train.rst",
            category="train",
            subcategory="records",
            labels={
                "data set": "{dataset}",
                "model": "{model}",
                "technique": "{technique}",
                "PEs": "{pes}",
                "seed": "{seed}",
                "file": "{record}",
            },
        ),
    log:
        f"{RECORDS}/logs/train/{{dataset}}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}.log",
    benchmark:
        f"{RECORDS}/benchmarks/train/{{dataset}}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}.jsonl"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=memory(trained, ranks=True),
        runtime=MINUTES["train"],
        tasks=ranks(SETTINGS.train.backend),
        mpi=mpiexec(SETTINGS.train.backend),
        gpu=gpus(SETTINGS.train.backend),
    params:
        launcher=launcher("train"),
        backend=SETTINGS.train.backend,
        epochs=SETTINGS.train.epochs,
        dtype=SETTINGS.train.dtype,
        checkpoint_every=SETTINGS.train.checkpoint_every,
        stall_after=SETTINGS.train.stall_after,
        settings=lambda wildcards: train_options(SETTINGS.train, wildcards.model),
    shell:
        "{params.launcher} mgg train {input:q} --model {wildcards.model:q} --technique {wildcards.technique:q}"
        " --backend {params.backend:q} --epochs {params.epochs:q} --seed {wildcards.seed:q} {params.settings:q}"
        " --dtype {params.dtype:q} --checkpoint-every {params.checkpoint_every:q} --stall-after {params.stall_after:q}"
        " --resume --out {output:q} > {log:q} 2>&1"


settle("train", SETTINGS.train.backend)
