# One job per run. A stopped run resumes from its checkpoint, which is not an output, because Snakemake deletes those.
rule train:
    input:
        layout=f"{RESULTS}/layout/{PLAN.split}",
        tuned=PLAN.tuned("train"),
    output:
        report(
            directory(f"{RECORDS}/train/{PLAN.training}"),
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
        f"{RECORDS}/logs/train/{PLAN.training}.log",
    benchmark:
        f"{RECORDS}/benchmarks/train/{PLAN.training}.jsonl"
    conda:
        "../../environment.yml"
    threads: SETTINGS.train.threads
    resources:
        mem_mb=REQUESTS.memory(REQUESTS.trained, ranks=True),
        runtime=REQUESTS.minutes["train"],
    params:
        model=lambda wildcards, threads: PLAN.model_path(wildcards.model),
        launcher=LAUNCH.launcher("train"),
        checkpoint_every=untracked(SETTINGS.train.checkpoint_every),
        stall_after=untracked(SETTINGS.train.stall_after),
        learner=lambda wildcards: PLAN.learners[wildcards.technique],
        options=lambda wildcards: PLAN.train_options(wildcards.model, wildcards.dataset, wildcards.technique)
        + options.network_options(SETTINGS.train, wildcards.pes),
    shell:
        "env MGG_PLACE={wildcards.place:q} {params.launcher} mgg train {input.layout:q} --model {params.model:q}"
        " {params.learner:q} --seed {wildcards.seed:q} {params.options:q}"
        " --checkpoint-every {params.checkpoint_every:q} --stall-after {params.stall_after:q} --resume"
        " --out {output:q} > {log:q} 2>&1"


LAUNCH.settle("train", SETTINGS.train.backend)
