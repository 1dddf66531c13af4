"""The training loop: epochs, the best one of them, checkpoints, stopping and the run's folder.

The best epoch has the highest validation score (accuracy, if nodes have classes). Ties go to the lowest validation
loss, then to the first epoch. The published examples of PyTorch Geometric and OGB choose their reported test accuracy
in the same way. The setting ``selection`` chooses the lowest validation loss instead, or the last epoch, as published
for R-GCN. Early stopping uses the same criterion. Test nodes never influence the choice.

The watchdog covers the PEs from the start. It names a PE that neither works nor waits for others, with its epoch and
phase. A separate limit bounds how long other PEs wait for one that is still working. The world's limit applies until
the first epoch has shown how long epochs take; a resumed run knows that already. If there is only one PE, it may work
for ``DEFAULT_TIMEOUT``.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mgg.backend.api import DEFAULT_TIMEOUT, World, together
from mgg.backend.machine.facts import job_fields
from mgg.backend.machine.start_times import start_times
from mgg.config import Activations, TrainConfig
from mgg.errors import InputError, StoppedError
from mgg.files import check_output
from mgg.kernel import compile as kernels
from mgg.layout import PeLayout
from mgg.model import Array, Model
from mgg.records import RUN_FILE, EpochRecord, Side, TrainRecord, read_run
from mgg.train.expected_kernels import compile_kernels
from mgg.train.learner import Learner, Library, fitting
from mgg.train.memory import check_writing
from mgg.train.model import found_alike, settings_for
from mgg.train.progress import reporting
from mgg.train.progress.board import Board, check_apart
from mgg.train.resolve_auto import resolved as resolved_technique
from mgg.train.run.checkpoint import Checkpoint, Checkpoints, History, check_folder, folder_of, kept_choices
from mgg.train.run.checkpoint import read_weights as weights_of_checkpoint
from mgg.train.run.identity import Identity, device_of, difference, identity_of
from mgg.train.run.lock import RunLock
from mgg.train.run.output import KIND, digest, write_run
from mgg.train.run.predictions import collect
from mgg.train.targets import Scores
from mgg.train.trainer import DivergedError, Trainer
from mgg.train.tuning import Tuner
from mgg.train.tuning import mode as tune_mode

_log = logging.getLogger(__name__)
_DEFAULTS = TrainConfig()

#: Timed passes over the graph of ``inference``, and untimed passes before them.
PASSES, WARM_UP = 20, 3
#: Seconds that a PE may stand still. Others wait for a working PE for that long or for ``STALL_EPOCHS`` epochs,
#: whichever is longer.
STALL_AFTER, STALL_EPOCHS = _DEFAULTS.stall_after, 10


@dataclass(frozen=True)
class Result:
    """A finished run: its record, its epochs, and the best epoch's weights and running statistics by name."""

    record: TrainRecord
    epochs: list[EpochRecord]
    weights: dict[str, Array]


@dataclass(frozen=True)
class _Asked:
    """The arguments of ``train`` that are not about the model; see ``train``."""

    epochs: int
    out: Path | None
    checkpoint_every: float
    stall_after: float
    weights: Path | None
    tensorboard: Path | None
    inference: bool
    lock: RunLock | None  # the lock of ``out``, on rank 0


def train(
    world: World, layout: PeLayout, *, model: str | Model, technique: str, options: dict[str, Any] | None = None,
    epochs: int = _DEFAULTS.epochs, seed: int = 0, dtype: str = "fp32", metric: str = "auto",
    settings: dict[str, Any] | None = None, weights: Path | None = None, out: Path | None = None,
    checkpoint_every: float = _DEFAULTS.checkpoint_every, resume: bool = False, stall_after: float = STALL_AFTER,
    phases: bool = False, inference: bool = False, progress: bool = False, tensorboard: Path | None = None,
    stop: threading.Event | None = None, repeat: bool = True, side: Side = "mgg", library: Library | None = None,
    activations: Activations = "auto", memory_per_pe: int | None = None,
) -> Result:  # fmt: skip
    """Train ``model`` on this PE's part of a graph (collective: every PE calls it with the same arguments).

    Args:
        world, layout: the PEs, and this PE's part of the graph.
        model: name of the model, path of a user's own file, or the result of ``model.find``; ``settings``
            replace its published hyperparameters.
        technique: name of the aggregation technique, or ``auto``; ``options`` are its options.
        epochs: total passes over the graph, including those before a resume; the setting patience may stop earlier.
        seed: seed of weights and dropout.
        dtype: ``fp32``, or ``bf16`` to round embeddings and halos; sums and weights stay fp32.
        metric: the score that chooses the best epoch: accuracy, micro_f1, roc_auc, or auto (``metrics``).
        weights: initial weights in place of random ones: a run's folder, its weights, or a checkpoint of the model
            (``checkpoint.read_weights``) from any number of PEs; the optimizer and the epochs start anew.
        out: folder of the run. Rank 0 writes it, and it appears only when it is complete. None: write nothing.
        checkpoint_every: seconds of work that a fault may cost. Checkpoints go to the folder ``out``.checkpoint,
            which is removed when the run is done.
        resume: continue from the newest checkpoint, if there is one; ``auto`` keeps its technique. A finished run is
            returned unchanged. ``weights`` must be those that the run started from. Without ``resume``, this run's
            first checkpoint replaces earlier ones.
        stall_after: seconds after which a PE that neither works nor waits for others ends the run. A PE that works
            without progress ends it after the same time or ten times the last epoch, whichever is longer. In the
            first epoch of this call and after the last one, it may work for at least ``DEFAULT_TIMEOUT``.
        phases: record the time of aggregations, products and communication.
        inference: after the last epoch, time passes over the graph without dropout or gradients.
        progress: report epochs on standard error (rank 0).
        tensorboard: folder for TensorBoard event files (rank 0), or None.
        stop: once set on any PE, all PEs stop after the current epoch, or before the first one.
        repeat: see ``Trainer``.
        side: the implementation: mgg, unfused (see ``Trainer``), or the library behind ``library``.
        library: factory of a learner that replaces ``Trainer``; ``technique``, ``options`` and ``repeat`` are then
            ignored.
        activations, memory_per_pe: see ``Trainer``.

    Returns:
        The same result on every PE.

    Raises:
        InputError: unknown name, setting or option; a graph that lacks labels or splits; a checkpoint or weights of
            another run; an output that cannot be written; or numbers that are not finite or exceed 1e18 (names epoch
            and layer).
        MachineError: too little memory (names the PE).
        StoppedError: ``stop`` was set; after an epoch, a checkpoint was written if ``out`` is given.
        PeError: a PE makes no progress (names the PE, its epoch and its phase).
    """
    stop = stop or threading.Event()
    lock = RunLock(out.absolute()) if out and world.rank == 0 else None
    asked = _Asked(epochs, out and out.absolute(), checkpoint_every, stall_after, weights, tensorboard, inference, lock)
    world.watch(stall_after)
    world.limit_work(max(stall_after, DEFAULT_TIMEOUT))
    try:
        _stop_before(world, stop)
        model = found_alike(world, model)
        resolved = together(world, lambda: settings_for(model, settings, epochs))
        together(world, lambda: _check_output(asked, resume))
        start = together(world, lambda: weights_of_checkpoint(weights, model.name) if weights else None)
        # A new measurement might make auto pick another technique than the resumed run uses.
        mine = together(world, lambda: kept_choices(out.absolute()) if resume and out and world.rank == 0 else None)
        kept, backward = world.gather(mine)[0] or (None, None)
        if resolved.backward == "auto" and backward is not None:
            resolved = resolved.model_copy(update={"backward": backward})
        how: dict[str, Any] = {
            "model": model, "settings": resolved, "seed": seed, "epochs": epochs, "dtype": dtype, "metric": metric,
            "phases": phases,
        }  # fmt: skip
        trainer: Learner
        chosen: dict[str, Any] = {}
        if library:
            check_writing(world, layout)
            trainer = together(world, lambda: library(world, layout, **how))
            technique = trainer.technique
        else:
            candidates = resolved_technique(world, layout, technique, options or {}, model, resolved, dtype, kept=kept)
            world.set_phase(0, "loading")
            compile_kernels(world, model, candidates[0], options or {}, dtype)
            if out:
                check_writing(world, layout)
            trainer, chosen = fitting(
                world, layout, candidates, options or {}, **how, repeat=repeat, fused=side != "unfused",
                saves=bool(out), activations=activations, memory_per_pe=memory_per_pe,
            )  # fmt: skip
        named, technique = technique, trainer.technique
        manifest = layout.manifest
        identity = Identity(
            model=model.name, side=side, model_file=model.sha256, dataset=manifest.name, graph_hash=manifest.graph_hash,
            pes=world.size, scheme=manifest.scheme, layout=manifest.digest(), device=device_of(world.gpu),
            technique=technique, options=chosen, seed=seed, settings=trainer.settings.model_dump(), dtype=dtype,
            metric=trainer.metric, epochs=epochs if resolved.schedule == "cosine" else None,
            weights=start and digest("", start), emulated=world.emulated and str(world.emulated.network),
        )  # fmt: skip
        run = _Run(world, trainer, identity, asked, model.content)
        run.chosen = named != technique
        if isinstance(trainer, Trainer) and tune_mode(technique, chosen) != "none":
            run.tuner = Tuner(world, trainer, chosen)
        if resume and (done := run.finished()):
            trainer.close()
            return done
        run.start(resume, start)
        start_times.done("start of the run")
        _stop_before(world, stop)
        run.train(stop, progress)
        predicted = run.predict()
        trainer.close()
        return run.finish(layout, predicted)
    finally:
        world.watch(None)
        if lock:
            lock.free()


def _clock() -> float:
    """Return seconds from a clock that stops while this PE waits for compilers, as later epochs do not wait."""
    return time.monotonic() - kernels.waited()


def _stop_before(world: World, stop: threading.Event) -> None:
    """Raise StoppedError if any PE was asked to stop before the first epoch (collective)."""
    if any(world.gather(stop.is_set())):
        raise StoppedError("stopped before the first epoch of this run: run the same command again").on_every_pe()


def _check_output(asked: _Asked, resume: bool) -> None:
    """Lock the run's folder; raise InputError early if the run or its checkpoints cannot be written."""
    out, weights = asked.out, asked.weights
    if out is None or asked.lock is None:
        return
    if asked.tensorboard:
        check_apart(asked.tensorboard, out, folder_of(out))
    if weights and folder_of(out).resolve() in (weights.resolve(), *weights.resolve().parents):
        raise InputError(
            f"{weights}: this run's checkpoints would replace these weights, which it needs to continue: move the"
            " weights, or choose another output folder"
        )
    if not (resume and (out / RUN_FILE).is_file()):  # a finished run is not changed
        _lock_output(asked)


def _lock_output(asked: _Asked) -> None:
    assert asked.out is not None and asked.lock is not None
    check_output(asked.out, KIND)
    asked.lock.take(asked.stall_after)
    check_folder(asked.out)


class _Run:
    """A training run in progress on one PE."""

    def __init__(
        self, world: World, trainer: Learner, identity: Identity, asked: _Asked, own_model: bytes | None
    ) -> None:
        self.world, self.trainer, self.identity, self.asked = world, trainer, identity, asked
        self._own_model = own_model
        self.checkpoints: Checkpoints | None = None
        if asked.out is not None and world.rank == 0:
            self.checkpoints = Checkpoints(folder_of(asked.out), identity, asked.stall_after)
        self.history = History()
        self.chosen = False  # technique auto picked the technique
        self.tuner: Tuner | None = None
        self._best: dict[str, Array] = {}
        self.inference: float | None = None  # median seconds of a pass without gradients
        self._kept = False  # the trainer holds newer best arrays than ``_best``

    @property
    def best(self) -> dict[str, Array]:
        """Return the best epoch's weights and running statistics by name, in host memory."""
        if self._kept:
            self._best, self._kept = self.trainer.kept(), False
        return self._best

    def start(self, resume: bool, weights: dict[str, Array] | None) -> None:
        """Restore the newest checkpoint, or start from ``weights`` or random ones (collective)."""
        checkpoint = self.world.gather(together(self.world, lambda: self._open(resume)))[0]
        if checkpoint is not None:
            # Copy: PEs that are threads must not share mutable arrays. Epochs are frozen.
            self.history = checkpoint.history.model_copy(update={"epochs": [*checkpoint.history.epochs]})
            self.trainer.restore({"state": {}} | checkpoint.groups)
            self._best = {name: array.copy() for name, array in checkpoint.groups["best"].items()}
            self._allow_a_pass()
        elif weights is not None:
            together(self.world, lambda: self._take(weights))
        if self.tuner is not None:
            self.tuner.begin(self.history.tuning)
            self.history.tuning = self.tuner.state

    def finished(self) -> Result | None:
        """Return this run if the output folder holds it complete, else None (collective)."""
        return self.world.gather(together(self.world, self._read_finished))[0]

    def _read_finished(self) -> Result | None:
        out = self.asked.out
        if out is None or self.checkpoints is None or not (out / RUN_FILE).is_file():
            return None
        record, epochs = read_run(out)
        if refusal := self._other(out, record):
            if not self.checkpoints.begun():
                raise refusal
            _lock_output(self.asked)
            return None  # this run has started, and will replace the finished one
        _log.warning("%s: this run is finished, nothing was trained", out)
        return Result(record, epochs, weights_of_checkpoint(out, record.model))

    def _other(self, out: Path, record: TrainRecord) -> InputError | None:
        """Return the error if the finished run in ``out`` differs from the requested one, else None."""
        instead = "take another output folder, or leave --resume out to replace it"
        if differs := difference(identity_of(record), self.identity):
            return InputError(f"{out}: is a finished run {differs}: {instead}")
        if self.asked.inference and record.inference is None:
            return InputError(
                f"{out}: is a finished run whose inference was not timed, as it was not asked for: {instead}"
            )
        if record.epochs > self.asked.epochs:
            return self._too_far(out, record.epochs, instead)
        patience = self.trainer.settings.patience
        early = patience is not None and record.epochs - record.best_epoch >= patience
        if record.epochs == self.asked.epochs or early:
            return None
        return InputError(
            f"{out}: is a finished run of {record.epochs} epochs, whose checkpoints are gone: take another output"
            f" folder, with --weights {out} to start from its weights"
        )

    def _take(self, weights: dict[str, Array]) -> None:
        try:
            self.trainer.start_from(weights)
        except InputError as error:
            raise InputError(f"{self.asked.weights}: {error}") from None

    def _open(self, resume: bool) -> Checkpoint | None:
        out = self.asked.out
        if out is None or self.checkpoints is None:
            return None
        if not resume:
            self.checkpoints.start_anew()
            return None
        checkpoint = self.checkpoints.load()
        if checkpoint is not None and len(checkpoint.history.epochs) > self.asked.epochs:
            folder, done = self.checkpoints.folder, len(checkpoint.history.epochs)
            raise self._too_far(folder, done, "ask for more, take another output folder or remove it to start anew")
        return checkpoint

    def _too_far(self, where: Path, done: int, instead: str) -> InputError:
        return InputError(f"{where}: has {done} epochs already, more than the {self.asked.epochs} asked for: {instead}")

    def train(self, stop: threading.Event, progress: bool) -> None:
        """Train the remaining epochs; raise StoppedError on a stop before the last one (collective)."""
        done, metric, first = len(self.history.epochs), self.identity.metric, self.world.rank == 0
        title = f"{self.identity.model} on {self.identity.dataset}"
        board = together(self.world, lambda: Board(self.asked.tensorboard if first else None, metric, done))
        shown = progress and first
        with board, reporting(title, self.asked.epochs, done, shown=shown, metric=metric, clock=_clock) as report:
            while not self._finished():
                stopping = self._epoch(len(self.history.epochs) + 1, stop)
                report(self.history.epochs[-1])
                board.write(self.history.epochs[-1])
                if not self._finished() and (late := self._late(stopping)) is not None:
                    self._save(stopping, late)
            if self.tuner is not None:
                self.tuner.end()
            self._wait_for_disks()

    def _late(self, stopping: bool) -> dict[str, Array] | None:
        """Return the stale rows that a due checkpoint stores, empty without any; None if no checkpoint is due.

        Collective if PEs keep stale rows.
        """
        due = stopping or self._checkpoint_is_due()
        if not (isinstance(self.trainer, Trainer) and self.trainer.is_late):
            return {} if due else None
        return self.trainer.late() if self.world.gather(due)[0] else None

    def _wait_for_disks(self) -> None:
        """Relax the time limits for rank 0's disk writes, for which all PEs wait."""
        self.world.watch(DEFAULT_TIMEOUT)
        self._allow_a_pass()

    def _allow_a_pass(self) -> None:
        """Relax the time limits for a pass outside the epochs, or one that compiles, by the length of past epochs."""
        longest = max(DEFAULT_TIMEOUT, self._longest())
        self.world.limit_waits(longest)
        self.world.limit_work(longest)

    def _finished(self) -> bool:
        history, patience = self.history, self.trainer.settings.patience
        done = len(history.epochs)
        return done >= self.asked.epochs or (patience is not None and done - history.best_epoch >= patience)

    def _epoch(self, epoch: int, stop: threading.Event) -> bool:
        """Run one step and one evaluation; return whether any PE was asked to stop (collective)."""
        if self.tuner is not None:
            self.tuner.before(epoch)
        self.trainer.phases()  # drop the time between epochs
        moved = self.world.counters.embeddings()
        started, compiled = time.perf_counter(), kernels.waited()
        try:
            loss, scores = self.trainer.epoch(epoch)
        except DivergedError as error:
            self._wait_for_disks()
            newest = self.world.gather(together(self.world, lambda: self.checkpoints and self.checkpoints.newest()))[0]
            kept = f"; the last good checkpoint is {newest}" if newest else ""
            raise InputError(f"{error}{kept}").on_every_pe() from None
        seconds = time.perf_counter() - started
        phases = self.trainer.phases()
        mine = (
            seconds, kernels.waited() - compiled, self.world.counters.embeddings() - moved, stop.is_set(), phases
        )  # fmt: skip
        all_seconds, compiling, sent, stops, spent = zip(*self.world.gather(mine), strict=True)
        shares = {} if phases is None else {name: float(np.mean([each[name] for each in spent])) for name in phases}
        # A PE that waits for compilers delays the others by as much.
        longest = max(all_seconds) - max(compiling)
        if self.tuner is not None:
            self.tuner.after(longest)
            self.history.tuning = self.tuner.state
        self._record(epoch, loss, scores, longest, sum(sent), shares)
        if len(self.history.epochs) == 1:
            start_times.done("first epoch")
            start_times.say(self.world.rank)
        self.world.limit_waits(self._longest())
        self.world.limit_work(self._longest())
        return any(stops)

    def _longest(self) -> float:
        """Return the seconds that a PE may work without progress, and that others wait for it."""
        epochs = self.history.epochs
        return max(self.asked.stall_after, STALL_EPOCHS * epochs[-1].seconds if epochs else 0)

    def _record(
        self, epoch: int, loss: float, scores: Scores, seconds: float, bytes_wire: int, phases: dict[str, float]
    ) -> None:
        record = EpochRecord(
            epoch=epoch, loss=loss, seconds=seconds, train_accuracy=scores.train,
            validation_loss=None if scores.validation is None else scores.validation_loss,
            validation_accuracy=scores.validation, test_accuracy=scores.test, **phases,
        )  # fmt: skip
        history = self.history
        history.epochs.append(record)
        history.bytes_wire = bytes_wire
        if self._improves(scores):
            history.best_epoch, history.best_loss = epoch, scores.validation_loss
            self.trainer.keep()
            self._kept = True

    def _improves(self, scores: Scores) -> bool:
        history, selection = self.history, self.trainer.settings.selection
        best = history.epochs[history.best_epoch - 1].validation_accuracy
        # Without validation nodes the last epoch is the best: targets refuse any other selection.
        if history.best_loss is None or best is None or scores.validation is None or selection == "last":
            return True
        found, kept = (scores.validation, -scores.validation_loss), (best, -history.best_loss)
        return found[::-1] > kept[::-1] if selection == "validation_loss" else found > kept

    def _checkpoint_is_due(self) -> bool:
        last = self.history.epochs[-1].seconds
        return self.checkpoints is not None and self.checkpoints.due(self.asked.checkpoint_every, last)

    def _save(self, stopping: bool, late: dict[str, Array]) -> None:
        """Write a checkpoint on rank 0; if ``stopping``, wait for it and raise StoppedError (collective)."""
        if not stopping:
            self._write_checkpoint(late)
            return
        self._wait_for_disks()
        self.world.set_phase(len(self.history.epochs), "checkpoint")
        together(self.world, lambda: self.checkpoints and self.checkpoints.wait())
        self._write_checkpoint(late)
        path = self.world.gather(together(self.world, lambda: self.checkpoints and self.checkpoints.wait()))[0]
        kept = (
            f"{path} is written: run the same command again with --resume" if path else "no output, so nothing is kept"
        )
        done = len(self.history.epochs)
        raise StoppedError(f"stopped after epoch {done} of {self.asked.epochs}: {kept}").on_every_pe()

    def _write_checkpoint(self, late: dict[str, Array]) -> None:
        if self.checkpoints is not None:
            history = self.history.model_copy(update={"epochs": list(self.history.epochs)})
            self.checkpoints.save(Checkpoint(history, self.trainer.save() | {"best": self.best, "late": late}))

    def _infer(self) -> None:
        """Time passes over the graph with the last epoch's weights (collective)."""
        once, mine = self.trainer.inference(), []
        for _ in range(WARM_UP + PASSES):
            started, compiled = time.perf_counter(), kernels.waited()
            once()
            mine.append(time.perf_counter() - started - (kernels.waited() - compiled))
        passes = np.max(self.world.gather(mine[WARM_UP:]), axis=0)
        self.inference = float(np.median(passes))

    def predict(self) -> np.ndarray | None:
        """Time inference if requested; return the best weights' predictions, None without ``out`` (collective)."""
        self.world.set_phase(len(self.history.epochs), "prediction")
        if self.asked.inference:
            self._infer()
        best = self.best
        return None if self.asked.out is None else self.trainer.predict(best)

    def finish(self, layout: PeLayout, predicted: np.ndarray | None) -> Result:
        """Write the run's folder and remove its checkpoints (collective)."""
        predictions = None if predicted is None else collect(self.world, layout, predicted)
        self.world.set_phase(len(self.history.epochs), "writing")
        result = Result(self._summary(layout), self.history.epochs, self.best)
        together(self.world, lambda: self._write(result, predictions))
        return result

    def _write(self, result: Result, predictions: pa.Table | None) -> None:
        if self.asked.out is not None and self.checkpoints is not None:
            assert predictions is not None
            write_run(self.asked.out, result.record, result.epochs, result.weights, predictions, self._own_model)
            self.checkpoints.clear()

    def _summary(self, layout: PeLayout) -> TrainRecord:
        history, identity, manifest = self.history, self.identity, layout.manifest
        best = history.epochs[history.best_epoch - 1]
        q1, median, q3 = np.quantile([epoch.seconds for epoch in history.epochs], [0.25, 0.5, 0.75]).tolist()
        return TrainRecord(
            **identity.model_dump(exclude={"pes", "device", "epochs"}),
            **(job_fields(self.world) | self.trainer.record_fields()),
            nodes=manifest.nodes, arcs=manifest.arcs, features=manifest.features, classes=manifest.classes,
            epochs=len(history.epochs), asked_epochs=self.asked.epochs, loss=history.epochs[-1].loss,
            parameters=sum(weight.size for weight in self.trainer.weights.values()),
            best_epoch=history.best_epoch, train_accuracy=best.train_accuracy,
            validation_accuracy=best.validation_accuracy, test_accuracy=best.test_accuracy,
            median=median, q1=q1, q3=q3, inference=self.inference, bytes_wire=history.bytes_wire,
            chosen=self.chosen, tuning=history.tuning,
        )  # fmt: skip
