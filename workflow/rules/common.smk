# The checked configuration, and helpers shared by the rules.
import glob
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from snakemake.common.configfile import load_configfile
from snakemake.utils import validate

import mgg.config
from mgg import origin
from mgg.backend.choice import enough
from mgg.backend.job import shares_gpus
from mgg.errors import InputError
from mgg.files import keep_others_out
from mgg.graph import user_files
from mgg.graph.budget import parse_size
from mgg.graph.datasets import catalog
from mgg.graph.generators import generators
from mgg.naming import is_own_model, model_name, recipe, short_hash, split_name


def refuse(message, code=2):
    """End snakemake with one line; an exception would print a traceback of this file."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def replace_datasets(values):
    """Replace data sets instead of merging them: an overlay's data sets exclude the demo's.

    An earlier file's settings for other data sets go with them.
    """
    for overlay in workflow.overwrite_configfiles:
        found = load_configfile(overlay)
        graph, train = found.get("graph"), found.get("train")
        if isinstance(graph, dict) and "datasets" in graph:
            values["graph"]["datasets"] = graph["datasets"]
            stated = [graph["datasets"], train.get("dataset_settings") if isinstance(train, dict) else None]
            named = {name for each in stated if isinstance(each, dict) for name in each}
            settings = values["train"].get("dataset_settings") if isinstance(values["train"], dict) else None
            if isinstance(settings, dict):
                values["train"]["dataset_settings"] = {name: each for name, each in settings.items() if name in named}


def read_settings():
    """Check `config` against the schema; an error names the field and what is allowed."""
    try:
        for file in dict.fromkeys(workflow.configfiles) if workflow.is_main_process else ():
            mgg.config.refuse_repeats(Path(file))
        replace_datasets(config)
        settings = mgg.config.validate(config)
        if workflow.is_main_process:
            check_names(settings)
    except InputError as error:
        refuse(error)
    # Read back, because --config passes numbers as text.
    validate(settings.model_dump(mode="json"), "../schemas/config.schema.yaml", set_default=False)
    return settings


def use_own_installation():
    """Without an activated environment, use the mgg and mpiexec of snakemake's own."""
    if shutil.which("mgg") is None:
        os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


def tie_jobs_to_snakemake():
    """Kill the jobs of a killed snakemake, so that none of them writes at the same time as the next run's."""
    if shutil.which("setpriv"):
        shell.prefix("set -euo pipefail; exec setpriv --pdeathsig KILL -- ")


def any_of(names):
    """Return a regular expression for exactly these names; without names it matches nothing."""
    return "|".join(re.escape(str(name)) for name in names) or "(?!)"


def shown_wildcards(wildcards):
    """Return a job's wildcards without those that only separate its outputs from other configs' and places'."""
    return {name: str(value) for name, value in wildcards.items() if name not in ("recipe", "run", "place")}


def ranks(backend):
    """Resource function: the MPI ranks of a job."""
    return lambda wildcards: 1 if backend == "simulated" else int(wildcards.pes)


def mpiexec(backend):
    """Resource function: this host's MPI launcher, none for a single rank. Cluster profiles have their own."""
    return lambda wildcards: "mpiexec" if ranks(backend)(wildcards) > 1 else ""


@cache
def gpus_here():
    """Return how many GPUs of this host jobs can use; asked once, in a subprocess, and only if there is a driver."""
    if not workflow.is_main_process or shutil.which("nvidia-smi") is None:
        return 0
    told = subprocess.run(["mgg", "doctor", "--json"], capture_output=True, text=True, check=False)
    facts = json.loads(told.stdout) if told.returncode == 0 else {}
    usable = str(facts.get("backend nvshmem", "")).startswith("works")
    return sum(bool(re.fullmatch(r"GPU \d+", name)) for name in facts) if usable else 0


def on_gpus(backend, pes):
    """Return whether a local job runs on GPUs: `auto` uses them if there is one per PE, or if they are shared."""
    return backend == "nvshmem" or (backend == "auto" and enough(gpus_here(), pes, shares_gpus()))


def gpus(backend):
    """Resource function: the GPUs of a job: one per PE, all if they are shared, or none. Cluster profiles set it."""

    def number(wildcards):
        pes = int(wildcards.pes)
        if not on_gpus(backend, pes):
            return 0
        return min(pes, gpus_here()) if shares_gpus() else pes

    return number


def warn_of_mixed_devices(settings):
    """Warn of jobs that `auto` leaves to CPU ranks although there are GPUs: their times are not comparable."""
    beyond = [pes for pes in settings.partition.pes if gpus_here() and not on_gpus("auto", pes)]
    if settings.aggregate.backend == "auto" and beyond:
        logger.warning(
            f"partition.pes: on this host with {gpus_here()} GPUs jobs of {', '.join(map(str, beyond))} PEs compute on"
            " CPU cores; the report does not compare them with those on GPUs"
        )


def warn_of_untrained(settings):
    """Report the data sets without training if the config does not name those to train on."""
    if not settings.train.models or settings.train.datasets is not None or not workflow.is_main_process:
        return
    untrained = [name for name in settings.graph.datasets if name not in TRAINED]
    if not untrained:
        return
    ways = {
        "generated graphs get them by `features` and `classes`": any(name in GENERATED for name in untrained),
        "`labels: true` says that own files have them": any(settings.graph.datasets[name].source for name in untrained),
        "`models: []` says that nothing is to be trained": not TRAINED,
    }
    advice = "".join(f"; {way}" for way, fits in ways.items() if fits)
    if TRAINED:
        logger.info(f"train.models: not trained on {', '.join(untrained)}: no labels are known of{advice}")
    else:
        logger.warning(
            f"train.models: nothing is trained: no data set of graph.datasets is known to have labels{advice}"
        )


def warn_of_unused(settings):
    """Report settings that nothing uses: an overlay may have replaced the list with their name."""
    if not workflow.is_main_process:
        return
    train, aggregate = settings.train, settings.aggregate
    models = {model_name(each) for each in train.models}
    techniques = {*aggregate.techniques, *train.techniques}
    given = {"train.settings": (train.settings, models, "train.models")}
    for dataset, settings_of in train.dataset_settings.items():
        given[f"train.dataset_settings: {dataset}"] = settings_of, models, "train.models"
    given["aggregate.variants"] = aggregate.variants, set(aggregate.techniques), "aggregate.techniques"
    if "auto" not in techniques:
        given["aggregate.options"] = aggregate.options, techniques, "aggregate.techniques or train.techniques"
    for field, (names, asked, listed) in given.items():
        if unused := sorted(set(names) - asked):
            logger.warning(f"{field}: {', '.join(unused)}: not in {listed}, so this changes nothing")


def untracked(value):
    """Parameter function: a value that no result depends on. Snakemake never reruns a job for parameters that use threads."""
    return lambda wildcards, threads: value


def flags(**switches):
    """Return the command line flags that are switched on."""
    return [f"--{name.replace('_', '-')}" for name, on in switches.items() if on]


def assignments(values):
    """Return --set key=value for every option."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def generator_options(dataset):
    """Return the options of mgg generate; it keeps its defaults for what the config leaves open."""
    factor = SETTINGS.graph.scale
    scale = dataset.scale if factor == 1 else (dataset.scale or 1.0) * factor
    given = {"--scale": scale, "--seed": dataset.seed, "--features": dataset.features, "--classes": dataset.classes}
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    return words + flags(shuffle=dataset.shuffle)


def streamed(dataset):
    """Return whether a data set's generator stays within graph.memory."""
    return generators()[GENERATED[dataset]].streamed


def memory_of_generator(wildcards, threads):
    """Return the options that no result depends on."""
    return ["--memory", SETTINGS.graph.memory, "--workers", threads] if streamed(wildcards.dataset) else []


def spelled(name, grid):
    """Return a grid of options in the notation of mgg aggregate and mgg predict."""
    from mgg.aggregate import variants

    return variants.spell(name, grid)


def aggregate_options(section):
    """Return the options of mgg aggregate, except for where it runs."""
    words = ["--technique", ",".join(section.techniques), "--dim", ",".join(map(str, section.dims))]
    words += ["--dtype", ",".join(section.dtypes), "--backend", section.backend]
    words += ["--launches", str(section.launches), "--warmup", str(section.warmup)]
    words += ["--threads", str(section.threads)] if section.threads > 1 else []
    words += ["--iterations", str(section.iterations)]
    options = {
        f"{name}.{key}": value
        for name, chosen in section.options.items()
        if name in section.techniques
        for key, value in chosen.items()
    }
    switches = flags(
        transpose=section.transpose,
        no_check=not section.check,
        breakdown=section.breakdown,
        faults=section.faults,
        profile=section.profile,
    )
    return words + switches + assignments(options) + sweep(section)


def latency_options(section):
    """Return the options of mgg links --latency."""
    return ["--latency", "--backend", section.backend]


def network_options(section, pes):
    """Return the network emulation option of a job of stage aggregate or train; none for a single PE."""
    held = section.emulate_network
    return ["--emulate-network", held] if held is not None and int(pes) > 1 else []


def sweep(section):
    """Return --variant for every set of options of a section's techniques."""
    return [
        word
        for name, grids in section.variants.items()
        if name in section.techniques
        for grid in grids
        for word in ("--variant", spelled(name, grid))
    ]


def learners(section):
    """Yield each run, except its seed, as (name in results, model, number of PEs, options)."""
    for model in MODELS:
        for pes in section.pes:
            for technique in section.techniques:
                yield technique, model, pes, ["--technique", technique]
                if model in section.sides.get("unfused", ()):
                    yield f"{technique}-unfused", model, pes, ["--technique", technique, "--side", "unfused"]
            for side, models in section.sides.items():
                if model in models and side != "unfused" and pes == 1:
                    yield side, model, pes, ["--side", side]


def takes_tuned(section):
    """Return whether technique mgg uses tuned settings in stage aggregate or train."""
    sets = [section.options.get("mgg", {}), *getattr(section, "variants", {}).get("mgg", [])]
    asked = [value for each in sets for key, value in each.items() if key == "tune"]
    return "mgg" in section.techniques and any(
        "cached" in (value if isinstance(value, list) else [value]) for value in asked
    )


def tune_options(settings):
    """Return the options of mgg tune: the technique's options for products, except those that are tuned."""
    words = ["--dim", ",".join(map(str, settings.tune.dims)), "--backend", settings.aggregate.backend]
    section = settings.aggregate if takes_tuned(settings.aggregate) else settings.train
    chosen = ("tune", "ps", "dist", "wpb")
    given = {name: value for name, value in section.options.get("mgg", {}).items() if name not in chosen}
    return words + assignments(given)


def tuned(stage):
    """Input function: outputs of stage tune that a job needs in this place, for as many PEs and nodes."""

    def found(wildcards):
        if not (SETTINGS.tune.dims and takes_tuned(getattr(SETTINGS, stage))):
            return []
        if stage == "train" and LEARNERS[wildcards.technique][:2] != ["--technique", "mgg"]:
            return []
        nodes = re.search(r"(-n\d+)?$", wildcards.run)[0]
        told = {**wildcards, "run": short_hash({"options": tune_options(SETTINGS)}) + nodes}
        return [f"{RECORDS}/tune/{TIMED}.json".format(**told)]

    return found


def train_options(section, model, dataset, learner):
    """Return the options of mgg train that a result depends on; defaults are omitted so that older runs stay valid."""
    metric = [] if section.metric == "auto" else ["--metric", section.metric]
    # A job that starts after the user's next change to the file refuses it.
    metric += ["--model-hash", CONTENTS.of_file(OWN_MODELS[model])] if model in OWN_MODELS else []
    words = ["--backend", section.backend, "--epochs", str(section.epochs), "--dtype", section.dtype]
    settings = section.settings.get(model, {}) | section.dataset_settings.get(dataset, {}).get(model, {})
    technique = LEARNERS[learner][1] if LEARNERS[learner][0] == "--technique" else ""
    options = {f"{technique}.{key}": value for key, value in section.options.get(technique, {}).items()}
    # Libraries manage their own activations.
    if "--side" not in LEARNERS[learner] or "unfused" in LEARNERS[learner]:
        words += ["--memory-per-pe", section.memory_per_pe] if section.memory_per_pe else []
        words += ["--activations", section.activations] if section.activations != "auto" else []
        words += ["--threads", str(section.threads)] if section.threads > 1 else []
    return words + assignments(settings | options) + metric + flags(phases=section.phases, inference=section.inference)


def predict_options(section):
    """Return the options of mgg predict."""
    words = ["--technique", ",".join(section.techniques), "--dim", ",".join(map(str, section.dims))]
    words += ["--dtype", section.dtype, "--machine", section.machine]
    fields = [
        word
        for name, link in section.links.items()
        for key, value in link.model_dump(exclude_none=True).items()
        for word in ("--link", f"{name}.{key}={value}")
    ]
    words += ["--emulate-network", section.emulate_network] if section.emulate_network else []
    return words + sweep(section) + fields + (["--network", section.network] if section.network else [])


def what_is_predicted(section):
    """Return everything that predictions depend on besides partitions; for a machine's file, its contents."""
    file = Path(section.machine)
    told = {"options": predict_options(section), "pes": section.pes}
    return told | ({"machine": file.read_text(encoding="utf-8")} if file.is_file() else {})


def samples_options(section):
    """Return the options of mgg generate criteo-like."""
    return ["--scale", str(section.scale), "--seed", str(section.seed), "--samples", str(section.samples)]


def lookup_options(section):
    """Return the options of mgg lookup, except for where it runs."""
    words = ["--sides", ",".join(section.sides), "--dim", str(section.dim)]
    words += ["--batches", ",".join(map(str, section.batches)), "--backend", section.backend]
    words += ["--launches", str(section.launches), "--warmup", str(section.warmup)]
    return words + ["--iterations", str(section.iterations)] + flags(no_check=not section.check)


def report_options(section):
    """Return the optional arguments of mgg report."""
    figures = [word for name in section.figures for word in ("--figure", name)]
    return figures + [word for name, text in section.notes.items() for word in ("--note", f"{name}={text}")]


def made_by(rule_name):
    """Return a regular expression for the data sets that a rule of stage graph makes."""
    chosen = {
        "generate": lambda name: name in GENERATED,
        "graph": lambda name: name not in GENERATED and SETTINGS.graph.shards == 1,
        "graph_gather": lambda name: name not in GENERATED and SETTINGS.graph.shards > 1,
    }
    return any_of(name for name in DATASETS if chosen[rule_name](name))


def trained_datasets(settings):
    """Return the data sets to train on: the config's, or else all with labels."""
    labeled = [name for name, dataset in catalog().items() if dataset.classes or dataset.tasks]
    labeled += [name for name, generator in GENERATED.items() if generators()[generator].labels]
    labeled += [name for name, dataset in settings.graph.datasets.items() if dataset.classes or has_labels(dataset)]
    chosen = settings.train.datasets
    return [name for name in settings.graph.datasets if (name in labeled if chosen is None else name in chosen)]


def recipes(settings):
    """Return the recipe of each data set's graph; other options or files give another folder."""
    scales = {name: settings.graph.scale if name in GENERATED else 1.0 for name in DATASETS}
    contents = {name: CONTENTS.of(dataset.source) if dataset.source else None for name, dataset in DATASETS.items()}
    return {
        name: recipe(name, dataset, scale=scales[name], content=contents[name]) for name, dataset in DATASETS.items()
    }


def known_contents():
    """Return earlier runs' notes on the user's own files; empty without notes."""
    try:
        return json.loads(OWN_FILES.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def has_labels(dataset):
    """Return whether the user's own files have labels, according to the config or else the graph folder."""
    if dataset.source is None or dataset.labels is not None:
        return bool(dataset.labels)
    made = user_files.made(dataset.source)
    return made is not None and bool(made.classes or made.tasks)


keep_others_out()
use_own_installation()
tie_jobs_to_snakemake()
SETTINGS = read_settings()
origin.share(SETTINGS.model_dump(mode="json"))
RESULTS = SETTINGS.results
# Each experiment has its own measurements; graphs, partitions and layouts are shared.
RECORDS = f"{RESULTS}/experiments/{SETTINGS.experiment}" if SETTINGS.experiment else RESULTS
DATASETS = SETTINGS.graph.datasets
# Generator of each generated data set.
GENERATED = {
    name: dataset.generator or name for name, dataset in DATASETS.items() if dataset.generator or name in generators()
}
ORDERED = [name for name, dataset in DATASETS.items() if dataset.order != "natural"]
# Memory request of a job of stage graph: its budget plus overhead that the budget does not count.
GRAPH_MB = parse_size(SETTINGS.graph.memory) * 5 // 4 // 2**20
TRAINED = trained_datasets(SETTINGS)
# Paths of models in the user's own files, by name.
OWN_MODELS = {model_name(model): model for model in SETTINGS.train.models if is_own_model(model)}
MODELS = [model_name(model) for model in SETTINGS.train.models]
OWN_FILES = Path(RESULTS, ".own_files.json").absolute()
# A job's own Snakemake uses the names of the run it belongs to.
CONTENTS = user_files.Contents(known_contents(), trust=not workflow.is_main_process)
RECIPES = recipes(SETTINGS)
# Paths below results folders: a graph, one of its partitions with the layout, and measurements on it.
GRAPH = "{dataset}@{recipe}"
SPLIT = f"{GRAPH}/{split_name(SETTINGS.partition)}/p{{pes}}"
TIMED = f"{{place}}/{SPLIT}-{{run}}"
SAMPLES = f"criteo-like@{short_hash({'options': samples_options(SETTINGS.lookup)})}"
LOOKED_UP = f"{{place}}/{SAMPLES}/p{{pes}}-{{run}}"
LINKED = "{place}/p{pes}-{run}"
TRAINING = f"{{place}}/{GRAPH}/{split_name(SETTINGS.partition)}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}-{{run}}"
# Options of each trainer, by its name in results.
LEARNERS = {name: words for name, _, _, words in learners(SETTINGS.train)}
warn_of_mixed_devices(SETTINGS)
warn_of_untrained(SETTINGS)
warn_of_unused(SETTINGS)


wildcard_constraints:
    dataset=any_of(DATASETS),
    recipe=any_of(RECIPES.values()),
    pes=any_of(SETTINGS.partition.pes),
    model=any_of(MODELS),
    technique=any_of(LEARNERS),
    seed=any_of(SETTINGS.train.seeds),
    place="[^/]+",
    run=r"[0-9a-f]{8}(-n\d+)?",
