"""The checked configuration, and what follows from it: data sets, recipes, trainings, and the paths of results."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from snakemake.common.configfile import load_configfile
from snakemake.io import ancient

from mgg.config import Config, DatasetConfig, refuse_repeats, validate
from mgg.errors import InputError
from mgg.graph import user_files
from mgg.graph.datasets import catalog
from mgg.graph.generators import generators
from mgg.naming import is_own_model, model_name, recipe, short_hash, split_name
from mgg.workflow import options, refuse
from mgg.workflow.checks import check_names

#: Paths below results folders.
GRAPH = "{dataset}@{recipe}"
LINKED = "{place}/p{pes}-{run}"


def any_of(names: Iterable[Any]) -> str:
    """Return a regular expression for exactly these names; without names it matches nothing."""
    return "|".join(re.escape(str(name)) for name in names) or "(?!)"


def shown_wildcards(wildcards: Mapping[str, Any]) -> dict[str, str]:
    """Return a job's wildcards without those that only separate its outputs from other configs' and places'."""
    return {name: str(value) for name, value in wildcards.items() if name not in ("recipe", "run", "place")}


def untracked(value: Any) -> Callable[..., Any]:
    """Parameter function: a value that no result depends on.

    Snakemake never reruns a job for parameters that use threads.
    """
    return lambda wildcards, threads: value


def replace_datasets(values: dict[str, Any], overlays: Iterable[Mapping[str, Any]]) -> None:
    """Replace data sets instead of merging them: an overlay's data sets exclude the demo's.

    An earlier file's settings for other data sets go with them.
    """
    for found in overlays:
        graph, train = found.get("graph"), found.get("train")
        if isinstance(graph, dict) and "datasets" in graph and isinstance(values["graph"], dict):
            values["graph"]["datasets"] = graph["datasets"]
            stated = [graph["datasets"], train.get("dataset_settings") if isinstance(train, dict) else None]
            named = {name for each in stated if isinstance(each, dict) for name in each}
            settings = values["train"].get("dataset_settings") if isinstance(values["train"], dict) else None
            if isinstance(settings, dict):
                values["train"]["dataset_settings"] = {name: each for name, each in settings.items() if name in named}


def read_settings(workflow: Any, values: dict[str, Any]) -> Config:
    """Check the merged config; an error names the field and what is allowed."""
    try:
        for file in dict.fromkeys(workflow.configfiles) if workflow.is_main_process else ():
            refuse_repeats(Path(file))
        replace_datasets(values, map(load_configfile, workflow.overwrite_configfiles))
        settings = validate(values)
        if workflow.is_main_process:
            check_names(settings)
    except InputError as error:
        refuse(error)
    return settings


class WorkflowPlan:
    """What a config asks for.

    ``trust``: a job's own Snakemake uses the names of the run it belongs to, and does not read the user's files again.
    """

    def __init__(self, settings: Config, *, trust: bool = False):
        self.settings = settings
        self.results = settings.results
        # Each experiment has its own measurements; graphs, partitions and layouts are shared.
        self.records = f"{self.results}/experiments/{settings.experiment}" if settings.experiment else self.results
        self.datasets = settings.graph.datasets
        #: Generator of each generated data set.
        self.generated = {
            name: dataset.generator or name
            for name, dataset in self.datasets.items()
            if dataset.generator or name in generators()
        }
        self.ordered = [name for name, dataset in self.datasets.items() if dataset.order != "natural"]
        self.trained = self.trained_datasets()
        self.models = [model_name(model) for model in settings.train.models]
        #: Paths of models in the user's own files, by name.
        self.own_models = {model_name(model): model for model in settings.train.models if is_own_model(model)}
        #: Options of each trainer, by its name in results.
        self.learners = {name: words for name, _, _, words in options.learners(settings.train)}
        self.own_files = Path(self.results, ".own_files.json").absolute()
        self.contents = user_files.Contents(self.known_contents(), trust=trust)
        self.recipes = self.named_recipes()
        # Partitions for more PEs than any run uses are only for the report: judging them needs no run.
        self.judged = list(dict.fromkeys([*settings.partition.pes, *settings.partition.quality_pes]))
        self.partitioned = list(dict.fromkeys([*self.judged, *settings.predict.pes]))
        # Paths below results folders: partitions with their layouts, and measurements on them.
        cut = split_name(settings.partition)
        self.split = f"{GRAPH}/{cut}/p{{pes}}"
        self.timed = f"{{place}}/{self.split}-{{run}}"
        self.samples = f"criteo-like@{short_hash({'options': options.samples_options(settings.lookup)})}"
        self.looked_up = f"{{place}}/{self.samples}/p{{pes}}-{{run}}"
        self.training = f"{{place}}/{GRAPH}/{cut}/{{model}}-{{technique}}-p{{pes}}-s{{seed}}-{{run}}"
        self.prediction = f"{GRAPH}/{cut}-{short_hash(options.what_is_predicted(settings.predict))}"

    def trained_datasets(self) -> list[str]:
        """Return the data sets to train on: the config's, or else all with labels."""
        labeled = [name for name, dataset in catalog().items() if dataset.classes or dataset.tasks]
        labeled += [name for name, generator in self.generated.items() if generators()[generator].labels]
        labeled += [name for name, dataset in self.datasets.items() if dataset.classes or has_labels(dataset)]
        chosen = self.settings.train.datasets
        return [name for name in self.datasets if (name in labeled if chosen is None else name in chosen)]

    def known_contents(self) -> Any:
        """Return earlier runs' notes on the user's own files; None without notes."""
        try:
            return json.loads(self.own_files.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def named_recipes(self) -> dict[str, str]:
        """Return the recipe of each data set's graph; other options or files give another folder."""
        scales = {name: self.settings.graph.scale if name in self.generated else 1.0 for name in self.datasets}
        contents = {
            name: self.contents.of(dataset.source) if dataset.source else None
            for name, dataset in self.datasets.items()
        }
        return {
            name: recipe(name, dataset, scale=scales[name], content=contents[name])
            for name, dataset in self.datasets.items()
        }

    def raw_files(self, wildcards: Any) -> Any:
        """Input function: the output of mgg retrieve, or the user's own files, whose contents name the graph."""
        source = self.datasets[wildcards.dataset].source
        return ancient(user_files.files_of(source)) if source else self.raw_source(wildcards)

    def raw_source(self, wildcards: Any) -> str:
        """Return the path that mgg graph reads."""
        source = self.datasets[wildcards.dataset].source
        return str(user_files.path_of(source)) if source else f"{self.results}/retrieve/{wildcards.dataset}"

    def streamed(self, dataset: str) -> bool:
        """Return whether a data set's generator stays within graph.memory."""
        return generators()[self.generated[dataset]].streamed

    def memory_of_generator(self, wildcards: Any, threads: int) -> list[Any]:
        """Parameter function: the options that no result depends on."""
        return (
            ["--memory", self.settings.graph.memory, "--workers", threads] if self.streamed(wildcards.dataset) else []
        )

    def made_by(self, rule: str) -> str:
        """Return a regular expression for the data sets that a rule of stage graph makes."""
        chosen = {
            "generate": lambda name: name in self.generated,
            "graph": lambda name: name not in self.generated and self.settings.graph.shards == 1,
            "graph_gather": lambda name: name not in self.generated and self.settings.graph.shards > 1,
        }
        return any_of(name for name in self.datasets if chosen[rule](name))

    def tuned(self, stage: str) -> Callable[[Any], list[str]]:
        """Input function: outputs of stage tune that a job needs in this place, for as many PEs and nodes."""

        def found(wildcards: Any) -> list[str]:
            if not (self.settings.tune.dims and options.takes_tuned(getattr(self.settings, stage))):
                return []
            if stage == "train" and self.learners[wildcards.technique][:2] != ["--technique", "mgg"]:
                return []
            nodes = re.search(r"(-n\d+)?$", wildcards.run)
            run = short_hash({"options": options.tune_options(self.settings)}) + (nodes[0] if nodes else "")
            return [f"{self.records}/tune/{self.timed}.json".format(**{**wildcards, "run": run})]

        return found

    def train_options(self, model: str, dataset: str, learner: str) -> list[str]:
        """Return the options of mgg train that a result depends on; without defaults, so that older runs stay valid."""
        section, words = self.settings.train, self.learners[learner]
        metric = [] if section.metric == "auto" else ["--metric", section.metric]
        # A job that starts after the user's next change to the file refuses it.
        metric += ["--model-hash", self.contents.of_file(self.own_models[model])] if model in self.own_models else []
        arguments = ["--backend", section.backend, "--epochs", str(section.epochs), "--dtype", section.dtype]
        settings = section.settings.get(model, {}) | section.dataset_settings.get(dataset, {}).get(model, {})
        technique = words[1] if words[0] == "--technique" else ""
        chosen = {f"{technique}.{key}": value for key, value in section.options.get(technique, {}).items()}
        # Libraries manage their own activations.
        if "--side" not in words or "unfused" in words:
            arguments += ["--memory-per-pe", section.memory_per_pe] if section.memory_per_pe else []
            arguments += ["--activations", section.activations] if section.activations != "auto" else []
            arguments += ["--threads", str(section.threads)] if section.threads > 1 else []
        switches = options.flags(phases=section.phases, inference=section.inference)
        return arguments + options.assignments(settings | chosen) + metric + switches

    def model_path(self, model: str) -> str:
        """Return what mgg train takes as --model."""
        return os.path.expanduser(self.own_models.get(model, model))  # noqa: PTH111


def has_labels(dataset: DatasetConfig) -> bool:
    """Return whether the user's own files have labels, according to the config or else the graph folder."""
    if dataset.source is None or dataset.labels is not None:
        return bool(dataset.labels)
    made = user_files.made(dataset.source)
    return made is not None and bool(made.classes or made.tasks)
