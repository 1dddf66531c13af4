"""Mistakes in layers of one's own that would train something else than the model says are refused at the first pass."""

import numpy as np
import pytest

from mgg import layout
from mgg.backend import simulated
from mgg.errors import InputError
from mgg.model.layers import Linear
from mgg.model.module import Chain
from mgg.model.zoo import gcn
from mgg.train import loss_and_gradients


class Wrong(Linear):
    """Its gradient by the weights is changed after the backward pass."""

    def __init__(self, change, inputs, outputs):
        super().__init__("mine", inputs, outputs)
        self._change = change

    def backward(self, gradient, run, inputs=True):
        found = super().backward(gradient, run, inputs)
        changed = self._change(run.gradients.pop("mine.weight"))
        if changed is not None:
            run.gradients["mine.weight"] = changed
        return found


CASES = {
    "none": (lambda gradient: None, 0, r"^parameter mine\.weight: backward has set no gradient"),
    "turned": (lambda gradient: gradient.T.copy(), 0, r"^parameter mine\.weight: it is \[\d+, \d+\], and its gradient"),
    "flat": (
        lambda gradient: gradient.reshape(-1),
        0,
        r"^parameter mine\.weight: it is .* gradient \[\d+\]",
    ),
    "columns": (lambda gradient: gradient, 3, r"^model gcn: its output is \[\d+, \d+\], and not \[\d+, \d+\]"),
}


@pytest.mark.parametrize("pes", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_refused(case, pes, layouts, monkeypatch):
    change, more, said = CASES[case]
    monkeypatch.setattr(
        gcn, "build", lambda settings, sizes: Chain(Wrong(change, sizes.features, sizes.classes + more))
    )
    folder = layouts("planted", pes)

    def program(world):
        with pytest.raises(InputError, match=said) as raised:
            loss_and_gradients(world, layout.load(folder, world.rank), model="gcn", technique="halo")
        return raised.value.everywhere

    assert all(simulated.run(pes, program))


def test_a_right_one_is_taken(layouts, monkeypatch):
    monkeypatch.setattr(
        gcn, "build", lambda settings, sizes: Chain(Wrong(lambda it: it, sizes.features, sizes.classes))
    )
    part = layout.load(layouts("planted", 1), 0)
    loss, gradients = simulated.run(1, lambda world: loss_and_gradients(world, part, model="gcn", technique="halo"))[0]
    assert np.isfinite(loss) and gradients["mine.weight"].any()
