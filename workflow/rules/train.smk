# One job per run. A stopped run resumes from its checkpoint, which is not an output, because Snakemake deletes those.
rule train:
    input:
        layout=f"{RESULTS}/layout/{SPLIT}",
        tuned=tuned("train"),
    output:
        report(
            directory(f"{RECORDS}/train/{TRAINING}"),
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
                "place": "{place}",
                "file": "{record}",
            },
        ),
    log:
        f"{RECORDS}/logs/train/{TRAINING}.log",
    benchmark:
        f"{RECORDS}/benchmarks/train/{TRAINING}.jsonl"
    conda:
        "../../environment.yml"
    threads: SETTINGS.train.threads
    resources:
        mem_mb=memory(trained, ranks=True),
        runtime=MINUTES["train"],
        tasks=ranks(SETTINGS.train.backend),
        mpi=mpiexec(SETTINGS.train.backend),
        gpu=gpus(SETTINGS.train.backend),
    params:
        model=lambda wildcards, threads: os.path.expanduser(OWN_MODELS.get(wildcards.model, wildcards.model)),
        launcher=launcher("train"),
        checkpoint_every=untracked(SETTINGS.train.checkpoint_every),
        stall_after=untracked(SETTINGS.train.stall_after),
        learner=lambda wildcards: LEARNERS[wildcards.technique],
        options=lambda wildcards: train_options(
            SETTINGS.train, wildcards.model, wildcards.dataset, wildcards.technique
        )
        + network_options(SETTINGS.train, wildcards.pes),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg train {input.layout:q} --model {params.model:q}"
        " {params.learner:q} --seed {wildcards.seed:q} {params.options:q}"
        " --checkpoint-every {params.checkpoint_every:q} --stall-after {params.stall_after:q} --resume"
        " --out {output:q} > {log:q} 2>&1"


settle("train", SETTINGS.train.backend)
