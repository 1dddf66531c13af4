"""Options of mgg's commands, by the sections of the config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mgg.config import (
    AggregateConfig,
    Config,
    DatasetConfig,
    LookupConfig,
    PredictConfig,
    ReportConfig,
    TrainConfig,
)
from mgg.naming import model_name


def flags(**switches: object) -> list[str]:
    """Return the command line flags that are switched on."""
    return [f"--{name.replace('_', '-')}" for name, on in switches.items() if on]


def assignments(values: Mapping[str, Any]) -> list[str]:
    """Return --set key=value for every option."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def graph_options(name: str, dataset: DatasetConfig) -> list[str]:
    """Return the optional arguments of mgg graph."""
    named = ["--name", name] if dataset.source else []
    loader = ["--loader", dataset.loader] if dataset.loader else []
    assigned = [
        f"{role}={each}"
        for role, names in dataset.column.items()
        for each in ([names] if isinstance(names, str) else names)
    ]
    columns = [word for each in assigned for word in ("--column", each)]
    columns += ["--columns", ",".join(dataset.columns)] if dataset.columns else []
    repeats = ["--repeats", dataset.repeats] if dataset.repeats else []
    loops = ["--loops", dataset.loops] if dataset.loops else []
    return named + loader + columns + repeats + loops + flags(symmetrize=dataset.symmetrize, labels=dataset.labels)


def generator_options(dataset: DatasetConfig, factor: float) -> list[str]:
    """Return the options of mgg generate, which keeps its defaults for what the config leaves open.

    ``factor`` multiplies the scale.
    """
    scale = dataset.scale if factor == 1 else (dataset.scale or 1.0) * factor
    given = {"--scale": scale, "--seed": dataset.seed, "--features": dataset.features, "--classes": dataset.classes}
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    return words + flags(shuffle=dataset.shuffle)


def spelled(name: str, grid: Mapping[str, Any]) -> str:
    """Return a grid of options in the notation of mgg aggregate and mgg predict."""
    from mgg.aggregate import variants

    return variants.spell(name, grid)


def aggregate_options(section: AggregateConfig) -> list[str]:
    """Return the options of mgg aggregate, except for where it runs."""
    words = ["--technique", ",".join(section.techniques), "--dim", ",".join(map(str, section.dims))]
    words += ["--dtype", ",".join(section.dtypes), "--backend", section.backend]
    words += ["--launches", str(section.launches), "--warmup", str(section.warmup)]
    words += ["--threads", str(section.threads)] if section.threads > 1 else []
    words += ["--iterations", str(section.iterations)]
    options = {
        f"{name}.{key}": value
        for name, chosen in section.options.items()
        if name in section.techniques
        for key, value in chosen.items()
    }
    switches = flags(
        transpose=section.transpose,
        no_check=not section.check,
        breakdown=section.breakdown,
        faults=section.faults,
        profile=section.profile,
    )
    return words + switches + assignments(options) + sweep(section)


def latency_options(section: AggregateConfig) -> list[str]:
    """Return the options of mgg links --latency."""
    return ["--latency", "--backend", section.backend]


def network_options(section: AggregateConfig | TrainConfig, pes: int | str) -> list[str]:
    """Return the network emulation option of a job of stage aggregate or train; none for a single PE."""
    held = section.emulate_network
    return ["--emulate-network", held] if held is not None and int(pes) > 1 else []


def sweep(section: AggregateConfig | PredictConfig) -> list[str]:
    """Return --variant for every set of options of a section's techniques."""
    return [
        word
        for name, grids in section.variants.items()
        if name in section.techniques
        for grid in grids
        for word in ("--variant", spelled(name, grid))
    ]


def learners(section: TrainConfig) -> Iterator[tuple[str, str, int, list[str]]]:
    """Yield each run, except its seed, as (name in results, model, number of PEs, options)."""
    for model in map(model_name, section.models):
        for pes in section.pes:
            for technique in section.techniques:
                yield technique, model, pes, ["--technique", technique]
                if model in section.sides.get("unfused", ()):
                    yield f"{technique}-unfused", model, pes, ["--technique", technique, "--side", "unfused"]
            for side, models in section.sides.items():
                if model in models and side != "unfused" and pes == 1:
                    yield side, model, pes, ["--side", side]


def takes_tuned(section: AggregateConfig | TrainConfig) -> bool:
    """Return whether technique mgg uses tuned settings in stage aggregate or train."""
    sets = [section.options.get("mgg", {}), *getattr(section, "variants", {}).get("mgg", [])]
    asked = [value for each in sets for key, value in each.items() if key == "tune"]
    return "mgg" in section.techniques and any(
        "cached" in (value if isinstance(value, list) else [value]) for value in asked
    )


def tune_options(settings: Config) -> list[str]:
    """Return the options of mgg tune: the technique's options for products, except those that are tuned."""
    words = ["--dim", ",".join(map(str, settings.tune.dims)), "--backend", settings.aggregate.backend]
    section: AggregateConfig | TrainConfig = settings.aggregate if takes_tuned(settings.aggregate) else settings.train
    chosen = ("tune", "ps", "dist", "wpb")
    given = {name: value for name, value in section.options.get("mgg", {}).items() if name not in chosen}
    return words + assignments(given)


def predict_options(section: PredictConfig) -> list[str]:
    """Return the options of mgg predict."""
    words = ["--technique", ",".join(section.techniques), "--dim", ",".join(map(str, section.dims))]
    words += ["--dtype", section.dtype, "--machine", section.machine]
    fields = [
        word
        for name, link in section.links.items()
        for key, value in link.model_dump(exclude_none=True).items()
        for word in ("--link", f"{name}.{key}={value}")
    ]
    words += ["--emulate-network", section.emulate_network] if section.emulate_network else []
    return words + sweep(section) + fields + (["--network", section.network] if section.network else [])


def what_is_predicted(section: PredictConfig) -> dict[str, Any]:
    """Return everything that predictions depend on besides partitions; for a machine's file, its contents."""
    file = Path(section.machine)
    found: dict[str, Any] = {"options": predict_options(section), "pes": section.pes}
    return found | ({"machine": file.read_text(encoding="utf-8")} if file.is_file() else {})


def samples_options(section: LookupConfig) -> list[str]:
    """Return the options of mgg generate criteo-like."""
    return ["--scale", str(section.scale), "--seed", str(section.seed), "--samples", str(section.samples)]


def lookup_options(section: LookupConfig) -> list[str]:
    """Return the options of mgg lookup, except for where it runs."""
    words = ["--sides", ",".join(section.sides), "--dim", str(section.dim)]
    words += ["--batches", ",".join(map(str, section.batches)), "--backend", section.backend]
    words += ["--launches", str(section.launches), "--warmup", str(section.warmup)]
    return [*words, "--iterations", str(section.iterations), *flags(no_check=not section.check)]


def report_options(section: ReportConfig) -> list[str]:
    """Return the optional arguments of mgg report."""
    figures = [word for name in section.figures for word in ("--figure", name)]
    return figures + [word for name, text in section.notes.items() for word in ("--note", f"{name}={text}")]
