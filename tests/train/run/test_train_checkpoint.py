"""The files of checkpoints: what is kept, torn, of another version, or cannot be written."""

import json
import logging
import math
import os
import struct
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file
from support.programs.train_program import Stop
from support.ranks.stopped import ALWAYS
from support.ranks.syncs import note_syncs

from mgg.errors import InputError, MachineError, StoppedError
from mgg.records import EpochRecord
from mgg.train.run import checkpoint
from mgg.train.run.checkpoint import Checkpoint, Checkpoints, History
from mgg.train.run.identity import Identity
from mgg.train.run.output import digest

EPOCH_FIELDS = [
    "epoch", "loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_accuracy", "seconds",
]  # fmt: skip
IDENTITY = Identity(
    model="gcn", dataset="none", graph_hash="", pes=1, layout="", device="CPUs", technique="halo", options={}, seed=0,
    settings={},
)  # fmt: skip


def written(here, *histories):
    """The checkpoints of a run that has written some."""
    checkpoints = Checkpoints(here / "run.checkpoint", IDENTITY, 45)
    for history in histories or [History()]:
        checkpoints.save(Checkpoint(history))
        checkpoints.wait()
    return checkpoints


@pytest.mark.parametrize(("passed", "epoch", "due"), [(5, 2, False), (7.5, 2, True), (0, 11, True)])
def test_checkpoint_interval_includes_the_writing_time(passed, epoch, due, tmp_path, monkeypatch):
    """Ten seconds, of which the one before took one to be written."""
    clock = [0.0]
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    sync = checkpoint.sync
    monkeypatch.setattr(checkpoint, "sync", lambda path: (sync(path), clock.__setitem__(0, clock[0] + 0.5)))
    checkpoints = written(tmp_path)
    clock[0] = passed
    assert checkpoints.due(10, epoch) is due


def test_checkpoints_have_the_default_file_mode(tmp_path):
    before = os.umask(0o027)
    try:
        assert written(tmp_path).wait().stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


@pytest.fixture
def full_disk(monkeypatch):
    """``full_disk()``: from then on ``save_file`` finds no space."""

    def full(tensors, path, metadata):
        path.write_bytes(b"half of it")
        raise SafetensorError("I/O error: No space left on device")

    return lambda: monkeypatch.setattr(checkpoint, "save_file", full)


def test_failed_checkpoint_leaves_no_file(runs, full_disk, caplog):
    """What a full disk has of it would take the place of the next; a whole run needs none, and says so at its end."""
    full_disk()
    said = "epoch-000001.safetensors: cannot be written: I/O error: No space left on device"
    with pytest.raises(MachineError, match=said):
        runs.train(checkpoint_every=ALWAYS)
    assert runs.files() == []
    runs.train(checkpoint_every=ALWAYS, epochs=2)
    assert (runs.out / "run.json").is_file()
    assert not runs.out.with_name("run.checkpoint").exists()
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert said in warning


def test_divergence_on_a_full_disk_names_the_newest_checkpoint(tmp_path, full_disk, caplog):
    """So that a divergence is told, and not the full disk."""
    checkpoints = written(tmp_path)
    full_disk()
    checkpoints.save(Checkpoint(History()))
    assert checkpoints.newest().name == "epoch-000000.safetensors"
    assert "cannot be written: I/O error: No space left on device" in caplog.text


def test_torn_checkpoint_is_not_the_newest(tmp_path):
    """An empty one is torn; one that cannot be read does not go with it."""
    written(tmp_path)
    torn, away = (tmp_path / f"run.checkpoint/epoch-00000{epoch}.safetensors" for epoch in (8, 9))
    torn.touch()
    away.mkdir()  # reading it is an OSError
    later = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    assert later.load() is not None
    assert later.newest() == tmp_path / "run.checkpoint/epoch-000000.safetensors"
    later.save(Checkpoint(History()))
    later.wait()
    assert not torn.exists() and away.exists()


def test_first_checkpoint_syncs_its_folder(tmp_path, monkeypatch):
    """What is around it as well, where that was made; later ones need the folder alone."""
    synced, folder = note_syncs(monkeypatch), f"{tmp_path}/deep/run.checkpoint"
    checkpoints = written(tmp_path / "deep")
    assert {str(tmp_path), f"{tmp_path}/deep", folder} < {*synced}
    synced.clear()
    checkpoints.save(Checkpoint(History()))
    checkpoints.wait()
    assert sorted(synced) == [folder, f"{folder}/epoch-000000.part"]


def bits(records):
    """Every field of each record: type and bits, so that NaN is NaN and -0.0 is not 0.0."""
    return [
        [(name, type(value), struct.pack("d", value) if isinstance(value, float) else value) for name, value in record]
        for record in records
    ]


def test_epochs_are_restored_bit_by_bit(tmp_path):
    odd = [0.1 + 0.2, -0.0, math.nan, math.inf, 5e-324, struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_BEEF))[0]]
    same = {"train_accuracy": 1 / 3, "test_accuracy": -0.0, "seconds": 1e-300}
    epochs = [
        EpochRecord(epoch=number + 2**40, loss=value, validation_loss=None if number % 2 else value, **same)
        for number, value in enumerate(odd)
    ]
    # As after a resume with --phases.
    epochs[3:] = [epoch.model_copy(update={"aggregate": epoch.loss, "other": 0.0}) for epoch in epochs[3:]]
    histories = [History(epochs=epochs[:done], best_epoch=done, bytes_wire=7) for done in (0, 2, len(epochs))]
    for number, history in enumerate(histories):
        written(tmp_path, *histories[: number + 1])
        found = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45).load()
        assert bits(found.history.epochs) == bits(history.epochs)
        assert (found.history.best_epoch, found.history.bytes_wire, found.groups) == (history.best_epoch, 7, {})


def test_checkpoint_header_does_not_grow_with_epochs(tmp_path):
    """The header of the file, which holds 100 MB at most, does not grow with them."""
    same = {"loss": 1 / 3, "train_accuracy": 1 / 3, "validation_loss": 1 / 3, "test_accuracy": 1 / 3, "seconds": 1 / 3}
    history = History(epochs=[EpochRecord(epoch=1, **same)] * 1000)
    with safe_open(written(tmp_path, history).wait(), framework="numpy") as file:
        assert len(file.metadata()["mgg"]) < 1000
    assert Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45).load().history == history


def test_slow_disk_skips_checkpoints(runs, monkeypatch, caplog):
    """All but the first are left out until a stop, which waits for both that one and its own."""
    write, asked = Checkpoints._write, threading.Event()

    class StopThen(Stop):
        def is_set(self):
            if super().is_set():
                asked.set()
            return asked.is_set()

    monkeypatch.setattr(Checkpoints, "_write", lambda *given: [asked.wait(30), write(*given)][1])
    monkeypatch.setattr(checkpoint, "LONGEST_PAUSE", 0.01)
    with pytest.raises(StoppedError):
        runs.train(checkpoint_every=ALWAYS, stop=StopThen(6))
    left_out = [record.args[1] for record in caplog.records if "too slow" in record.message]
    assert left_out == [2, 3, 4, 5]
    assert runs.names() == ["epoch-000001.safetensors", "epoch-000006.safetensors"]


@pytest.mark.slow
def test_slow_disk_is_no_stall(runs, monkeypatch):
    """However short the limit is: the pause for the checkpoint before is a part of it."""
    write = Checkpoints._write
    monkeypatch.setattr(Checkpoints, "_write", lambda *given: [time.sleep(2), write(*given)][1])
    runs.train(checkpoint_every=ALWAYS, epochs=3, stall_after=1.0)


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
def test_torn_checkpoint_is_skipped(damage, runs, caplog):
    older, newest = runs.stop(6, checkpoint_every=ALWAYS)
    assert runs.names() == ["epoch-000005.safetensors", "epoch-000006.safetensors"]
    content = newest.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    newest.write_bytes({"truncated": content[: len(content) // 2], "altered": flipped, "empty": b""}[damage])
    runs.resume()
    assert f"{newest}: torn or altered" in caplog.text
    runs.check()
    assert not older.exists()


def test_torn_checkpoint_does_not_displace_a_whole_one(runs):
    """Also where its epoch is ahead of the run that was resumed before it: it goes once there is a new one."""
    newest = runs.stop(4, checkpoint_every=ALWAYS)[-1]
    newest.with_name("epoch-000009.safetensors").write_bytes(b"torn")
    runs.stop(6, done=4, resume=True, checkpoint_every=ALWAYS)
    assert runs.names() == ["epoch-000005.safetensors", "epoch-000006.safetensors"]
    runs.resume()
    runs.check()


def test_torn_checkpoint_stays_until_a_new_one_is_written(runs, full_disk):
    for path in (paths := runs.stop(4, checkpoint_every=ALWAYS))[1:]:
        path.write_bytes(b"torn")
    full_disk()
    with pytest.raises(MachineError, match="cannot be written"):
        runs.resume(checkpoint_every=ALWAYS)
    assert runs.files() == paths
    paths[0].write_bytes(b"torn")
    with pytest.raises(InputError, match=r"epoch-000003.safetensors: torn or altered, .* remove .*run.checkpoint"):
        runs.resume()


def rewrite(path, change):
    """Have ``change(meta, tensors)`` change what a checkpoint holds; its hash is right again."""
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        meta = json.loads(file.metadata()["mgg"])
    change(meta, tensors)
    save_file(tensors, path, {"mgg": json.dumps(meta), "sha256": digest(json.dumps(meta), tensors)})


def test_checkpoint_of_an_earlier_version_loads(runs):
    """It did not note the layout and the device; its weights load, and its technique is that of ``auto``."""
    (path,) = runs.stop(5)
    rewrite(path, lambda meta, tensors: [meta["identity"].pop(name) for name in ("scheme", "layout", "device")])
    message = r"epoch-000005\.safetensors: is of an earlier MGG, which did not note the layout .*: to start anew take"
    with pytest.raises(InputError, match=message):
        runs.resume()
    assert checkpoint.kept_choices(runs.out) == ("halo", "return")
    assert checkpoint.read_weights(path, "gcn").keys() == checkpoint.read_weights(path.parent, "gcn").keys()


def test_checkpoint_of_version_1_resumes_bit_by_bit(runs):
    """Its epochs were metadata: it goes on bit by bit."""
    (path,) = runs.stop(5, pes=2)

    def older(meta, tensors):
        columns = {name: tensors.pop(f"epochs/{name}").tolist() for name in EPOCH_FIELDS}
        assert (meta["schema_version"], [name for name in tensors if name.startswith(("epochs/", "given/"))]) == (3, [])
        meta["schema_version"] = 1
        del meta["history"]["tuning"]
        meta["history"]["epochs"] = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]

    rewrite(path, older)
    runs.stop(7, pes=2, done=5, resume=True)
    runs.resume(pes=2)
    runs.check(pes=2)


def test_checkpoint_of_a_later_version_is_refused(runs):
    before = runs.stop(5, checkpoint_every=ALWAYS)
    rewrite(before[-1], lambda meta, tensors: meta.update(schema_version=4))
    message = r"epoch-000005\.safetensors: is of a later MGG \(version 4 of checkpoints, this one reads up to 3\): run"
    for way in ({"resume": True}, {"weights": before[-1], "out": "other"}):
        with pytest.raises(InputError, match=message):
            runs.train(**way)
    assert runs.files() == before
    runs.train()  # a start anew needs none of them
    assert not runs.files()


def test_checkpoints_are_sorted_by_number(runs, capsys):
    """After epoch 999,999 their names are longer."""
    older, newest = runs.stop(6, checkpoint_every=ALWAYS)
    older.rename(older.with_name("epoch-999999.safetensors"))
    newest = newest.rename(newest.with_name("epoch-1000000.safetensors"))
    weights = checkpoint.read_weights(newest.parent, "gcn")
    for name, array in checkpoint.read_weights(newest, "gcn").items():
        np.testing.assert_array_equal(weights[name], array)
    runs.resume(progress=True)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "gcn on test: goes on after epoch 6/12"
    assert second.startswith("gcn on test: epoch 7/12 ")
