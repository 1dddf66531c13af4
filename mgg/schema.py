"""Values from outside become models of pydantic; a mistake is one line that names the field and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mgg.errors import InputError

M = TypeVar("M", bound=BaseModel)
#: Tables hold whole numbers in 64 bits.
MAX_INT64 = 2**63 - 1


class Closed(BaseModel):
    """Fields; a field that it does not name is an error."""

    model_config = ConfigDict(extra="forbid")


class Fixed(Closed):
    """Fields that do not change."""

    model_config = ConfigDict(frozen=True)


def parsed(model: type[M], values: Any, before: str, after: str = "") -> M:
    """``values`` as a ``model``.

    Args:
        model: what they shall be.
        values: fields by name.
        before: how the line of an error begins, up to the field: ``"config: "``.
        after: how it ends.

    Raises:
        InputError: names the first wrong field, what it holds and what is allowed.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{before}{explain(error, model)}{after}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence that offers the known words nearest to ``word``, or all of them when none is near."""
    known = sorted(known)
    if not known:
        return "there are none"
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for the first of pydantic's complaints: field, value, what is allowed."""
    first = error.errors(include_url=False)[0]
    # Without the marks that pydantic adds for keys and for the branches of a union.
    where = ".".join(str(part) for part in first["loc"] if part not in ("[key]", "bool", "int", "float", "str"))
    if first["type"] == "extra_forbidden":
        word = str(first["loc"][-1])
        return f"{where}: unknown field; {nearest(word, _fields_at(model, first['loc'][:-1]))}"
    message = first["msg"].removeprefix("Value error, ")
    if not where:
        return message
    held = first["input"]
    shown = f", found {held!r}" if isinstance(held, (str, int, float, bool)) or held is None else ""
    return f"{where}: {message[:1].lower()}{message[1:]}{shown}"


def _fields_at(model: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the section at ``loc``, walking through mappings of sections."""
    for part in loc:
        fields = getattr(model, "model_fields", {})
        if part in fields:
            model = fields[str(part)].annotation
        else:
            model = next((a for a in getattr(model, "__args__", ()) if hasattr(a, "model_fields")), model)
    return list(getattr(model, "model_fields", {}))
