"""Inference with a model that was trained elsewhere: one pass over the whole graph, on any number of PEs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgg.aggregate import parse_options
from mgg.backend.api import World, name_pes, together
from mgg.backend.machine.facts import job_fields
from mgg.errors import InputError
from mgg.files import check_output
from mgg.layout import PeLayout
from mgg.model import Array, Model, ModelSettings, build, settings_of
from mgg.records import InferenceRecord
from mgg.train.expected_kernels import compile_kernels
from mgg.train.import_weights import fitted, read
from mgg.train.learner import fitting
from mgg.train.memory import check_writing
from mgg.train.model import found_alike
from mgg.train.resolve_auto import resolved as resolved_technique
from mgg.train.run.output import INFERENCE, digest, write_inference
from mgg.train.run.predictions import collect

_log = logging.getLogger(__name__)


def infer(
    world: World, layout: PeLayout, *, model: str | Model, weights: Path, technique: str, out: Path,
    maps: Sequence[str] = (), options: dict[str, Any] | None = None, settings: dict[str, Any] | None = None,
    dtype: str = "fp32",
) -> InferenceRecord:  # fmt: skip
    """Predict every node with ``weights``, layer by layer over all nodes and arcs (collective).

    Args:
        world, layout, model, technique, options, dtype: see ``train``.
        weights: ``.safetensors`` or ``.npz`` file, the same on every PE.
        out: folder of the predictions. Rank 0 writes it, and it appears only when it is complete.
        maps: the model's names for arrays of the file, see ``foreign.fitted``.
        settings: settings of the model's layers, and ``row_normalize``.

    Returns:
        The same record on every PE.

    Raises:
        InputError: as ``train``; or the file does not fit the model, PEs read different files, or an output is not
            finite (names the layer).
        MachineError: less memory than a training would need (names the PE).
    """
    out, options = out.absolute(), options or {}
    found = found_alike(world, model)
    resolved = together(world, lambda: _settings(found, settings or {}))
    together(world, lambda: check_output(out, INFERENCE) if world.rank == 0 else None)
    arrays, content = _weights(world, layout, found, resolved, weights, maps)
    candidates = resolved_technique(world, layout, technique, options, found, resolved, dtype)
    together(world, lambda: _check_options(candidates[0], options))
    compile_kernels(world, found, candidates[0], options, dtype)
    check_writing(world, layout)
    trainer, chosen = fitting(
        world, layout, candidates, options, model=found, settings=resolved, seed=0, dtype=dtype, repeat=False
    )
    predicted = trainer.predict(arrays, checked=True)
    trainer.close()
    table, facts = collect(world, layout, predicted), layout.manifest
    kept = {*type(resolved).model_fields} - {*ModelSettings.model_fields} | {"row_normalize"}
    record = InferenceRecord(
        dataset=facts.name, graph_hash=facts.graph_hash, nodes=facts.nodes, arcs=facts.arcs, options=chosen,
        technique=trainer.technique, dtype=dtype, **job_fields(world), model=found.name, model_file=found.sha256,
        scheme=facts.scheme, layout=facts.digest(), settings=trainer.settings.model_dump(include=kept),
        weights=digest("", arrays), weights_file=content, metric=trainer.metric, chosen=technique != trainer.technique,
    )  # fmt: skip
    together(world, lambda: None if table is None else write_inference(out, record, table, found.content))
    return record


def _settings(model: Model, given: dict[str, Any]) -> ModelSettings:
    """Return the model's settings; raise InputError for those that only affect training."""
    for name in filter({*ModelSettings.model_fields}.difference({"row_normalize"}).__contains__, given):
        raise InputError(f"setting {name}: only affects training: leave it out")
    # Inference does not need the splits and classes that training does.
    return settings_of(model, given).model_copy(update={"selection": "last", "untrained_classes": "count"})


def _check_options(technique: str, given: dict[str, Any]) -> None:
    """Raise InputError for options of the technique that only affect training."""
    parsed = parse_options(technique, given)
    for name in {"stale", "boundary"}.intersection(type(parsed).model_fields):
        if getattr(parsed, name) != type(parsed).model_fields[name].default:
            raise InputError(f"technique {technique}: option {name}: only affects training: leave it out")


def _weights(
    world: World, layout: PeLayout, model: Model, settings: ModelSettings, path: Path, maps: Sequence[str]
) -> tuple[dict[str, Array], str]:
    """Return the file's arrays by the model's names, and its hash; the same on every PE (collective)."""
    facts = layout.manifest
    sizes = facts.features, facts.classes or facts.tasks, facts.nodes, facts.relations
    chain = together(world, lambda: build(model, settings, *sizes))
    found, content = together(world, lambda: read(path))
    held = world.gather(content)
    if others := [pe for pe, theirs in enumerate(held) if theirs != held[0]]:
        raise InputError(f"{path}: {name_pes(others)} read another file than PE 0: give all the same").on_every_pe()
    arrays, note = together(world, lambda: fitted(path, found, maps, chain))
    if note and world.rank == 0:
        _log.warning("%s", note)
    return arrays, content
