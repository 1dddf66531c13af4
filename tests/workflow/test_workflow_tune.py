"""Stage tune: only where something takes what it finds, before that, in its place."""

import json
import re

import pytest
from support.workflow import TINY, Folder, job_counts, settings_of

from mgg.errors import InputError
from mgg.records import AggregateRecord, read_lines, read_run

CACHED = {"mgg": {"tune": "cached"}}
TUNED = {
    "partition": {"pes": [1, 2], "quality_pes": []},
    "tune": {"dims": [4]},
    "aggregate": TINY["aggregate"] | {"techniques": ["mgg", "halo"], "options": CACHED},
    "train": TINY["train"] | {"techniques": ["halo", "mgg"], "options": CACHED, "settings": {"gcn": {"hidden": 4}}},
}


@pytest.mark.slow
def test_tune_runs_before_the_stages_that_use_it(folder: Folder):
    folder.overlay(TINY | TUNED)
    shown = folder.run("--dry-run")
    assert shown.returncode == 0, shown.stdout
    counts = job_counts(shown.stdout)
    assert (counts["tune"], counts["aggregate"], counts["train"]) == (2, 2, 2)
    assert "mpiexec -n 2 mgg tune results/layout/planted/p2 --dim 4 --backend auto" in shown.stdout
    assert shown.stdout.count("--set mgg.tune=cached") == 3, "both timings, and the training with mgg"
    folder.overlay(TINY | TUNED | {"aggregate": TINY["aggregate"]})
    counts = job_counts(folder.run("--dry-run").stdout)
    assert (counts["tune"], counts["aggregate"], counts["train"]) == (1, 2, 2), (
        "the training with mgg alone asks for it"
    )
    folder.overlay(TINY | TUNED | {"tune": {"dims": []}})
    shown = folder.run("--dry-run").stdout
    assert "tune" not in job_counts(shown) and "--set mgg.tune=cached" in shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"aggregate": {}, "train": {}},
            "tune.dims: nothing takes what is tuned: set tune: cached of technique mgg in",
        ),
        (
            {"train": TUNED["train"] | {"backend": "simulated"}},
            "tune.dims: tunes with aggregate.backend (auto), and train.backend is simulated: take one for both",
        ),
        (
            {"train": TUNED["train"] | {"options": {"mgg": {"tune": "often"}}}},
            "train.options: technique mgg: option tune",
        ),
    ],
)
def test_invalid_tune_settings_are_refused(changes, said):
    with pytest.raises(InputError, match=re.escape(said)):
        settings_of(TINY | TUNED | changes)


@pytest.mark.slow
def test_tune_runs_from_layout_to_records(folder: Folder):
    alone = {"partition": {"pes": [2], "quality_pes": []}, "train": TUNED["train"] | {"techniques": ["mgg"]}}
    folder.overlay(TINY | TUNED | alone)
    environment = folder.environment(XDG_CACHE_HOME=str(folder.path / "cache"))
    run = folder.run(env=environment)
    assert run.returncode == 0, run.stdout
    found = json.loads(folder.made("tune/planted/p2.json").read_text())
    chosen = {each["direction"]: each["chosen"] for each in found}
    records = read_lines(folder.made("aggregate/planted/p2.jsonl"), AggregateRecord)
    (timed,) = [record for record in records if record.technique == "mgg"]
    assert {name: timed.options[name] for name in ("ps", "dist", "wpb")} == chosen["forward"]
    trained, _ = read_run(folder.made("train/planted/gcn-mgg-p2-s0"))
    assert trained.tuning.forward.model_dump() == chosen["forward"]
    assert trained.tuning.transpose.model_dump() == chosen["transpose"]
    again = folder.run(env=environment)
    assert again.returncode == 0 and "Nothing to be done" in again.stdout, again.stdout
