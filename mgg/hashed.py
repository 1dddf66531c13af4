"""YAML files that end with their own hash: manifests, whose every change must be noticed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import yaml

from mgg.errors import InputError
from mgg.files import write_file

_HASHED = re.compile(rb"(.*\n)hash: ([0-9a-f]{64})\n", re.DOTALL)


class _Dumper(yaml.SafeDumper):
    """Quotes every hash: a run of digits and an 'e' is a number to some YAML readers."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = '"' if re.fullmatch(r"[0-9a-f]{64}", value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def save(path: Path, values: dict[str, Any]) -> str:
    """Write ``values`` and a last line with the hash of the rest; returns the hash."""
    body = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).encode()
    digest = hashlib.sha256(body).hexdigest()
    write_file(path, body + f"hash: {digest}\n".encode())
    return digest


def load(path: Path, kind: str, command: str) -> tuple[Any, str]:
    """Read a file that ``save`` wrote: its values and its hash.

    Args:
        path: the file.
        kind: what the folder around it is, for messages: ``graph`` or ``layout``.
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
        raise InputError(f"{path}: truncated or altered: its last line is not the hash of the rest")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Aliases of aliases would grow without end when they are looked at; what we write has none.
        if b"*" in match[1] and any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(match[1], Loader=loader)
        ):
            raise InputError(f"{path}: has YAML aliases, which no {kind} has")
        # Both loaders are safe ones.
        values = yaml.load(match[1], Loader=loader)  # nosec B506
        return values, match[2].decode()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from None
