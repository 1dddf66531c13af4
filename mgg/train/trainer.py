"""One model on one graph: weights, a training step, an evaluation. Every PE runs the same calls."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mgg.aggregate import check_layouts
from mgg.backend.api import Repeated, World, together
from mgg.backend.compiling import compile_ahead
from mgg.backend.machine.start_times import start_times
from mgg.backend.offloaded_arrays import OutsideArrays
from mgg.config import Activations
from mgg.errors import InputError
from mgg.layout import PeLayout
from mgg.model import Array, Model, ModelSettings, Pass, settings_of
from mgg.model.activations import StagedModules
from mgg.model.arrays import LARGEST
from mgg.model.features import StreamedRows, on_device, prepare_features
from mgg.model.initialization import initial_weights
from mgg.model.learning_rate import learning_rate
from mgg.model.named_views import NamedViews, joined
from mgg.model.neighborhood import Neighborhood
from mgg.model.optimizer import RATES, Adam
from mgg.train import memory
from mgg.train.activations import ARCS, FEATURES, decide
from mgg.train.divergence import blamed, largest
from mgg.train.expected_kernels import of_programs
from mgg.train.model import built, check_gradients, check_output, check_settings, decided, found_alike
from mgg.train.phases import PHASES, count_products, phased_world
from mgg.train.resolve_auto import check_late, scheduled, tell_who_sums, tell_without_effect
from mgg.train.targets import Scores
from mgg.train.targets.metrics import targets_of
from mgg.tune.setting import NAMES, Setting


class DivergedError(InputError):
    """A loss or gradient of a training is no longer finite, or is beyond ``LARGEST``."""


class Trainer:
    """One PE's share of a training: replicated weights and optimizer, its rows of the graph and the features.

    Attributes:
        weights: float32 arrays by name on the PE's device, the same on every PE.
        state: running statistics of batch normalization by name, float64 on the device, the same on every PE.
        adam, metric, technique: the optimizer; names of the metric and of the aggregation technique.
        settings: the hyperparameters, with data-dependent defaults filled in.
        need: predicted memory of the training on this PE.
        activations: mode (recompute or host) by name of the stages that do not keep their activations, and of features
            and arcs.
        searching: a search varies the technique's settings, so epochs are not captured for resubmission.
    """

    def __init__(
        self, world: World, layout: PeLayout, *, model: str | Model, technique: str, options: dict[str, Any],
        settings: ModelSettings, seed: int, epochs: int = 1, dtype: str = "fp32", metric: str = "auto",
        phases: bool = False, repeat: bool = True, fused: bool = True, saves: bool = False,
        activations: Activations = "auto", memory_per_pe: int | None = None,
    ) -> None:  # fmt: skip
        """Collective; raises InputError when the graph cannot be trained on.

        Args:
            world, layout: the PEs, and this PE's part of the graph.
            model, settings: what to train.
            technique, options: the aggregation technique and its options.
            seed: seed of weights and dropout.
            epochs: total number, for the learning-rate schedule.
            dtype: type of the embeddings, ``fp32`` or ``bf16``.
            metric: key of ``METRICS``, or ``auto``.
            phases: measure the seconds of each phase.
            repeat: on GPUs, let ``epoch`` capture an epoch's submissions and resubmit them as a whole where possible;
                the results are identical. Has no effect with ``phases``.
            fused: fuse the passes over arcs. If false, vertex programs make one pass over arcs per value
                (``units.schedule``), and the model must have some.
            saves: rank 0 will write checkpoints, whose copies count towards the memory needed.
            activations: ``keep``, ``recompute`` or ``host`` (``mgg.model.activations``); ``auto``: the fastest fit.
            memory_per_pe: limit on the predicted bytes per PE; None: the free memory.
        """
        self._timeline = world.timeline() if phases else None
        if self._timeline is not None:
            world = phased_world(world, self._timeline)
        self._world, self._seed, self._epochs, self.technique = world, seed, epochs, technique
        model = self._model = found_alike(world, model)
        together(world, lambda: check_settings(model.name, settings))
        check_layouts(world, layout)
        self._targets = targets_of(world, layout, metric, settings)
        self.metric = self._targets.metric
        facts = layout.manifest
        sizes = facts.features, self._targets.columns, facts.nodes, facts.relations
        self._chain = together(world, lambda: built(model, settings, *sizes, fused=fused))
        values, as_sparse, self.settings = decided(world, layout, settings)
        tell_who_sums(world, model.name, self._chain, technique, settings)
        self.settings, turned = scheduled(world, layout, model.name, self._chain, self.settings)
        together(world, lambda: check_late(model.name, self._chain, options))
        row_normalize = bool(self.settings.row_normalize)
        given = memory.Input(values if as_sparse else layout.rows * facts.features, as_sparse, row_normalize)
        learned, copies = self._targets, memory.copies(world, self.settings.optimizer, saves=saves)
        asked, how = (activations, memory_per_pe), (technique, options, dtype)
        self.need, stages, self.activations = decide(
            world, layout, self._chain, how, given, learned, turned, copies, asked
        )
        world.measure_memory()  # not that of measuring the machine
        self._staged, self._allowed = StagedModules(world, stages), memory_per_pe
        self._targets.place(world)
        self._place_features(layout, as_sparse, row_normalize)
        start_times.done("features")
        world.set_phase(0, "plans")
        self._graph = Neighborhood.prepare(
            world, layout, technique, options, self._chain.width, self._chain.fetched, dtype, turned=turned,
            weighing=self._chain.weighed,
            arcs_outside=ARCS in self.activations,
        )  # fmt: skip
        tell_without_effect(world, layout, model.name, self._chain, technique, options, self._graph.plan)
        if self._timeline is not None:
            count_products(self._graph, self._timeline)
        self._place_parameters(seed)
        self._always = world.upload(np.ones(1))
        self._repeat = repeat and not phases
        self._submission: Repeated | None = None
        self.searching = False
        start_times.done("plans, parameters")
        if world.gpu:
            compile_ahead(world, of_programs(self._chain, self._graph))
            start_times.done("kernels of programs")
        world.set_phase(0, "first pass")
        # This pass computes the values that never change, so that no epoch differs from the others.
        check_output(self._logits(self.weights, self.state), (layout.rows, self._targets.columns), model.name)
        start_times.done("first pass")
        if world.gpu:
            self._rehearse()
            start_times.done("rehearsal")

    def _rehearse(self) -> None:
        """Run an epoch that changes no weights, so that CuPy's first-use compilation is not timed (collective)."""
        upload, self._now = self._world.upload, 1
        total = self._summed(self._differentiate(1, upload(np.ones(1))), "all-reduce")
        self._update(total[1:], upload(self._rates(1)), upload(np.zeros(1)))
        self._measure(1)
        for stale in self._graph.stale.values():
            stale.forget()

    def _place_features(self, layout: PeLayout, as_sparse: bool, row_normalize: bool) -> None:
        """Place the features of this PE's nodes on the device, or in page-locked memory: for products, which stream
        them, or where kernels read them.
        """
        self._x: Any = None
        self._outside: OutsideArrays | StreamedRows | None = None
        if layout.features is None:
            return
        x = prepare_features(np.asarray(layout.features), as_sparse=as_sparse, row_normalize=row_normalize)
        if FEATURES in self.activations and not memory.takes_dense(self._chain):
            self._x = self._outside = StreamedRows(self._world, x)
        elif FEATURES in self.activations:
            self._outside = OutsideArrays(self._world)
            self._x = self._outside.upload(x)
        else:
            self._x = on_device(self._world, x, layout.source_ids)

    def _place_parameters(self, seed: int) -> None:
        """Place random weights, running statistics and the optimizer's moments on the device."""
        upload = self._world.upload
        initial = joined(initial_weights(self._chain.parameters, seed))
        self.weights = NamedViews(upload(initial.flat), initial.shapes)
        running = [np.zeros(0), *self._chain.state.values()]
        shapes = {name: value.shape for name, value in self._chain.state.items()}
        self.state = NamedViews(upload(np.concatenate(running)), shapes)
        decoupled = self.settings.optimizer == "adamw"
        self.adam = Adam(self._graph.arrays, self._chain.parameters, self.weights, decoupled=decoupled)

    def phases(self) -> dict[str, float] | None:
        """Return this PE's seconds by phase since the last call; None unless phases are measured."""
        if self._timeline is None:
            return None
        found = self._timeline.collect()
        return {phase: found.get(phase, 0.0) for phase in PHASES}

    def record_fields(self) -> dict[str, Any]:
        """Return record fields that override or complete those of the job (collective)."""
        most = max(self._world.gather(self.need.total))
        return {"activations": self.activations, "memory_predicted": most, "memory_per_pe": self._allowed}

    def save(self) -> dict[str, dict[str, np.ndarray]]:
        """Return host copies of all state that the next step depends on: named groups of arrays by name."""
        return {
            group: {name: array.copy() for name, array in self._downloaded(arrays).items()}
            for group, arrays in self._groups().items()
        }

    def _groups(self) -> dict[str, NamedViews]:
        return {"weights": self.weights, "state": self.state, "first": self.adam.first, "second": self.adam.second}

    def load(self, mine: NamedViews, given: Mapping[str, Array]) -> None:
        """Replace the values of ``mine``, arrays on the device, by those of host arrays of the same names."""
        for name, value in mine.items():
            value[...] = self._world.upload(given[name].astype(value.dtype))

    @property
    def is_late(self) -> bool:
        """Whether PEs keep stale rows, from earlier epochs."""
        return bool(self._graph.stale)

    def late(self) -> dict[str, np.ndarray]:
        """Return all PEs' stale rows by name; with ``save``, they are the state of the next step (collective)."""
        kept = self._graph.stale.items()
        mine = {f"{name}.{key}": array for name, stale in kept for key, array in stale.state().items()}
        return {name: array for held in self._world.gather(mine) for name, array in held.items()}

    @property
    def columns(self) -> list[int]:
        """Return the largest widths of an aggregation, of fetched rows and of a weighed sum, without zeros."""
        chain = self._chain
        return [width for width in (chain.width, chain.fetched, chain.weighed.columns) if width]

    def kernel_settings(self) -> dict[str, Setting]:
        """Return the settings of MGG's kernel by plan: ``forward``, ``transpose``, ``halo``."""
        every = {name: plans[0].options for name, plans in self._graph.plans.items()}
        return {name: Setting(*(getattr(options, knob) for knob in NAMES)) for name, options in every.items()}

    def take(self, settings: Mapping[str, Setting]) -> None:
        """Apply ``settings``, in the form of ``kernel_settings()``, from the next epoch on (collective)."""
        self._release()
        self._submission = None
        for name, setting in settings.items():
            for plan in self._graph.plans[name]:
                plan.take(setting)

    def keep(self) -> None:
        """Store a copy of weights and running statistics on the device for ``kept``, replacing the last one."""
        self._kept = [NamedViews(each.flat.copy(), each.shapes) for each in (self.weights, self.state)]

    def kept(self) -> dict[str, np.ndarray]:
        """Return the arrays of the last ``keep`` by name, in host memory, as ``predict`` takes them."""
        return {name: array for each in self._kept for name, array in self._downloaded(each).items()}

    def _downloaded(self, arrays: NamedViews) -> NamedViews:
        """Return ``arrays`` in host memory, with one transfer; on CPUs, not a copy."""
        return NamedViews(self._world.download(arrays.flat), arrays.shapes)

    def restore(self, groups: dict[str, dict[str, np.ndarray]]) -> None:
        """Restore a copy of the state that ``save`` returned."""
        for group, arrays in self._groups().items():
            self.load(arrays, groups[group])
        for name, stale in self._graph.stale.items():
            held = groups.get("late", {})
            stale.restore({key.removeprefix(f"{name}."): held[key] for key in held if key.startswith(f"{name}.")})

    def start_from(self, arrays: dict[str, np.ndarray]) -> None:
        """Load weights and running statistics by name from host memory; the optimizer starts anew.

        Raises:
            InputError: they belong to another model (names the array).
        """
        mine = {**self.weights, **self.state}
        for name in [*mine, *arrays]:
            if name not in arrays or name not in mine:
                raise InputError(f"array {name} is not in {'them' if name in mine else 'this model'}")
            if arrays[name].shape != mine[name].shape:
                raise InputError(f"array {name} has shape {arrays[name].shape}, this model's has {mine[name].shape}")
        self.load(self.weights, arrays)
        self.load(self.state, arrays)

    def loss_and_gradients(self, epoch: int) -> tuple[float, dict[str, Array]]:
        """Return the mean training loss over all PEs and its gradients by name, float64 on the host (collective).

        Uses the dropout of ``epoch``, and updates the running statistics in ``state``.
        """
        loss, gradients = self._loss_and_gradients(epoch)
        self._move_on(self._always)
        return loss, self._named(gradients)

    def _named(self, gradients: np.ndarray) -> NamedViews:
        return NamedViews(gradients, {name: weight.shape for name, weight in self.weights.items()})

    def _loss_and_gradients(self, epoch: int) -> tuple[float, np.ndarray]:
        """Return the loss and the gradients as one vector, in the order of the weights (collective).

        One float64 all-reduce sums everything over the PEs. The hosts read the loss here: this is the only place where
        a step waits for the device.
        """
        mine = self._differentiate(epoch, self._world.upload(np.array([float(epoch)])))
        self._world.set_phase(epoch, "all-reduce")
        total = self._world.download(self._world.all_reduce(mine))
        return float(total[0]), total[1:]

    def _differentiate(self, epoch: int, draws: Array) -> Array:
        """Return loss and gradients of this PE's nodes as one vector on the device, without waiting for it.

        Messages name ``epoch``; dropout uses that of ``draws``, float64 [1] on the device.
        """
        run = self._pass(self.weights, dict(self.state), draws)
        # If the model diverges and overflows, the caller reports it once, with the epoch; NumPy would warn repeatedly.
        set_phase = self._world.set_phase
        with np.errstate(over="ignore", invalid="ignore"), self._model.blamed(passing=True):
            set_phase(epoch, "forward")
            logits = self._staged.forward(self._x, run)
            loss, gradient = self._targets.loss_and_gradient(run.arrays, logits)
            set_phase(epoch, "backward")
            self._staged.backward(gradient, run)
            self._moved = run.state
            check_gradients(run.gradients, self.weights)
            return run.arrays.joined([loss, *(run.gradients[name] for name in self.weights)])

    def _move_on(self, allowed: Array) -> None:
        """Adopt the running statistics of the last training pass, unless ``allowed`` is 0."""
        for name, value in self.state.items():
            self._graph.arrays.move(value, self._moved[name], allowed)

    def _update(self, gradients: Array, rates: Array, allowed: Array) -> None:
        """Apply the optimizer's step and the pass's running statistics on the device, unless ``allowed`` is 0."""
        self._move_on(allowed)
        self.adam.step(gradients, rates, allowed)

    def _rates(self, epoch: int) -> np.ndarray:
        return self.adam.rates(epoch, learning_rate(self.settings, epoch, self._epochs))

    def _pass(self, weights: dict[str, Array], state: dict[str, Array], epoch: Array | None = None) -> Pass:
        """Return a new pass: for training with the dropout of ``epoch`` (float64 [1] on the device), else without."""
        training = epoch is not None
        self._graph.begin(self._seed, epoch)
        return Pass(self._graph, weights, state, training, epoch, self._seed, constant=self._x)

    def _logits(self, weights: dict[str, Array], state: dict[str, Array]) -> Array:
        """Return the model's output without dropout (collective)."""
        with np.errstate(over="ignore", invalid="ignore"), self._model.blamed(passing=True):
            return self._chain.forward(self._x, self._pass(weights, state))

    def step(self, epoch: int) -> float:
        """Run the training step of ``epoch`` (from 1); return the mean training loss before it (collective).

        Raises:
            DivergedError: loss or gradients are beyond ``LARGEST`` or not finite (names the layer); the weights are
                unchanged.
        """
        loss, gradients = self._loss_and_gradients(epoch)
        self._check(loss, gradients, epoch)
        self._world.set_phase(epoch, "update")
        upload = self._world.upload
        self._update(upload(gradients), upload(self._rates(epoch)), self._always)
        return loss

    def _check(self, loss: float, gradients: np.ndarray, epoch: int) -> None:
        """Raise DivergedError if the loss or a gradient, summed over all PEs, is beyond ``LARGEST`` (collective)."""
        if not abs(loss) <= LARGEST:
            raise self._diverged(f"epoch {epoch}: the training loss is {loss}", epoch)
        sizes = {name: float(np.abs(array).max(initial=0)) for name, array in self._named(gradients).items()}
        for name, size in sizes.items():
            if not size <= LARGEST:
                how = f"as large as {size:.0e}" if math.isfinite(size) else "not finite"
                raise self._diverged(f"epoch {epoch}: the gradient of {name} is {how}", epoch, named=True)

    def evaluate(self, epoch: int = 0) -> Scores:
        """Score the current weights without dropout (collective); messages name ``epoch``.

        Raises:
            DivergedError: the loss is not finite (names the layer).
        """
        mine, logits = self._measure(epoch)
        return self._scores(self._world.download(self._world.all_reduce(mine)), logits, epoch)

    def _measure(self, epoch: int) -> tuple[Array, Array]:
        """Return this PE's sums for an evaluation, and the logits, on the device, without waiting for it."""
        self._world.set_phase(epoch, "evaluation")
        logits = self._logits(self.weights, self.state)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._targets.sums(self._graph.arrays, logits), logits

    def _scores(self, total: np.ndarray, logits: Array, epoch: int) -> Scores:
        """Return the scores of ``logits`` from the sums over all PEs (collective); raises as ``evaluate`` does."""
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self._targets.scores(self._world, total, logits)
        if not math.isfinite(scores.validation_loss):
            raise self._diverged(
                f"epoch {epoch}: the loss of the {self._targets.judge} split is {scores.validation_loss}", None
            )
        return scores

    def epoch(self, epoch: int) -> tuple[float, Scores]:
        """Run ``step`` and ``evaluate`` with identical results; return the loss and the scores (collective).

        On GPUs the submissions of an epoch are captured and resubmitted as one launch, if technique and model allow
        that. Epochs differ only in numbers that the device reads from its memory.
        """
        if self._repeat and not self.searching and self._submission is None:
            self._submission = self._world.repeated(self._submit_all, 1 + RATES)
        if self._submission is None:
            return self.step(epoch), self.evaluate(epoch)
        self._now = epoch
        self._world.set_phase(epoch, "forward")
        total, logits = self._submission.submit(np.concatenate([[float(epoch)], self._rates(epoch)]))
        found = self._submission.result()
        loss, finite = found[:2].tolist()
        if not finite:
            self._check(loss, self._world.download(total)[1:], epoch)
        return loss, self._scores(found[2:], logits, epoch)

    def _submit_all(self, given: Array) -> tuple[Array, Any]:
        """Submit an epoch: loss, whether it and the gradients are finite, and the sums of the evaluation.

        The device itself skips the update if a number is not finite, before the host sees it.
        """
        arrays, total = self._graph.arrays, self._summed(self._differentiate(self._now, given[:1]), "all-reduce")
        allowed = arrays.finite(total)
        self._world.set_phase(self._now, "update")
        self._update(total[1:], given[1:], allowed)
        sums, logits = self._measure(self._now)
        return arrays.joined([total[:1], allowed, self._summed(sums, "evaluation")]), (total, logits)

    def _summed(self, mine: Array, phase: str) -> Array:
        """Return the sum over all PEs on the device (collective)."""
        if self._world.size == 1:
            return mine
        self._world.set_phase(self._now, phase)
        return self._world.all_reduce(mine)

    def _release(self) -> None:
        """Free the memory of the captured epoch, for work that is not an epoch."""
        if self._submission is not None:
            self._submission.release()

    def _diverged(self, what: str, epoch: int | None, *, named: bool = False) -> DivergedError:
        """Return the error, which names the layer at fault in the pass of ``epoch``, None: an evaluation (collective).

        If ``what`` has ``named`` a layer already, one is added only if its output is beyond ``LARGEST``.
        """
        self._release()
        draws = None if epoch is None else self._world.upload(np.array([float(epoch)]))
        run = self._pass(self.weights, dict(self.state), draws)
        layer, beyond = blamed(self._world, self._chain, self._x, run)
        where = f", {'first' if beyond else 'largest'} in {layer}" if beyond or not named else ""
        advice = "lower the setting learning_rate"
        if epoch == 1:
            advice = "no step was taken yet, so the features are too large, or the weights that it starts from"
        return DivergedError(f"{what}{where}: {advice}").on_every_pe()

    def predict(self, arrays: dict[str, np.ndarray], *, checked: bool = False) -> np.ndarray:
        """Return the targets' prediction for each of this PE's rows, on the host, without dropout (collective).

        Args:
            arrays: weights and running statistics by name, in host memory.
            checked: raise InputError, which names the layer, if an output is not finite or is beyond ``LARGEST``.
        """
        self._release()
        upload = self._world.upload
        weights, state = ({name: upload(arrays[name]) for name in mine} for mine in (self.weights, self.state))
        logits = self._logits(weights, state)
        if checked and not np.max(self._world.gather(largest(self._world, logits))) <= LARGEST:
            layer, _ = blamed(self._world, self._chain, self._x, self._pass(weights, state))
            raise InputError(
                f"model {self._model.name}: its output is not finite or beyond {LARGEST:.0e}, first in {layer}: the"
                " weights are not for these features, or either are too large"
            ).on_every_pe()
        return self._targets.predict(self._world, self._graph.arrays, logits)

    def inference(self) -> Callable[[], None]:
        """Return a function that runs one pass without dropout and waits for it; both are collective.

        The pass uses the current weights. On GPUs it is captured and resubmitted as a whole, as in ``epoch``.
        """
        self._release()

        def submit(_: Array) -> tuple[Array, Any]:
            logits = self._logits(self.weights, self.state)
            return self._graph.arrays.joined([self._always]), logits

        self._submission = self._world.repeated(submit, 1) if self._repeat else None
        submission, nothing = self._submission, np.zeros(1)

        def once() -> None:
            if submission is None:
                self._world.download(submit(nothing)[0])
            else:
                submission.submit(nothing)
                submission.result()

        return once

    def close(self) -> None:
        """Free the symmetric arrays and drop all large objects (collective)."""
        self._staged.forget()  # so that the captured epoch gives back that memory, too
        self._release()
        self._submission = None
        self._staged.close()
        self._graph.close()
        del self._graph, self._x, self._targets, self.adam, self._chain, self._staged
        if self._outside is not None:
            self._outside.close()
        if self._world.gpu:
            gc.collect()  # programs, their plans and the graph refer to one another, and hold arrays on the GPU


def loss_and_gradients(
    world: World, layout: PeLayout, *, model: str | Model, technique: str, options: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None, seed: int = 0, weights: dict[str, Array] | None = None, epoch: int = 1,
    **how: Any,
) -> tuple[float, dict[str, Array]]:  # fmt: skip
    """Return training loss and gradients (float64, by name) at ``weights``, or the initial ones if None (collective).

    ``how`` are further arguments of ``Trainer``.

    For the same weights, seed and epoch the results agree up to rounding for every number of PEs, backend and
    technique; with ``dtype`` bf16 the embeddings are rounded, too.
    """
    resolved = together(world, lambda: settings_of(model, settings))
    trainer = Trainer(
        world, layout, model=model, technique=technique, options=options or {}, settings=resolved, seed=seed, **how
    )  # fmt: skip
    if weights is not None:
        trainer.load(trainer.weights, weights)
    result = trainer.loss_and_gradients(epoch)
    trainer.close()
    return result
