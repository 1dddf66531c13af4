"""The identity of a training run: all facts that must agree to resume its checkpoint bit by bit."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field

from mgg.records import Frozen, Side, TrainRecord

Device = Literal["CPUs", "GPUs"]
#: Fields with another name in messages, and the name of one entry of dictionary fields.
_CALLED = {
    "scheme": "partition scheme", "weights": "starting weights", "model_file": "model file of sha256",
    "emulated": "network",
}  # fmt: skip
_KEYED = {"options": "option", "settings": "setting"}
#: Fields for which None is a value.
_NONE = ("weights", "model_file", "emulated")


class Identity(Frozen):
    """The facts that must agree. None means that an earlier MGG did not note the field, except for ``_NONE``."""

    model: str
    side: Side = Field("mgg", description="what trains: MGG, its programs' passes fused or not, or a library")
    model_file: str | None = Field(None, description="sha256 of the user's own file; None: the model is MGG's")
    dataset: str
    graph_hash: str
    pes: int
    scheme: str | None = Field(None, description="partition scheme of the layout")
    layout: str | None = Field(None, description="digest of the layout's manifest: sums go in the layout's order")
    device: Device | None = Field(None, description="what computes: the two add up in another order")
    technique: str
    options: dict[str, Any]
    seed: int
    settings: dict[str, Any]
    dtype: str = "fp32"
    metric: str = "accuracy"
    epochs: int | None = Field(None, description="in all, where the step sizes depend on that")
    weights: str | None = Field(None, description="digest of those it started from; None: random ones")
    emulated: str | None = Field(None, description="network that it is held to, as epochs are timed; None: none")


def identity_of(record: TrainRecord) -> Identity:
    """Return the identity of a finished run."""
    noted = record.model_dump(include=set(Identity.model_fields) - {"epochs"})
    planned = record.asked_epochs if record.settings.get("schedule") == "cosine" else None
    return Identity(**noted, device=device_of(record.machine.gpus), epochs=planned)


def device_of(gpus: object) -> Device:
    """Return ``GPUs`` if there are ``gpus``, else ``CPUs``."""
    return "GPUs" if gpus else "CPUs"


def difference(theirs: Identity, mine: Identity) -> str | None:
    """Describe how the run ``theirs`` differs, to follow "a run" in a message; None if all noted facts agree."""
    for name, value in mine.model_dump().items():
        found = getattr(theirs, name)
        unknown = found is None and Identity.model_fields[name].default is None and name not in _NONE
        if found == value or unknown:
            continue
        if name not in _KEYED:
            called = _CALLED.get(name, name)
            return f"with {called} {_said(found)}, this run has {called} {_said(value)}"
        keys = [key for key in {**found, **value} if found.get(key) != value.get(key)]
        if not keys:  # a setting that an earlier MGG did not know, and that is None here
            continue
        return "whose " + "; ".join(
            f"{_KEYED[name]} {key} is {_said(found.get(key))}, this run has {_said(value.get(key))}" for key in keys
        )
    return None


def _said(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text[:12] if re.fullmatch("[0-9a-f]{64}", text) else text
