"""TensorBoard event files: one scalar a field and epoch; without tensorboardX one line says how to get it."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest
from support.train_program import run

from mgg.errors import MachineError
from mgg.train.board import Board

OPTIONS = {"model": "gcn", "technique": "halo", "epochs": 3}


def test_without_tensorboardx_the_message_says_how_to_get_it(layouts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MachineError, match=r"--tensorboard: .*pip install 'mgg\[tensorboard\]'"):
        run("simulated", layouts("planted", 2), 2, tensorboard=tmp_path / "board", **OPTIONS)
    assert not (tmp_path / "board").exists()


@pytest.mark.parametrize("done", [0, 5])
def test_what_earlier_files_have_beyond_is_forgotten(done, tmp_path, monkeypatch):
    """That of an earlier run in the folder, too: a run that starts anew forgets all of it."""
    asked = []
    monkeypatch.setitem(
        sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=lambda folder, purge_step: asked.append(purge_step))
    )
    Board(tmp_path, "accuracy", done)
    assert asked == [done + 1]


@pytest.mark.skipif(importlib.util.find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
def test_every_epoch_is_in_the_event_file(layouts, tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    found = run("simulated", layouts("planted", 2), 2, tensorboard=tmp_path / "board", phases=True, **OPTIONS)[0]
    (path,) = (tmp_path / "board").iterdir()
    data, scalars, begins = path.read_bytes(), {}, []
    while data:  # length (8 bytes), its checksum (4), event, its checksum (4)
        length = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]
        begins += [event.step] if event.HasField("session_log") else []
        for value in event.summary.value:
            scalars[value.tag, event.step] = value.simple_value
    for epoch in found.epochs:
        assert scalars["loss/train", epoch.epoch] == pytest.approx(epoch.loss)
        assert scalars["accuracy/test", epoch.epoch] == pytest.approx(epoch.test_accuracy)
        assert scalars["seconds/aggregate", epoch.epoch] == pytest.approx(epoch.aggregate)
        assert scalars["loss/validation", epoch.epoch] == pytest.approx(epoch.validation_loss)
    assert len(scalars) == 3 * 10
    assert begins == [1]  # TensorBoard forgets what earlier files have from there on
