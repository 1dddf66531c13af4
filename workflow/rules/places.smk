# This config's outputs, and where its timings and trainings run; other options or places give other outputs.
from itertools import product


def split_at(stage, dataset, pes):
    """Return the folder of a partition or layout."""
    return f"{RESULTS}/{stage}/{SPLIT}".format(dataset=dataset, recipe=RECIPES[dataset], pes=pes)


def measured(rulename, pattern, words, **values):
    """Return the output of a job that runs on PEs, and the outputs of the same job in other places.

    `words` are its options, which its output's name depends on.
    """
    wildcards = Wildcards(fromdict={name: str(value) for name, value in values.items()})
    run, nodes = short_hash({"options": words}), NODES[rulename](wildcards)
    told = {**values, "recipe": RECIPES[values["dataset"]]} if "dataset" in values else values
    here = pattern.format(**told, place=PLACES[rulename](wildcards), run=run if nodes == 1 else f"{run}-n{nodes}")
    # A training's checkpoints are next to it.
    before, between, after = pattern.format(**told, place="\0", run="\0").split("\0")
    name = rf"{re.escape(before)}[^/]+{re.escape(between)}{run}(-n\d+)?{re.escape(after)}"
    anywhere = glob.glob(f"{glob.escape(before)}*{glob.escape(between)}{run}*{glob.escape(after)}")
    return here, sorted(path for path in anywhere if path != here and re.fullmatch(name, path))


def timings():
    """Return the output of each job of stage aggregate, and its results in other places."""
    words = aggregate_options(SETTINGS.aggregate)
    cases = product(DATASETS if SETTINGS.aggregate.techniques else [], SETTINGS.partition.pes)
    pattern = f"{RECORDS}/aggregate/{TIMED}.jsonl"
    return [
        measured("aggregate", pattern, words + network_options(SETTINGS.aggregate, pes), dataset=dataset, pes=pes)
        for dataset, pes in cases
    ]


def latencies():
    """Return the same for the jobs that measure links, which have no data set."""
    words = latency_options(SETTINGS.aggregate)
    numbers = [pes for pes in SETTINGS.partition.pes if SETTINGS.aggregate.latency and pes > 1]
    return [measured("links", f"{RECORDS}/links/{LINKED}.jsonl", words, pes=pes) for pes in numbers]


def trainings():
    """Return the same for stage train."""
    train = SETTINGS.train
    pattern, runs = f"{RECORDS}/train/{TRAINING}", [run[:3] for run in learners(train)]
    return [
        measured(
            "train",
            pattern,
            train_options(train, model, dataset, name) + network_options(train, pes),
            dataset=dataset,
            model=model,
            technique=name,
            pes=pes,
            seed=seed,
        )
        for dataset, (name, model, pes), seed in product(TRAINED, runs, train.seeds)
    ]


def tunings():
    """Return the same for stage tune; a training that uses its output runs in the same place."""
    if not SETTINGS.tune.dims:
        return []
    pattern = f"{RECORDS}/tune/{TIMED}.json"
    cases = product(DATASETS, SETTINGS.partition.pes)
    return [measured("tune", pattern, tune_options(SETTINGS), dataset=dataset, pes=pes) for dataset, pes in cases]


def lookups():
    """Return the same for stage lookup."""
    words, pattern = lookup_options(SETTINGS.lookup), f"{RECORDS}/lookup/{LOOKED_UP}.jsonl"
    return [measured("lookup", pattern, words, pes=pes) for pes in SETTINGS.lookup.pes if SETTINGS.lookup.sides]


def descriptions():
    """Return the output of each job of stage describe."""
    names = DATASETS if SETTINGS.graph.describe else []
    return [f"{RECORDS}/describe/{GRAPH}.jsonl".format(dataset=name, recipe=RECIPES[name]) for name in names]


def predictions():
    """Return the output of each job of stage predict."""
    names = DATASETS if SETTINGS.predict.pes else []
    return [f"{RECORDS}/predict/{PREDICTION}.jsonl".format(dataset=name, recipe=RECIPES[name]) for name in names]


TIMINGS, TRAININGS, LOOKUPS = (
    (latencies() + timings(), trainings(), lookups()) if workflow.is_main_process else ([], [], [])
)
TUNINGS = tunings() if workflow.is_main_process else []
MEASURED = [*TIMINGS, *TRAININGS, *LOOKUPS]
