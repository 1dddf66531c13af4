"""Names of results in the workflow's folder. A result's path says how it was made and where it was measured.

So configs never overwrite each other's results, and results from different places are never mixed up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from mgg.config import DatasetConfig, PartitionConfig
from mgg.origin import settings_hash

#: Maximum letters of a place (``PLACE_PATTERN`` of ``mgg.origin``); longer names are cut and end in a hash.
_LONGEST_PLACE = 40
#: Hex digits of a hash in a name: 2^32 values suffice for the results of one folder.
_DIGITS = 8


def short_hash(facts: Mapping[str, Any]) -> str:
    """Return the first hex digits of the sha256 of ``facts``."""
    return settings_hash(facts)[:_DIGITS]


def recipe(name: str, options: DatasetConfig, *, scale: float = 1.0, content: str | None = None) -> str:
    """Return the end of a graph folder's name, which says how the graph is made: ``scale0.004-rabbit-1a2b3c4d``.

    Args:
        name: the data set.
        options: how it is made. Options at their defaults do not count, so adding an option keeps existing names.
        scale: ``graph.scale`` of the config, a factor on the scale of generators; 1 for other data sets.
        content: hash of the contents of the user's own files, whose location does not count.
    """
    given = options.model_dump(mode="json", exclude_defaults=True, exclude={"source", "scale"})
    factor = (options.scale or 1.0) * scale
    shown = [f"scale{factor:g}"] if factor != 1 else []
    shown += [options.order] if options.order != "natural" else []
    facts = {"name": name, "options": given, "scale": factor, "content": content}
    return "-".join([*shown, short_hash(facts)])


def split_name(partition: PartitionConfig) -> str:
    """Return the folder name for a partition config: ``edge_balanced-w8-d64``."""
    return f"{partition.scheme}-w{partition.workgroup}-d{partition.dim}" + "-cover" * partition.cover


def place_name(*facts: Any) -> str:
    """Return the folder name for where and on what a job runs: ``slurm-gpus-h200-srun``.

    Args:
        facts: scheduler, kind of device, its model, launcher and so on; empty ones are left out.
    """
    words = [re.sub(r"[^A-Za-z0-9.]+", "_", str(fact or "")).strip("_") for fact in facts]
    name = "-".join(filter(None, words))
    if len(name) > _LONGEST_PLACE:
        end = f"-{short_hash({'facts': facts})[:6]}"
        return name[: _LONGEST_PLACE - len(end)] + end
    return name


def is_own_model(model: str) -> bool:
    """Return whether ``model`` is the path of the user's own file rather than a name."""
    return "/" in model or model.endswith(".py")


def model_name(model: str) -> str:
    """Return the name of ``model`` in records and results; the user's own file is named without ``.py``."""
    return PurePath(model).stem if is_own_model(model) else model
