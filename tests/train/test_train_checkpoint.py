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
from support.stopped import ALWAYS, BASE, stop_at
from support.syncs import note_syncs
from support.train_program import Stop, checkpoint_files, run, tables

from mgg.errors import InputError, MachineError, StoppedError
from mgg.record import EpochRecord
from mgg.train.run import checkpoint
from mgg.train.run.checkpoint import KEPT, Checkpoint, Checkpoints, History
from mgg.train.run.output import digest
from mgg.train.run.identity import Identity

EPOCH_FIELDS = [
    "epoch", "loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_accuracy", "seconds",
]  # fmt: skip
IDENTITY = Identity(
    model="gcn", dataset="none", graph_hash="", pes=1, layout="", device="CPUs", technique="halo", options={}, seed=0,
    settings={},
)  # fmt: skip


@pytest.mark.parametrize(("passed", "epoch", "due"), [(5, 2, False), (7.5, 2, True), (0, 11, True)])
def test_a_checkpoint_is_due_before_the_interval_is_over(passed, epoch, due, tmp_path, monkeypatch):
    """Ten seconds, of which the one before took one to be written."""
    clock = [0.0]
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    sync = checkpoint.sync
    monkeypatch.setattr(checkpoint, "sync", lambda path: (sync(path), clock.__setitem__(0, clock[0] + 0.5)))
    checkpoints = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    checkpoints.save(Checkpoint(History()))
    checkpoints.wait()
    clock[0] = passed
    assert checkpoints.due(10, epoch) is due


def test_the_newest_two_checkpoints_are_kept(layouts, tmp_path):
    stop_at(6, layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", checkpoint_every=ALWAYS, **BASE)
    names = [path.name for path in checkpoint_files(tmp_path / "run")]
    assert names == ["epoch-000005.safetensors", "epoch-000006.safetensors"]
    assert len(names) == KEPT


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_who_may_read_other_files_may_read_checkpoints(mask, mode, tmp_path):
    checkpoints, before = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45), os.umask(mask)
    try:
        checkpoints.save(Checkpoint(History()))
        assert checkpoints.wait().stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


def full(tensors, path, metadata):
    """As ``save_file`` on a full disk."""
    path.write_bytes(b"half of it")
    raise SafetensorError("I/O error: No space left on device")


def test_a_checkpoint_that_fails_leaves_nothing(layouts, tmp_path, monkeypatch):
    """What a full disk has of it would take the place of the next."""
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(MachineError, match=r"epoch-000001\.safetensors: cannot be written: I/O error: No space left"):
        run(
            "simulated", layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", checkpoint_every=ALWAYS, **BASE
        )  # fmt: skip
    assert checkpoint_files(tmp_path / "run") == []


def test_a_whole_run_needs_no_checkpoint(layouts, tmp_path, monkeypatch, caplog):
    """That the last one failed comes out when the run's folder is there."""
    monkeypatch.setattr(checkpoint, "save_file", full)
    options = {**BASE, "epochs": 2, "model": "gcn", "out": tmp_path / "run", "checkpoint_every": ALWAYS}
    run("simulated", layouts("planted", 1), 1, **options)
    assert (tmp_path / "run/run.json").is_file()
    assert not (tmp_path / "run.checkpoint").exists()
    (said,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "epoch-000001.safetensors: cannot be written: I/O error: No space left on device" in said


def test_the_newest_is_told_when_the_last_one_cannot_be_written(tmp_path, monkeypatch, caplog):
    """So that a divergence is told, and not the full disk."""
    checkpoints = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    checkpoints.save(Checkpoint(History()))
    checkpoints.wait()
    monkeypatch.setattr(checkpoint, "save_file", full)
    checkpoints.save(Checkpoint(History()))
    assert checkpoints.newest().name == "epoch-000000.safetensors"
    assert "cannot be written: I/O error: No space left on device" in caplog.text


def test_the_newest_is_not_a_torn_one(tmp_path):
    """An empty one is torn; one that cannot be read does not go with it."""
    checkpoints = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    checkpoints.save(Checkpoint(History()))
    checkpoints.wait()
    torn, away = (tmp_path / f"run.checkpoint/epoch-00000{epoch}.safetensors" for epoch in (8, 9))
    torn.touch()
    away.mkdir()  # reading it is an OSError
    later = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    assert later.load() is not None
    assert later.newest() == tmp_path / "run.checkpoint/epoch-000000.safetensors"
    later.save(Checkpoint(History()))
    later.wait()
    assert not torn.exists() and away.exists()


def test_the_folder_of_a_first_checkpoint_is_on_the_disk(tmp_path, monkeypatch):
    """What is around it as well, where that was made; later ones need the folder alone."""
    synced = note_syncs(monkeypatch)
    checkpoints = Checkpoints(tmp_path / "deep/run.checkpoint", IDENTITY, 45)
    checkpoints.save(Checkpoint(History()))
    checkpoints.wait()
    assert {str(tmp_path), f"{tmp_path}/deep", f"{tmp_path}/deep/run.checkpoint"} < {*synced}
    synced.clear()
    checkpoints.save(Checkpoint(History()))
    checkpoints.wait()
    assert sorted(synced) == [
        f"{tmp_path}/deep/run.checkpoint", f"{tmp_path}/deep/run.checkpoint/epoch-000000.part",
    ]  # fmt: skip


def bits(records):
    """Every field of each record: type and bits, so that NaN is NaN and -0.0 is not 0.0."""
    return [
        [(name, type(value), struct.pack("d", value) if isinstance(value, float) else value) for name, value in record]
        for record in records
    ]


def test_epochs_come_back_bit_by_bit(tmp_path):
    odd = [0.1 + 0.2, -0.0, math.nan, math.inf, 5e-324, struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_BEEF))[0]]
    same = {"train_accuracy": 1 / 3, "test_accuracy": -0.0, "seconds": 1e-300}
    epochs = [
        EpochRecord(epoch=number + 2**40, loss=value, validation_loss=None if number % 2 else value, **same)
        for number, value in enumerate(odd)
    ]
    # As after a resume with --phases.
    epochs[3:] = [epoch.model_copy(update={"aggregate": epoch.loss, "other": 0.0}) for epoch in epochs[3:]]
    checkpoints = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    for done in (0, 2, len(epochs)):
        checkpoints.save(Checkpoint(History(epochs=epochs[:done], best_epoch=done, bytes_wire=7)))
        checkpoints.wait()
        found = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45).load()
        assert bits(found.history.epochs) == bits(epochs[:done])
        assert (found.history.best_epoch, found.history.bytes_wire, found.groups) == (done, 7, {})


@pytest.mark.slow
def test_a_checkpoint_after_very_many_epochs(tmp_path):
    """The header of the file holds 100 MB at most."""
    epoch = EpochRecord(
        epoch=1, loss=1 / 3, train_accuracy=1 / 3, validation_loss=1 / 3, validation_accuracy=1 / 3,
        test_accuracy=1 / 3, seconds=1 / 3,
    )  # fmt: skip
    history = History(epochs=[epoch] * 450_000)
    checkpoints = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    checkpoints.save(Checkpoint(history))
    with safe_open(checkpoints.wait(), framework="numpy") as file:
        assert len(file.metadata()["mgg"]) < 1000
    assert Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45).load().history == history


def test_a_disk_that_is_too_slow_does_not_stop_a_run(layouts, tmp_path, monkeypatch, caplog):
    """All but the first are left out until a stop, which waits for both that one and its own."""
    write, asked = Checkpoints._write, threading.Event()

    def slow(checkpoints, checkpoint):
        asked.wait(30)
        return write(checkpoints, checkpoint)

    class StopThen(Stop):
        def is_set(self):
            if super().is_set():
                asked.set()
            return asked.is_set()

    monkeypatch.setattr(Checkpoints, "_write", slow)
    monkeypatch.setattr(checkpoint, "LONGEST_PAUSE", 0.01)
    with pytest.raises(StoppedError):
        run(
            "simulated", layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", checkpoint_every=ALWAYS,
            stop=StopThen(6), **BASE,
        )  # fmt: skip
    left_out = [record.args[1] for record in caplog.records if "too slow" in record.message]
    assert left_out == [2, 3, 4, 5]
    assert [path.name for path in checkpoint_files(tmp_path / "run")] == [
        "epoch-000001.safetensors", "epoch-000006.safetensors",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_slow_disk_is_not_taken_for_a_stall(layouts, tmp_path, monkeypatch):
    """However short the limit is: the pause for the checkpoint before is a part of it."""
    write = Checkpoints._write
    monkeypatch.setattr(Checkpoints, "_write", lambda *given: [time.sleep(4), write(*given)][1])
    options = {**BASE, "epochs": 3, "stall_after": 2.0}
    run("simulated", layouts("planted", 1), 1, model="gcn", out=tmp_path / "run", checkpoint_every=ALWAYS, **options)


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
def test_a_torn_checkpoint_is_skipped(damage, layouts, tmp_path, caplog):
    folder, out = layouts("planted", 1), tmp_path / "run"
    stop_at(6, folder, 1, model="gcn", out=out, checkpoint_every=ALWAYS, **BASE)
    older, newest = checkpoint_files(out)
    content = newest.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    newest.write_bytes({"truncated": content[: len(content) // 2], "altered": flipped, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        run("simulated", folder, 1, model="gcn", out=out, resume=True, **BASE)
    assert f"{newest}: torn or altered" in caplog.text
    run("simulated", folder, 1, model="gcn", out=tmp_path / "whole", **BASE)
    assert tables(out) == tables(tmp_path / "whole")
    assert not older.exists()


def test_one_that_somebody_else_has_removed_is_no_error(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path / "run.checkpoint", IDENTITY, 45)
    superseded = Checkpoints._superseded

    def removed(self, written):
        found = superseded(self, written)
        for path in found:
            path.unlink()
        return found

    monkeypatch.setattr(Checkpoints, "_superseded", removed)
    epochs = [EpochRecord(epoch=each, loss=1, train_accuracy=1, test_accuracy=1, seconds=1) for each in (1, 2, 3)]
    for done in (1, 2, 3):
        checkpoints.save(Checkpoint(History(epochs=epochs[:done])))
        checkpoints.wait()
    assert [path.name for path in checkpoint_files(tmp_path / "run")] == [f"epoch-00000{n}.safetensors" for n in (2, 3)]


def test_a_torn_checkpoint_takes_no_place_of_a_whole_one(layouts, tmp_path):
    """Also where its epoch is ahead of the run that was resumed before it: it goes once there is a new one."""
    folder, out = layouts("planted", 1), tmp_path / "run"
    options = {"model": "gcn", "out": out, "checkpoint_every": ALWAYS, **BASE}
    stop_at(4, folder, 1, **options)
    torn = checkpoint_files(out)[-1].with_name("epoch-000009.safetensors")
    torn.write_bytes(b"torn")
    stop_at(6, folder, 1, done=4, resume=True, **options)
    assert [path.name for path in checkpoint_files(out)] == ["epoch-000005.safetensors", "epoch-000006.safetensors"]
    run("simulated", folder, 1, resume=True, **options)
    run("simulated", folder, 1, **{**options, "out": tmp_path / "whole"})
    assert tables(out) == tables(tmp_path / "whole")


def test_a_torn_checkpoint_is_written_again(layouts, tmp_path):
    folder, out = layouts("planted", 1), tmp_path / "run"
    options = {"model": "gcn", "out": out, "checkpoint_every": ALWAYS, **BASE}
    stop_at(4, folder, 1, **options)
    older, torn = checkpoint_files(out)
    torn.write_bytes(b"torn")
    stop_at(4, folder, 1, done=3, resume=True, **options)
    assert checkpoint_files(out) == [older, torn]
    assert len(checkpoint._read(torn)[1]["epochs"]["epoch"]) == 4


def test_what_is_torn_stays_until_a_new_one_is_written(layouts, tmp_path, monkeypatch):
    folder, out = layouts("planted", 1), tmp_path / "run"
    options = {"model": "gcn", "out": out, "checkpoint_every": ALWAYS, **BASE}
    stop_at(4, folder, 1, **options)
    checkpoint_files(out)[-1].with_name("epoch-000009.safetensors").write_bytes(b"torn")
    before = checkpoint_files(out)
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(MachineError, match="cannot be written"):
        run("simulated", folder, 1, resume=True, **options)
    assert checkpoint_files(out) == before


def test_only_torn_checkpoints_is_an_error(layouts, tmp_path):
    folder, out = layouts("planted", 1), tmp_path / "run"
    stop_at(3, folder, 1, model="gcn", out=out, **BASE)
    checkpoint_files(out)[0].write_bytes(b"torn")
    with pytest.raises(InputError, match=r"epoch-000003.safetensors: torn or altered, .* remove .*run.checkpoint"):
        run("simulated", folder, 1, model="gcn", out=out, resume=True, **BASE)


def rewrite(path, change):
    """Have ``change(meta, tensors)`` change what a checkpoint holds; its hash is right again."""
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        meta = json.loads(file.metadata()["mgg"])
    change(meta, tensors)
    save_file(tensors, path, {"mgg": json.dumps(meta), "sha256": digest(json.dumps(meta), tensors)})


def test_a_checkpoint_of_an_earlier_version(layouts, tmp_path):
    """It did not note the layout and the device; its weights load, and its technique is that of ``auto``."""
    options = {"model": "gcn", "out": tmp_path / "run", **BASE}
    stop_at(5, layouts("planted", 1), 1, **options)
    (path,) = checkpoint_files(tmp_path / "run")

    def unnoted(meta, tensors):
        for name in ("scheme", "layout", "device"):
            del meta["identity"][name]

    rewrite(path, unnoted)
    message = r"epoch-000005\.safetensors: is of an earlier MGG, which did not note the layout .*: to start anew take"
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 1), 1, resume=True, **options)
    assert checkpoint.kept_choices(tmp_path / "run") == ("halo", "return")
    assert checkpoint.read_weights(path, "gcn").keys() == checkpoint.read_weights(path.parent, "gcn").keys()


def test_a_checkpoint_of_version_1(layouts, tmp_path):
    """Its epochs were metadata: it goes on bit by bit."""
    options = {"model": "gcn", "out": tmp_path / "run", **BASE}
    stop_at(5, layouts("planted", 2), 2, **options)
    (path,) = checkpoint_files(tmp_path / "run")

    def older(meta, tensors):
        columns = {name: tensors.pop(f"epochs/{name}").tolist() for name in EPOCH_FIELDS}
        assert (meta["schema_version"], [name for name in tensors if name.startswith(("epochs/", "given/"))]) == (3, [])
        meta["schema_version"] = 1
        del meta["history"]["tuning"]
        meta["history"]["epochs"] = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]

    rewrite(path, older)
    stop_at(7, layouts("planted", 2), 2, done=5, resume=True, **options)
    run("simulated", layouts("planted", 2), 2, resume=True, **options)
    run("simulated", layouts("planted", 2), 2, **{**options, "out": tmp_path / "whole"})
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


def test_a_checkpoint_of_a_later_version_is_refused_and_stays(layouts, tmp_path):
    options = {"model": "gcn", "out": tmp_path / "run", "checkpoint_every": ALWAYS, **BASE}
    stop_at(5, layouts("planted", 1), 1, **options)
    before = checkpoint_files(tmp_path / "run")
    rewrite(before[-1], lambda meta, tensors: meta.update(schema_version=4))
    message = r"epoch-000005\.safetensors: is of a later MGG \(version 4 of checkpoints, this one reads up to 3\): run"
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 1), 1, resume=True, **options)
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 1), 1, model="gcn", weights=before[-1], **BASE)
    assert checkpoint_files(tmp_path / "run") == before
    # A start anew needs none of them.
    run("simulated", layouts("planted", 1), 1, **options)
    assert not checkpoint_files(tmp_path / "run")


def test_checkpoints_are_sorted_by_number(layouts, tmp_path, capsys):
    """After epoch 999,999 their names are longer."""
    options = {"model": "gcn", "out": tmp_path / "run", **BASE}
    stop_at(6, layouts("planted", 1), 1, checkpoint_every=ALWAYS, **options)
    older, newest = checkpoint_files(tmp_path / "run")
    older = older.rename(older.with_name("epoch-999999.safetensors"))
    newest = newest.rename(newest.with_name("epoch-1000000.safetensors"))
    weights = checkpoint.read_weights(newest.parent, "gcn")
    for name, array in checkpoint.read_weights(newest, "gcn").items():
        np.testing.assert_array_equal(weights[name], array)
    run("simulated", layouts("planted", 1), 1, resume=True, progress=True, **options)
    assert "goes on after epoch 6/12" in capsys.readouterr().err
