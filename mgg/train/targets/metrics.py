"""Metrics by name, and the targets that belong to them."""

from __future__ import annotations

from mgg.backend.api import World, together
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import ModelSettings
from mgg.schema import nearest
from mgg.train.targets import Targets
from mgg.train.targets.classes import ClassTargets
from mgg.train.targets.tasks import TaskTargets

#: Prefix of the names of OGB's node-property data sets.
OGB = "ogbn-"
#: Metric -> the labels that it needs in a graph.
METRICS = {"accuracy": "labels", "micro_f1": "tasks", "roc_auc": "tasks"}


def targets_of(world: World, layout: PeLayout, metric: str, settings: ModelSettings) -> Targets:
    """Return the targets of a graph, before ``Targets.place`` (collective).

    Args:
        world, layout: the PEs, and this PE's part of the graph.
        metric: key of ``METRICS``, or ``auto``: accuracy if nodes have classes, else roc_auc for OGB's data sets,
            whose Evaluator uses it, and micro_f1 for others.
        settings: class weights in the loss, and whether validation nodes are required.

    Raises:
        InputError: the graph lacks splits or the labels of the metric; or as the targets raise.
    """
    together(world, lambda: _require(layout))
    manifest = layout.manifest
    if metric == "auto":
        metric = "accuracy" if manifest.classes else "roc_auc" if manifest.name.startswith(OGB) else "micro_f1"
    together(world, lambda: _check_metric(layout, metric, settings))
    if METRICS[metric] == "labels":
        return ClassTargets(world, layout, settings)
    return TaskTargets(world, layout, metric, settings)


def _require(layout: PeLayout) -> None:
    manifest = layout.manifest
    if not manifest.classes and not manifest.tasks:
        raise InputError(f"graph {manifest.name}: has no labels to train on")
    if layout.splits is None:
        raise InputError(f"graph {manifest.name}: has no training, validation and test splits")


def _check_metric(layout: PeLayout, metric: str, settings: ModelSettings) -> None:
    manifest = layout.manifest
    if metric not in METRICS:
        raise InputError(f"metric {metric!r}: unknown; {nearest(metric, METRICS)}")
    if METRICS[metric] == "labels" and not manifest.classes:
        raise InputError(f"metric {metric}: nodes of graph {manifest.name} have no class; take micro_f1 or roc_auc")
    if METRICS[metric] == "tasks" and not manifest.tasks:
        raise InputError(
            f"metric {metric}: needs several yes-or-no labels per node, and graph {manifest.name} has none;"
            " take accuracy"
        )
    if METRICS[metric] == "tasks" and settings.class_weights == "balanced":
        raise InputError(f"setting class_weights: nodes of graph {manifest.name} have no class: set it to none")
