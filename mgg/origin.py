"""Where a record comes from: the run, the time, the MGG, the settings and the machine (docs/format.md, "Origin")."""

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

#: Variables by which whoever starts several commands says that they are one run, which settings they are of, and where
#: and on what they run.
RUN_ID, CONFIG_HASH, PLACE = "MGG_RUN_ID", "MGG_CONFIG_HASH", "MGG_PLACE"
RUN_PATTERN: str = r"^[A-Za-z0-9._-]{1,64}$"
HASH_PATTERN: str = r"^[0-9a-f]{64}$"
PLACE_PATTERN: str = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"
#: What only says where results go and what is shown of them.
_NO_SETTINGS = {"out", "as_json", "replace", "resume", "progress", "tensorboard"}
_GPUS = Path("/proc/driver/nvidia/gpus")


class _Command:
    """What this process runs."""

    run_id = secrets.token_hex(8)
    config_hash: str | None = None


def share(settings: Mapping[str, Any]) -> None:
    """From here on what this process and those that it starts record is of one run, over these ``settings``."""
    os.environ.setdefault(RUN_ID, _Command.run_id)
    os.environ[CONFIG_HASH] = settings_hash(settings)
    begin("", {})


def begin(command: str, options: Mapping[str, Any]) -> None:
    """A command begins: its records are of one run, and its ``options`` are their settings.

    Raises:
        InputError: the environment's run, hash or place is none.
    """
    for name, pattern in ((RUN_ID, RUN_PATTERN), (CONFIG_HASH, HASH_PATTERN), (PLACE, PLACE_PATTERN)):
        if name in os.environ and not re.fullmatch(pattern, os.environ[name]):
            raise InputError(f"${name}: {os.environ[name]!r} does not match {pattern}: unset it")
    _Command.run_id = os.environ.get(RUN_ID) or secrets.token_hex(8)
    settings = {name: value for name, value in options.items() if name not in _NO_SETTINGS and not _is_path(value)}
    _Command.config_hash = os.environ.get(CONFIG_HASH) or settings_hash({"command": command} | settings)


def _is_path(value: Any) -> bool:
    """Records name graphs and layouts by their hashes, wherever they lie."""
    return isinstance(value, Path) or (isinstance(value, (tuple, list)) and any(isinstance(v, Path) for v in value))


def settings_hash(settings: Mapping[str, Any]) -> str:
    """sha256 of settings as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def origin(hosts: Iterable[str] = ()) -> dict[str, str | None]:
    """The fields of a record (``mgg.record.Origin``) that say where it comes from, as of now.

    Args:
        hosts: ``this_host`` of the hosts that the record was measured on; by default of this one.
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
    """The commit of MGG's sources, with ``-dirty`` where they were changed since; None where nothing tells."""
    with suppress(metadata.PackageNotFoundError, ValueError):
        installed = metadata.distribution("mgg").read_text("direct_url.json")
        if found := json.loads(installed or "{}").get("vcs_info", {}).get("commit_id"):
            return str(found)
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():  # around an installed MGG there may be the repository of something else
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
    """The id of a host: of its processor, cores, memory and GPU models, whatever part of them a job was given.

    Hosts that are alike in all of these have the same; so has a host after its software has changed.

    Args:
        gpus: models of GPUs that the job has, for hosts whose driver does not list them.
    """
    models = {model for model in gpus if model}
    for file in _GPUS.glob("*/information"):
        with suppress(OSError):
            models |= set(re.findall(r"^Model:\s*(.*\S)", file.read_text(encoding="utf-8"), re.MULTILINE))
    memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    facts = [cpu_model(), os.cpu_count(), memory, sorted(models)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def cpu_model() -> str:
    """What this host calls its processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
