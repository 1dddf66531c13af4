"""The names that commands accept. ``mgg list`` prints them, and shells complete them (``mgg completion``)."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from mgg.cli.options import common, say, show, table

#: Module and name of each kind's registry.
REGISTRIES = {
    "generators": ("mgg.graph.generators", "GENERATORS"),
    "techniques": ("mgg.aggregate", "TECHNIQUES"),
    "models": ("mgg.model", "MODELS"),
    "loaders": ("mgg.graph.sources", "LOADERS"),
    "orders": ("mgg.graph.reorder", "ORDERS"),
    "schemes": ("mgg.partition.schemes", "SCHEMES"),
}
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
KINDS = ("datasets", *REGISTRIES, "experiments")

Row = dict[str, str | int | None]


def registry(kind: str) -> Any:
    """The registry of ``kind``, a key of ``REGISTRIES``."""
    package, name = REGISTRIES[kind]
    return getattr(importlib.import_module(package), name)


def rows(kind: str) -> tuple[list[Row], list[str]]:
    """One row per name of ``kind``, sorted by name, and the errors of the files that cannot be read."""
    found: list[Row]
    if kind == "datasets":
        from mgg.graph.datasets import catalog

        counts = ("nodes", "arcs", "features", "classes")
        found = [
            {"name": name, **{each: getattr(one, each) for each in counts}, "loader": one.loader, "about": one.title}
            for name, one in sorted(catalog().items())
        ]
        return found, []
    if kind == "experiments":
        from mgg.report.papers.catalogue import EXPERIMENTS, FORESEEN

        shown = {name: f"{one.source}: {one.title}" for name, one in (EXPERIMENTS | FORESEEN).items()}
        return [{"name": name, "about": about} for name, about in sorted(shown.items())], []
    held = registry(kind)
    fields = ("nodes", "arcs", "features") if kind == "generators" else ()
    found = [
        {"name": name} | ({each: getattr(one, each) for each in fields} or {"about": _about(one)})
        for name, one in held.all().items()
    ]
    return found, [str(error) for error in held.broken.values()]


def _about(registered: Any) -> str:
    """The first paragraph of the docstring of the module that holds something."""
    module = registered if inspect.ismodule(registered) else inspect.getmodule(getattr(registered, "rank", registered))
    text = " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())
    return re.sub(r"^Technique ``\w+``(: |, )", "", text).replace("``", "")


def completes(kind: str, files: bool = False) -> Callable[..., list[CompletionItem]]:
    """Return a function that completes an option or argument by the names of ``kind``.

    In a comma-separated list it completes the last name.

    Args:
        kind: one of ``KINDS``.
        files: paths are accepted, too; the shell completes them where no name fits.
    """

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        before, comma, last = typed.rpartition(",")
        names = (str(each["name"]) for each in rows(kind)[0])
        found = [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]
        return found or [CompletionItem(typed, type="file")] * files

    return complete


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS))
@common
def list_names(kind: str, as_json: bool) -> None:
    """List all names of one KIND, with a line about each."""
    found, broken = rows(kind)
    if as_json:
        show({kind: found}, True)
    else:
        say(table(found))
    for error in broken:
        say(f"mgg: could not be read: {error}", err=True)


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@common
def completion(shell: str, as_json: bool) -> None:
    """Print what makes SHELL complete commands, options and names.

    \b
    bash: mgg completion bash > ~/.local/share/bash-completion/completions/mgg
    zsh:  mgg completion zsh > ~/.mgg.zsh; echo 'source ~/.mgg.zsh' >> ~/.zshrc
    fish: mgg completion fish > ~/.config/fish/completions/mgg.fish
    """
    script = _SHELLS[shell](click.get_current_context().find_root().command, {}, "mgg", "_MGG_COMPLETE").source()
    if as_json:
        show({"shell": shell, "script": script}, True)
    else:
        say(script)
