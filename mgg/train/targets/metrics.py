"""Metrics by name, and what a training learns for the sake of one."""

from __future__ import annotations

from mgg.backend.api import World, together
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import ModelSettings
from mgg.schema import nearest
from mgg.train.targets import Targets
from mgg.train.targets.classes import ClassTargets
from mgg.train.targets.tasks import TaskTargets

#: How the names of OGB's node-property data sets begin.
OGB = "ogbn-"
#: Metric -> what it needs of a graph.
METRICS = {"accuracy": "labels", "micro_f1": "tasks", "roc_auc": "tasks"}


def targets_of(world: World, layout: PeLayout, metric: str, settings: ModelSettings) -> Targets:
    """The targets of a graph, which are still to be placed (collective).

    Args:
        world, layout: the PEs, and what this one holds.
        metric: key of ``METRICS``, or ``auto``: accuracy where nodes have classes, else roc_auc for OGB's data sets,
            whose Evaluator asks for that, and micro_f1 for others.
        settings: how classes weigh in the loss, and whether there must be validation nodes.

    Raises:
        InputError: the graph lacks splits, or the labels that the metric is about; see the targets.
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
