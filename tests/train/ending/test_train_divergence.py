"""Numbers too large or not finite end a run: epoch and layer are named, and the last good checkpoint is kept."""

import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.graphs import make_layout, random_csr
from support.graphs.train_graphs import node_data
from support.programs.train_program import checkpoint_files, run, tables

from mgg import layout
from mgg.backend import launch
from mgg.errors import InputError
from mgg.model import settings_of
from mgg.train import Trainer

BASE = {"technique": "halo", "epochs": 12, "settings": {"hidden": 8}, "seed": 2}
ALWAYS = 1e-9  # seconds between checkpoints: one after each epoch


def test_divergence_keeps_the_last_good_checkpoint(layouts, tmp_path, monkeypatch):
    """The weights get a number that is none after epoch 7: no checkpoint has it, and the layer is named."""
    out, step = tmp_path / "run", Trainer.step

    def broken(trainer, epoch):
        loss = step(trainer, epoch)
        if epoch == 7:
            trainer.weights["layer1.weight"][0, 0] = np.nan
        return loss

    monkeypatch.setattr(Trainer, "step", broken)
    message = (
        r"^epoch 7: the loss of the validation split is nan, first in layer layer1 \(VertexLayer\): lower the setting"
        r" learning_rate; the last good checkpoint is .*/run.checkpoint/epoch-000006.safetensors$"
    )
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 2), 2, model="gcn", out=out, checkpoint_every=ALWAYS, **BASE)
    assert [path.name for path in checkpoint_files(out)] == ["epoch-000005.safetensors", "epoch-000006.safetensors"]
    assert all(np.isfinite(array).all() for array in load_file(checkpoint_files(out)[-1]).values())
    monkeypatch.setattr(Trainer, "step", step)
    run("simulated", layouts("planted", 2), 2, model="gcn", out=out, resume=True, **BASE)
    run("simulated", layouts("planted", 2), 2, model="gcn", out=tmp_path / "whole", **BASE)
    assert tables(out) == tables(tmp_path / "whole")


@pytest.mark.parametrize(
    ("model", "size", "what"),
    [
        ("gcn", 1e21, r"the gradient of \S+ is as large as 1?\de\+\d+|the training loss is \S+"),
        ("gcn", 3e38, "the training loss is (nan|inf)"),
    ],
)
def test_gradients_with_squares_beyond_float32_are_a_divergence(model, size, what, layouts, tmp_path):
    """Features as large as these would leave infinite moments in a checkpoint that looks good."""
    features = np.full((60, 5), size, np.float32)
    folder = make_layout(tmp_path, random_csr(60, 200), 1, **{**node_data(), "features": features})
    options = {**BASE, "settings": {"hidden": 8, "dropout": 0.0}, "checkpoint_every": ALWAYS}
    message = rf"^epoch 1: ({what}), first in layer layer0 \(\w+\): no step was taken"
    with pytest.raises(InputError, match=message), warnings.catch_warnings(action="error"):
        run("simulated", folder, 1, model=model, out=tmp_path / "run", **options)
    assert not checkpoint_files(tmp_path / "run")


def test_divergence_names_the_first_layer_beyond_the_bound(layouts, tmp_path):
    """Nobody breaks anything here: the numbers stop a training before they are infinite."""
    settings = {"learning_rate": 3.0, "normalization": "none", "layers": 8}
    message = r"^epoch \d: the training loss is \d\S+e\+\d+, first in layer layer\d\.mlp\d \(\w+\): lower"
    with pytest.raises(InputError, match=message):
        run("simulated", layouts("planted", 2), 2, model="gin", out=tmp_path / "run", **BASE | {"settings": settings})


def trainer_of(world, folder):
    settings = settings_of("gcn", {"hidden": 8})
    part = layout.load(folder, world.rank)
    return Trainer(world, part, model="gcn", technique="halo", options={}, settings=settings, seed=0)


@pytest.mark.parametrize(("bias", "which"), [(8e17, "largest"), (2e18, "first")])
def test_loss_beyond_the_bound_names_a_layer(bias, which, layouts):
    """A loss may be twice as large as what it is made of."""

    def program(world):
        trainer = trainer_of(world, layouts("planted", 2))
        trainer.weights["layer1.bias"][...] = -bias
        trainer.weights["layer1.bias"][0] = bias
        with pytest.raises(
            InputError, match=rf"^epoch 4: the training loss is \S+e\+18, {which} in layer layer1 \(Bias\): lower"
        ):
            trainer.step(4)

    launch("simulated", lambda: 2, program)


@pytest.mark.parametrize("epoch", [7, 12])
def test_divergence_is_detected_without_validation_nodes(epoch, layouts, tmp_path, monkeypatch):
    """In the last epoch, too, whose weights nobody trains with any more."""
    step = Trainer.step

    def broken(trainer, number):
        loss = step(trainer, number)
        if number == epoch:
            trainer.weights["layer1.weight"][0, 0, 0] = np.nan
        return loss

    monkeypatch.setattr(Trainer, "step", broken)
    said = rf"^epoch {epoch}: the loss of the train split is nan, first in layer layer1 "
    with pytest.raises(InputError, match=said):
        run("simulated", layouts("featureless", 2), 2, model="rgcn", out=tmp_path / "run", **BASE)
    assert not (tmp_path / "run").exists()


def test_nonfinite_gradients_leave_the_weights_unchanged(layouts):
    def program(world):
        trainer = trainer_of(world, layouts("planted", 1))
        before, plain = trainer.save(), trainer._loss_and_gradients
        trainer._loss_and_gradients = lambda epoch: (1.0, np.full_like(plain(epoch)[1], np.inf))
        with pytest.raises(InputError, match=r"^epoch 4: the gradient of layer0\.weight is not finite"):
            trainer.step(4)
        for group, arrays in trainer.save().items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, before[group][name])

    launch("simulated", lambda: 1, program)
