"""What a training loads: nothing that it does not need."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from support.ranks import changed_environment

from mgg.record import EpochRecord
from mgg.train.run.output import Columns

CODE = """
import sys
from mgg.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
#: Packages that lie in an environment with MGG and take a tenth of a second or more.
HEAVY = {"cupy", "matplotlib", "networkx", "pandas", "pymetis", "rich", "sklearn", "snakemake", "torch"}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_a_training_loads_nothing_that_it_does_not_need(model, layouts, tmp_path):
    """From the command line to the run's folder, its Parquet tables among what is written."""
    pytest.importorskip("pandas")  # else nobody could load it
    command = ["train", str(layouts("planted", 1)), "--model", model, "--technique", "local", "--backend", "simulated"]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command, "--epochs", "2", "--out", str(tmp_path / "run")],
        capture_output=True, text=True, check=True, env=changed_environment({}),
    )  # fmt: skip
    assert (tmp_path / "run" / "predictions.parquet").exists()
    assert not HEAVY & set(done.stdout.split())


def test_epochs_as_a_table_are_those_that_arrow_would_make():
    epochs = [
        EpochRecord(
            epoch=number, loss=0.5 / number, train_accuracy=0.0, test_accuracy=1.0, seconds=1e-3,
            validation_loss=None if number % 3 else 0.25 * number, dense=0.0 if number == 2 else None,
        )
        for number in range(1, 12)
    ]  # fmt: skip
    for some in (epochs, epochs[:1], []):
        columns = Columns()
        columns.extend(some)
        table = columns.table()
        table.validate(full=True)
        assert table == pa.Table.from_pylist([epoch.model_dump() for epoch in some], schema=table.schema)
    assert table.schema.field("epoch").type == pa.from_numpy_dtype(np.int64)
    columns.extend(epochs)
    assert columns.table()["dense"].null_count == 10
