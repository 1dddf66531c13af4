"""Tamper-evident files.

YAML files end with their own hash, JSON objects contain theirs, and JSON lines name the hash of the previous line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from mgg.errors import InputError
from mgg.files import write_file

_HASHED = re.compile(rb"(.*\n)hash: ([0-9a-f]{64})\n", re.DOTALL)


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes every hash, because some YAML readers take digits with an 'e' for a number."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = '"' if re.fullmatch(r"[0-9a-f]{64}", value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def save(path: Path, values: dict[str, Any]) -> str:
    """Write ``values`` and a last line with the hash of the rest; return the hash."""
    body = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).encode()
    digest = hashlib.sha256(body).hexdigest()
    write_file(path, body + f"hash: {digest}\n".encode())
    return digest


def load(path: Path, kind: str, command: str) -> tuple[Any, str]:
    """Read a file that ``save`` wrote; return its values and its hash.

    Args:
        path: the file.
        kind: kind of the folder that contains it, for messages: ``graph`` or ``layout``.
        command: the command that makes such a folder.

    Raises:
        InputError: the file is missing, altered or not YAML; names it.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path.parent}: not a {kind} folder (no {path.name}); make it with {command}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    match = _HASHED.fullmatch(data)
    if not match or hashlib.sha256(match[1]).hexdigest() != match[2].decode():
        raise InputError(
            f"{path}: truncated or altered: its last line is not the hash of the rest: run {command} again"
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Nested aliases can expand exponentially; files that MGG writes have none.
        if b"*" in match[1] and any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(match[1], Loader=loader)
        ):
            raise InputError(f"{path}: has YAML aliases, which no {kind} has")
        # Both loaders are safe ones.
        values = yaml.load(match[1], Loader=loader)  # nosec B506
        return values, match[2].decode()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None


#: The field of a JSON object that holds the hash of all others.
SEAL = "sha256"


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` (JSON-serializable) with their hash as the last field."""
    return values | {SEAL: _json_hash(values)}


def unsealed(text: str, where: str, again: str) -> dict[str, Any]:
    """Return the values of a JSON object that :func:`sealed` made, without their hash.

    Args:
        text: the object as JSON.
        where: the file and line, for messages.
        again: how to recreate it, the end of a message: ``run mgg aggregate again``.

    Raises:
        InputError: ``text`` is not such an object, has no hash or was altered.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg} at column {error.colno}): {again}") from None
    except (RecursionError, ValueError):  # ValueError: numbers of thousands of digits
        raise InputError(f"{where}: not JSON that MGG writes: {again}") from None
    if not isinstance(values, dict):
        raise InputError(f"{where}: no JSON object: {again}")
    if SEAL not in values:
        raise InputError(f"{where}: has no {SEAL}, so it was altered or is of an earlier MGG: {again}")
    if values.pop(SEAL) != _json_hash(values):
        raise InputError(f"{where}: altered since it was written: its {SEAL} is not that of the rest: {again}")
    return values


#: Fields of a line: the hash of the previous line (None in the first), and a mark on the last line.
PREVIOUS, LAST = "previous", "last"


def lines(objects: Iterable[dict[str, Any]]) -> str:
    """Return ``objects`` as JSON lines whose hashes cover their order and number."""
    written: list[dict[str, Any]] = []
    objects = list(objects)
    for number, values in enumerate(objects, 1):
        link = {PREVIOUS: written[-1][SEAL] if written else None}
        written.append(sealed(values | link | ({LAST: True} if number == len(objects) else {})))
    return "".join(json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n" for values in written)


def read_lines(text: str, path: str | Path, again: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the 1-based number and the values of each line that :func:`lines` made, without the hash fields.

    Args:
        text: the lines; blank ones are skipped.
        path: the file, for messages.
        again: as in :func:`unsealed`.

    Raises:
        InputError: as :func:`unsealed`; or a line was removed, added or moved; names the first line out of sequence.
    """
    before, ended = None, True
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        values = unsealed(line, where, again)
        if PREVIOUS not in values:
            raise InputError(f"{where}: has no {PREVIOUS}, so it is of an earlier MGG: {again}")
        if values.pop(PREVIOUS) != before:
            raise InputError(f"{where}: is not the line that followed: lines were taken out, added or moved: {again}")
        before, ended = json.loads(line)[SEAL], values.pop(LAST, False)
        yield number, values
    if not ended:
        raise InputError(f"{path}: its last lines are missing: {again}")


def _json_hash(values: dict[str, Any]) -> str:
    """Return the sha256 of ``values`` as compact JSON: sorted keys, no spaces, ASCII only."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
