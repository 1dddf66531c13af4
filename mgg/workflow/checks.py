"""Config checks beyond the schema, which need other parts of MGG; each error is one line that names the field."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.logging import logger

from mgg.config import Config, DatasetConfig, TrainConfig
from mgg.errors import InputError
from mgg.graph import user_files
from mgg.graph.budget import parse_size
from mgg.graph.datasets import find
from mgg.graph.generators import generators
from mgg.graph.sources import find_loader
from mgg.naming import is_own_model, model_name
from mgg.workflow.options import takes_tuned

if TYPE_CHECKING:
    from mgg.workflow.plan import WorkflowPlan

#: Options that only generated graphs have.
OF_GENERATORS = {"scale", "seed", "shuffle", "features", "classes"}


def check_names(settings: Config) -> None:
    """Raise InputError, with the field, for a data set, technique, model or option that MGG does not have.

    Slow imports are local: a cluster job runs in two Snakemakes of its own, which check nothing.
    """
    from mgg import model
    from mgg.aggregate import parse_options, technique, variants
    from mgg.cost import machines
    from mgg.partition.schemes import scheme
    from mgg.report.papers.catalogue import check_figure

    with field("results"):
        check_results(settings.results)
    with field("graph.memory"):
        parse_size(settings.graph.memory)
    for name, dataset in settings.graph.datasets.items():
        with field(f"graph.datasets.{name}"):
            check_dataset(name, dataset)
    with field("partition.scheme"):
        scheme(settings.partition.scheme)
    for section in ("aggregate", "train", "predict"):
        for name in getattr(settings, section).techniques:
            with field(f"{section}.techniques"):
                if name != "auto" or section == "predict":
                    technique(name)
    check_training(settings.train)
    if settings.predict.pes:
        with field("predict.machine"):
            machines.find(settings.predict.machine).links.changed(settings.predict.links, settings.predict.network)
    for name, options in settings.aggregate.options.items():
        with field("aggregate.options"):
            parse_options(name, options)
    for section, common in (("aggregate", settings.aggregate.options), ("predict", {})):
        for name, grids in getattr(settings, section).variants.items():
            with field(f"{section}.variants"):
                variants.expand(name, common.get(name, {}), grids)
    for name, options in settings.train.options.items():
        with field("train.options"):
            parse_options(name, options)
    check_tuning(settings)
    for name in [*settings.report.figures, *settings.report.notes]:
        with field("report.figures" if name in settings.report.figures else "report.notes"):
            check_figure(name)
    with field("train.models"):
        model.check_names(settings.train.models)
    # The user's own files are not run here: mgg train checks their settings first.
    own_models = {model_name(each) for each in settings.train.models if is_own_model(each)}
    for name in [
        *filterfalse(is_own_model, settings.train.models),
        *sorted(settings.train.settings.keys() - own_models),
    ]:
        with field("train.settings" if name in settings.train.settings else "train.models"):
            model.settings_of(name, settings.train.settings.get(name))


def check_results(folder: str) -> None:
    """Raise InputError if the results folder cannot be created; writes nothing, so dry runs can check too."""
    path = Path(folder).absolute()
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise InputError(f"{folder}: {'' if there == path else f'{there} '}is not a folder; choose another name")
    if there != path and not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be made, since {there} cannot be written; choose another place")


def check_training(train: TrainConfig) -> None:
    """Raise InputError for a technique that cannot run every training in the config."""
    from mgg.aggregate import all_techniques, technique

    for name in train.techniques if train.models else ():
        if name == "auto":
            continue
        if train.dtype not in technique(name).dtypes:
            able = ", ".join(other for other, plan in all_techniques().items() if train.dtype in plan.dtypes)
            raise InputError(f"train.dtype: technique {name} takes no {train.dtype} embeddings; those that do: {able}")
        if technique(name).single_pe and max(train.pes) > 1:
            raise InputError(f"train.techniques: technique {name} runs on one PE, and train.pes has {max(train.pes)}")


def check_tuning(settings: Config) -> None:
    """Raise InputError for a stage tune that nothing needs, or whose products differ from those of the trainings."""
    aggregate, train = (takes_tuned(section) for section in (settings.aggregate, settings.train))
    if not settings.tune.dims:
        return
    if not (aggregate or train):
        raise InputError(
            "tune.dims: nothing takes what is tuned: set tune: cached of technique mgg in aggregate.options or"
            " train.options, or leave tune.dims empty"
        )
    if train and settings.train.backend != settings.aggregate.backend:
        raise InputError(
            f"tune.dims: tunes with aggregate.backend ({settings.aggregate.backend}), and train.backend is"
            f" {settings.train.backend}: take one for both"
        )


def check_dataset(name: str, dataset: DatasetConfig) -> None:
    """Raise InputError for an unknown data set or order, or an option that its kind does not have."""
    from mgg.graph.generate import name_of
    from mgg.graph.reorder import find_order

    find_order(dataset.order)
    if dataset.source is not None:
        check_own(name, dataset.source, dataset)
        return
    if dataset.model_dump(include={"loader", "labels", "columns", "column"}, exclude_defaults=True):
        raise InputError("loader, labels, columns and column are options of files of your own, which source names")
    if dataset.generator or name in generators():
        name_of(dataset.generator or name, name)
        if dataset.symmetrize:
            raise InputError("symmetrize: generated graphs are symmetric already")
        if dataset.repeats or dataset.loops:
            raise InputError("repeats and loops: generated graphs have neither")
        if (dataset.features is None) != (dataset.classes is None):
            raise InputError("features and classes are given together or not at all")
        return
    try:
        find(name)
    except InputError as error:
        raise InputError(f"{error} (files of your own: `source: PATH`)") from None
    if dataset.model_dump(include=OF_GENERATORS, exclude_defaults=True):
        raise InputError("scale, seed, shuffle, features and classes are options of generators; this is a data set")


def check_own(name: str, source: str, dataset: DatasetConfig) -> None:
    """Raise InputError for missing files of the user's own, or for a name or option that they cannot have."""
    if dataset.model_dump(include=OF_GENERATORS | {"generator"}, exclude_defaults=True):
        raise InputError("source: generator, scale, seed, shuffle, features and classes are no options of own files")
    user_files.check_name(name)
    user_files.files_of(source)
    made = user_files.made(source)
    # For files not read yet, stage graph checks this.
    if dataset.labels and made is not None and not made.classes and not made.tasks:
        raise InputError(f"labels: nodes of the graph folder {source} have none")
    if dataset.loader is not None:
        find_loader(dataset.loader)
    elif not user_files.says_loader(user_files.path_of(source)):
        raise InputError(user_files.needs_loader(user_files.path_of(source), "`loader`"))


@contextmanager
def field(name: str) -> Iterator[None]:
    """Prefix error messages with the name of the field."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def warn_of_untrained(plan: WorkflowPlan) -> None:
    """Report the data sets without training if the config does not name those to train on."""
    train = plan.settings.train
    untrained = [name for name in plan.datasets if name not in plan.trained]
    if not train.models or train.datasets is not None or not untrained:
        return
    ways = {
        "generated graphs get them by `features` and `classes`": any(name in plan.generated for name in untrained),
        "`labels: true` says that own files have them": any(plan.datasets[name].source for name in untrained),
        "`models: []` says that nothing is to be trained": not plan.trained,
    }
    advice = "".join(f"; {way}" for way, fits in ways.items() if fits)
    if plan.trained:
        logger.info(f"train.models: not trained on {', '.join(untrained)}: no labels are known of{advice}")
    else:
        logger.warning(
            f"train.models: nothing is trained: no data set of graph.datasets is known to have labels{advice}"
        )


def warn_of_unused(settings: Config) -> None:
    """Report settings that nothing uses: an overlay may have replaced the list with their name."""
    train, aggregate = settings.train, settings.aggregate
    models = {model_name(each) for each in train.models}
    techniques = {*aggregate.techniques, *train.techniques}
    given: dict[str, tuple[Mapping[str, Any], set[str], str]] = {
        "train.settings": (train.settings, models, "train.models")
    }
    for dataset, settings_of in train.dataset_settings.items():
        given[f"train.dataset_settings: {dataset}"] = settings_of, models, "train.models"
    given["aggregate.variants"] = aggregate.variants, set(aggregate.techniques), "aggregate.techniques"
    if "auto" not in techniques:
        given["aggregate.options"] = aggregate.options, techniques, "aggregate.techniques or train.techniques"
    for field, (names, asked, listed) in given.items():
        if unused := sorted(set(names) - asked):
            logger.warning(f"{field}: {', '.join(unused)}: not in {listed}, so this changes nothing")
