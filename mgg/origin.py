"""Origin of a record: run, time, MGG version, settings and machine (docs/reference/format.md, "Origin")."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import subprocess  # nosec B404
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from mgg import __version__
from mgg.errors import InputError

#: Environment variables that group several commands into one run and give its settings and its place.
RUN_ID, CONFIG_HASH, PLACE = "MGG_RUN_ID", "MGG_CONFIG_HASH", "MGG_PLACE"
RUN_PATTERN: str = r"^[A-Za-z0-9._-]{1,64}$"
HASH_PATTERN: str = r"^[0-9a-f]{64}$"
PLACE_PATTERN: str = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"
#: Options that only affect where results go and what is shown.
_NO_SETTINGS = {"out", "as_json", "replace", "resume", "progress", "tensorboard"}
_GPUS = Path("/proc/driver/nvidia/gpus")


class _Command:
    """The run of this process."""

    run_id = secrets.token_hex(8)
    config_hash: str | None = None


def share(settings: Mapping[str, Any]) -> None:
    """Make all records of this process and its children part of one run with these ``settings``."""
    os.environ.setdefault(RUN_ID, _Command.run_id)
    os.environ[CONFIG_HASH] = settings_hash(settings)
    begin("", {})


def begin(command: str, options: Mapping[str, Any]) -> None:
    """Start a command: its records form one run, and its ``options`` are their settings.

    Raises:
        InputError: the run, hash or place in the environment is malformed.
    """
    for name, pattern in ((RUN_ID, RUN_PATTERN), (CONFIG_HASH, HASH_PATTERN), (PLACE, PLACE_PATTERN)):
        if name in os.environ and not re.fullmatch(pattern, os.environ[name]):
            raise InputError(f"${name}: {os.environ[name]!r} does not match {pattern}: unset it")
    _Command.run_id = os.environ.get(RUN_ID) or secrets.token_hex(8)
    settings = {name: value for name, value in options.items() if name not in _NO_SETTINGS and not _is_path(value)}
    _Command.config_hash = os.environ.get(CONFIG_HASH) or settings_hash({"command": command} | settings)


def _is_path(value: Any) -> bool:
    """Return whether ``value`` is paths; these are no settings, as records name graphs and layouts by hash."""
    return isinstance(value, Path) or (isinstance(value, (tuple, list)) and any(isinstance(v, Path) for v in value))


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return the sha256 of settings as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def origin(hosts: Iterable[str] = ()) -> dict[str, str | None]:
    """Return the current values of a record's origin fields (``mgg.records.Origin``).

    Args:
        hosts: ``this_host`` of each host the record was measured on; default: this host.
    """
    return {
        "run_id": _Command.run_id,
        "recorded_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "mgg_version": __version__,
        "commit": commit(),
        "config_hash": _Command.config_hash,
        "machine_id": "+".join(sorted(set(hosts) or {this_host()})),
    }


@cache
def commit() -> str | None:
    """Return the commit of MGG's sources, with ``-dirty`` if they were changed since; None if unknown."""
    with suppress(metadata.PackageNotFoundError, ValueError):
        installed = metadata.distribution("mgg").read_text("direct_url.json")
        if found := json.loads(installed or "{}").get("vcs_info", {}).get("commit_id"):
            return str(found)
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():  # an installed MGG may lie inside an unrelated repository
        return None
    status = ["status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", "mgg", "kernels"]
    try:
        done = subprocess.run(  # nosec B603 B607
            ["git", "-C", str(root), *status],
            capture_output=True, check=True, text=True, timeout=30, env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    head = re.search(r"^# branch\.oid ([0-9a-f]{40,64})$", done.stdout, re.MULTILINE)
    changed = any(not line.startswith("#") for line in done.stdout.splitlines())
    return head and head[1] + "-dirty" * changed


def this_host(gpus: Iterable[str] = ()) -> str:
    """Return the id of this host: a hash of its processor, core count, memory and GPU models.

    The id covers the whole host, not only the job's share. Hosts with equal hardware have equal ids, and software
    changes do not alter the id.

    Args:
        gpus: models of the job's GPUs, for hosts whose driver does not list them.
    """
    models = {model for model in gpus if model}
    for file in _GPUS.glob("*/information"):
        with suppress(OSError):
            models |= set(re.findall(r"^Model:\s*(.*\S)", file.read_text(encoding="utf-8"), re.MULTILINE))
    memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    facts = [cpu_model(), os.cpu_count(), memory, sorted(models)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def cpu_model() -> str:
    """Return the name of this host's processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
