"""What we claim of our own techniques, shown the way the papers' claims are."""

from __future__ import annotations

from mgg.report.experiments.kinds import Experiment

EXPERIMENTS = {
    "halo_hidden": Experiment(
        "Is communication hidden?",
        "Technique halo, docs/results/halo.md",
        "",
        "A product of halo should take at most 1.15 times as long as the larger of its two parts alone: pulling the "
        "halo, and all arithmetic, local and remote, on a halo that is there.",
        hidden=True,
    ),
}
