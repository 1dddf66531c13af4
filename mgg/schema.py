"""Parse external values into pydantic models; an error is one line that names the field and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mgg.errors import InputError

M = TypeVar("M", bound=BaseModel)
#: Tables store integers in 64 bits.
MAX_INT64 = 2**63 - 1
#: Pydantic's error types about a single value, and the markers it adds to error locations.
_OF_ONE_VALUE = ("bool_type", "int_type", "float_type", "string_type", "literal_error")
_MARK = re.compile(r"\[key\]|bool|int|float|str|(list|function-before)\[.*\]")


class Closed(BaseModel):
    """A model that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Fixed(Closed):
    """An immutable model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True)


def parsed(model: type[M], values: Any, before: str, after: str = "") -> M:
    """Validate ``values`` as a ``model``.

    Args:
        model: the model to make.
        values: fields by name.
        before: start of an error's line, up to the field: ``"config: "``.
        after: its end.

    Raises:
        InputError: a field is wrong; names the first such field, its value and what is allowed.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{before}{explain(error, model)}{after}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a sentence that offers the known words nearest to ``word``, or all of them if none is near."""
    known = sorted(known)
    if not known:
        return "there are none"
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return one line on pydantic's first error: field, value, what is allowed."""
    first = _first(error)
    where = ".".join(_unmarked(first))
    if first["type"] == "extra_forbidden":
        word = str(first["loc"][-1])
        return f"{where}: unknown field; {nearest(word, _fields_at(model, first['loc'][:-1]))}"
    message = first["msg"].removeprefix("Value error, ")
    if not where:
        return message
    held = first["input"]
    if _wants_one(first):
        return f"{where}: takes one value, found a list of {len(held)}"
    shown = f", found {held!r}" if isinstance(held, (str, int, float, bool)) or held is None else ""
    return f"{where}: {message[:1].lower()}{message[1:]}{shown}"


def _first(error: ValidationError) -> Any:
    """Return the first error; if a list was given for a field that takes a value or a list, the first on the list."""
    every = error.errors(include_url=False)
    first, field = every[0], _unmarked(every[0])
    if _wants_one(first):
        about = (each for each in every if _unmarked(each)[: len(field)] == field)
        return next((each for each in about if each["input"] is not first["input"] or not _wants_one(each)), first)
    return first


def _wants_one(complaint: Any) -> bool:
    return isinstance(complaint["input"], list) and complaint["type"] in _OF_ONE_VALUE


def _unmarked(complaint: Any) -> list[str]:
    """Return an error's location without the marks that pydantic adds for keys and branches of a union."""
    return [str(part) for part in complaint["loc"] if not _MARK.fullmatch(str(part))]


def _fields_at(model: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Return the names of the fields of the section at ``loc``, walking through mappings of sections."""
    for part in loc:
        fields = getattr(model, "model_fields", {})
        if part in fields:
            model = fields[str(part)].annotation
        else:
            model = next((a for a in getattr(model, "__args__", ()) if hasattr(a, "model_fields")), model)
    return list(getattr(model, "model_fields", {}))
