"""The training loop: epochs, the best one of them, checkpoints, stopping and the run's folder.

The best epoch is the one with the highest validation accuracy; of equal ones the one with the lowest validation loss,
of those the first. So do the published examples of PyTorch Geometric and OGB pick the test accuracy that they report.
Without validation nodes it is the last epoch, as published for R-GCN. Test nodes never choose anything.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mgg.aggregate import parse_options
from mgg.backend.api import World, job_machine, together
from mgg.errors import InputError, StoppedError
from mgg.layout import PeLayout
from mgg.model import Array, settings_of
from mgg.record import EpochRecord, TrainRecord, these_versions
from mgg.train.checkpoint import Checkpoint, Checkpoints, History, Identity
from mgg.train.output import check_output, write_run
from mgg.train.predictions import collect
from mgg.train.progress import reporting
from mgg.train.trainer import Scores, Trainer


@dataclass(frozen=True)
class Result:
    """A finished run: its record, its epochs, and weights with running statistics of the best epoch, by name."""

    record: TrainRecord
    epochs: list[EpochRecord]
    weights: dict[str, Array]


def train(
    world: World,
    layout: PeLayout,
    *,
    model: str,
    technique: str,
    options: dict[str, Any] | None = None,
    epochs: int = 200,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    out: Path | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    progress: bool = False,
    stop: threading.Event | None = None,
) -> Result:
    """Train ``model`` on this PE's part of a graph (collective: every PE calls it with the same arguments).

    Args:
        world, layout: the PEs and what this one holds.
        model: name of the model; ``settings`` replace its published hyperparameters.
        technique: name of the aggregation technique; ``options`` are its options.
        epochs: passes over the graph, in all (those before a resume count).
        seed: of weights and dropout.
        out: folder of the run, which appears when it is whole; rank 0 writes. None writes nothing.
        checkpoint_every: seconds between checkpoints in the folder ``out``.checkpoint, which goes when the run is done.
        resume: go on from the newest checkpoint, if there is one; without it earlier checkpoints are removed.
        progress: report epochs on standard error (rank 0).
        stop: once set on any PE, all PEs stop after the epoch.

    Returns:
        The same result on every PE.

    Raises:
        InputError: unknown name, setting or option, a graph without what training needs, a checkpoint of another run,
            an output that cannot be written, or a loss that is not finite.
        StoppedError: ``stop`` was set; a checkpoint was written if there is an ``out``.
    """
    resolved = together(world, lambda: settings_of(model, settings))
    chosen = together(world, lambda: parse_options(technique, options or {})).model_dump()
    trainer = Trainer(world, layout, model=model, technique=technique, options=chosen, settings=resolved, seed=seed)
    manifest = layout.manifest
    identity = Identity(
        model=model, dataset=manifest.name, graph_hash=manifest.graph_hash, pes=world.size, technique=technique,
        options=chosen, seed=seed, settings=trainer.settings.model_dump(),
    )  # fmt: skip
    run = _Run(world, trainer, identity, epochs=epochs, out=out, checkpoint_every=checkpoint_every)
    run.start(resume)
    run.train(stop or threading.Event(), progress)
    predictions = run.predict(layout)
    trainer.close()
    return run.finish(layout, predictions)


class _Run:
    """A training run on its way, on one PE."""

    def __init__(
        self,
        world: World,
        trainer: Trainer,
        identity: Identity,
        *,
        epochs: int,
        out: Path | None,
        checkpoint_every: float,
    ) -> None:
        self.world, self.trainer, self.identity, self.epochs = world, trainer, identity, epochs
        self.out, self.checkpoint_every = out and out.absolute(), checkpoint_every
        self.checkpoints: Checkpoints | None = None
        if self.out is not None and world.rank == 0:
            self.checkpoints = Checkpoints(self.out.with_name(f"{self.out.name}.checkpoint"), identity)
        self.history = History()
        self.best: dict[str, Array] = {}

    def start(self, resume: bool) -> None:
        """Take the state of the newest checkpoint, or start from nothing (collective)."""
        checkpoint = self.world.gather(together(self.world, lambda: self._open(resume)))[0]
        if checkpoint is not None:
            # Copies: PEs that are threads must not share what each of them changes.
            self.history = checkpoint.history.model_copy(deep=True)
            self.trainer.restore({"state": {}} | checkpoint.groups)
            self.best = {name: array.copy() for name, array in checkpoint.groups["best"].items()}

    def _open(self, resume: bool) -> Checkpoint | None:
        if self.out is None or self.checkpoints is None:
            return None
        check_output(self.out)
        if not resume:
            self.checkpoints.clear()
            return None
        checkpoint = self.checkpoints.load()
        if checkpoint is not None and len(checkpoint.history.epochs) > self.epochs:
            done = len(checkpoint.history.epochs)
            raise InputError(
                f"{self.checkpoints.folder}: has {done} epochs already, more than the {self.epochs} asked for"
            )
        return checkpoint

    def train(self, stop: threading.Event, progress: bool) -> None:
        """Train the epochs that are left; raises StoppedError when asked to stop before the last (collective)."""
        done = len(self.history.epochs)
        title = f"{self.identity.model} on {self.identity.dataset}"
        saved = time.monotonic()
        with reporting(title, self.epochs, done, shown=progress and self.world.rank == 0) as report:
            for epoch in range(done + 1, self.epochs + 1):
                stopping = self._epoch(epoch, stop)
                report(self.history.epochs[-1])
                if epoch == self.epochs:
                    break
                if stopping or time.monotonic() - saved >= self.checkpoint_every:
                    self._save(stopping)
                    saved = time.monotonic()

    def _epoch(self, epoch: int, stop: threading.Event) -> bool:
        """One step and one evaluation; returns whether any PE was asked to stop (collective)."""
        moved = self.world.counters.embeddings()
        started = time.perf_counter()
        loss = self.trainer.step(epoch)
        scores = self.trainer.evaluate()
        mine = (time.perf_counter() - started, self.world.counters.embeddings() - moved, stop.is_set())
        seconds, sent, stops = zip(*self.world.gather(mine), strict=True)
        self._record(epoch, loss, scores, max(seconds), sum(sent))
        return any(stops)

    def _record(self, epoch: int, loss: float, scores: Scores, seconds: float, bytes_wire: int) -> None:
        record = EpochRecord(
            epoch=epoch,
            loss=loss,
            train_accuracy=scores.train_accuracy,
            validation_accuracy=scores.validation_accuracy,
            test_accuracy=scores.test_accuracy,
            seconds=seconds,
        )
        history = self.history
        history.epochs.append(record)
        history.bytes_wire = bytes_wire
        if self._improves(scores):
            history.best_epoch, history.best_loss = epoch, scores.validation_loss
            self.best = self.trainer.model_arrays()

    def _improves(self, scores: Scores) -> bool:
        history = self.history
        if history.best_loss is None or not self.trainer.validates:
            return True
        best = history.epochs[history.best_epoch - 1].validation_accuracy
        return (scores.validation_accuracy, -scores.validation_loss) > (best, -history.best_loss)

    def _save(self, stopping: bool) -> None:
        """Write a checkpoint on rank 0; when ``stopping``, every PE then raises StoppedError (collective)."""
        if not stopping:
            self._write_checkpoint()
            return
        path = self.world.gather(together(self.world, self._write_checkpoint))[0]
        kept = (
            f"{path} is written: run the same command again with --resume" if path else "no output, so nothing is kept"
        )
        done = len(self.history.epochs)
        raise StoppedError(f"stopped after epoch {done} of {self.epochs}: {kept}").on_every_pe()

    def _write_checkpoint(self) -> Path | None:
        if self.checkpoints is None:
            return None
        return self.checkpoints.save(Checkpoint(self.history, self.trainer.save() | {"best": self.best}))

    def predict(self, layout: PeLayout) -> pa.Table | None:
        """What the best weights say, on rank 0, if it is to be written (collective)."""
        return None if self.out is None else collect(self.world, layout, self.trainer.predict(self.best))

    def finish(self, layout: PeLayout, predictions: pa.Table | None) -> Result:
        """Write the run's folder and remove its checkpoints (collective)."""
        result = Result(self._summary(layout), self.history.epochs, self.best)
        together(self.world, lambda: self._write(result, predictions))
        return result

    def _write(self, result: Result, predictions: pa.Table | None) -> None:
        if self.out is not None and self.checkpoints is not None:
            assert predictions is not None
            write_run(self.out, result.record, result.epochs, result.weights, predictions)
            self.checkpoints.clear()

    def _summary(self, layout: PeLayout) -> TrainRecord:
        history, identity, manifest = self.history, self.identity, layout.manifest
        best = history.epochs[history.best_epoch - 1]
        q1, median, q3 = np.quantile([epoch.seconds for epoch in history.epochs], [0.25, 0.5, 0.75]).tolist()
        return TrainRecord(
            dataset=identity.dataset,
            graph_hash=identity.graph_hash,
            nodes=manifest.nodes,
            arcs=manifest.arcs,
            technique=identity.technique,
            options=identity.options,
            backend=self.world.name,
            pes=identity.pes,
            dtype="fp32",
            machine=job_machine(self.world),
            versions=these_versions(),
            model=identity.model,
            seed=identity.seed,
            epochs=len(history.epochs),
            settings=identity.settings,
            features=manifest.features,
            classes=manifest.classes,
            parameters=sum(weight.size for weight in self.trainer.weights.values()),
            loss=history.epochs[-1].loss,
            best_epoch=history.best_epoch,
            train_accuracy=best.train_accuracy,
            validation_accuracy=best.validation_accuracy,
            test_accuracy=best.test_accuracy,
            median=median,
            q1=q1,
            q3=q3,
            bytes_wire=history.bytes_wire,
        )
