"""Single bytes of any output that is read back, changed: one line that names a file of it, or the same numbers."""

import os
from collections import Counter

import numpy as np
import pytest
from support.records.outputs import changed, contents, make

from mgg.errors import InputError

#: Changes of one run; `MGG_CHANGES=2000 pytest -s tests/train/run/test_train_altered.py` is the long form.
CHANGES = int(os.environ.get("MGG_CHANGES", "80"))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return make(tmp_path_factory.mktemp("outputs"))


def test_changed_byte_is_detected_or_harmless(kinds):
    rng, outcomes = np.random.default_rng(24), Counter()
    before = {kind.name: contents(kind.read()) for kind in kinds}
    for number in range(CHANGES):
        kind = kinds[number % len(kinds)]
        path = kind.files[rng.integers(len(kind.files))]
        data = path.read_bytes()
        other = changed(data, rng)
        path.write_bytes(other)
        try:
            found = contents(kind.read())
        except InputError as error:
            # Keys, weights and types of a bucket have one sum, which cannot tell them apart.
            named = path.parent if path.suffix == ".bin" else path
            assert str(named) in str(error) and "\n" not in str(error), (kind.name, path, error)
            outcomes[kind.name, "refused"] += 1
        else:
            assert found == before[kind.name], f"{kind.name}: {path} gives other numbers"
            outcomes[kind.name, "the same"] += 1
        path.write_bytes(data)
    print(*(f"{name}: {count} {outcome}" for (name, outcome), count in sorted(outcomes.items())), sep="\n")
    assert {kind.name: contents(kind.read()) for kind in kinds} == before
    assert sum(count for (_, outcome), count in outcomes.items() if outcome == "refused") > 0.6 * CHANGES
