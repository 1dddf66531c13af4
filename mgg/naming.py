"""Names of results in the workflow's folder: what made a result, and where it was measured, is part of its path.

So no config takes another one's results away, and what was measured in one place does not pass for another's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from mgg.config import DatasetConfig, PartitionConfig
from mgg.origin import settings_hash

#: Letters of a place, ``PLACE_PATTERN`` of ``mgg.origin``; longer ones end in a hash.
_LONGEST_PLACE = 40
#: Letters that stand for everything: 2^32 values tell the results of one folder apart.
_DIGITS = 8


def short_hash(facts: Mapping[str, Any]) -> str:
    """The first letters of the sha256 of ``facts``."""
    return settings_hash(facts)[:_DIGITS]


def recipe(name: str, options: DatasetConfig, *, scale: float = 1.0, content: str | None = None) -> str:
    """How the graph of a data set is made, as the end of its folder's name: ``scale0.004-rabbit-1a2b3c4d``.

    Args:
        name: the data set.
        options: how it is made. Those at their defaults do not count, so a new option leaves all names as they are.
        scale: ``graph.scale`` of the config, a factor on the scale of generators; 1 for all else.
        content: of files of one's own a hash of what is in them; where they lie does not count.
    """
    given = options.model_dump(mode="json", exclude_defaults=True, exclude={"source", "scale"})
    factor = (options.scale or 1.0) * scale
    shown = [f"scale{factor:g}"] if factor != 1 else []
    shown += [options.order] if options.order != "natural" else []
    facts = {"name": name, "options": given, "scale": factor, "content": content}
    return "-".join([*shown, short_hash(facts)])


def split_name(partition: PartitionConfig) -> str:
    """How graphs are divided, as the name of a folder: ``edge_balanced-w8-d64``."""
    return f"{partition.scheme}-w{partition.workgroup}-d{partition.dim}" + "-cover" * partition.cover


def place_name(*facts: Any) -> str:
    """Where and on what a job runs, as the name of a folder: ``slurm-gpus-h200-srun``.

    Args:
        facts: scheduler, kind of device, its model, launcher and so on; those that are empty are left out.
    """
    words = [re.sub(r"[^A-Za-z0-9.]+", "_", str(fact or "")).strip("_") for fact in facts]
    name = "-".join(filter(None, words))
    if len(name) > _LONGEST_PLACE:
        end = f"-{short_hash({'facts': facts})[:6]}"
        return name[: _LONGEST_PLACE - len(end)] + end
    return name


def is_own_model(model: str) -> bool:
    """Whether ``model`` is the path of a file of the user's own rather than a name."""
    return "/" in model or model.endswith(".py")


def model_name(model: str) -> str:
    """What ``model`` is called in records and results: of a file of the user's own its name without ``.py``."""
    return PurePath(model).stem if is_own_model(model) else model
