"""The step size of each epoch: warm-up, then constant, cosine or step decay."""

from __future__ import annotations

import math

from mgg.model.settings import ModelSettings

#: GIN halves its step size every 50 epochs (Xu et al., ICLR 2019, section 7).
STEP_EPOCHS, STEP_FACTOR = 50, 0.5


def learning_rate(settings: ModelSettings, epoch: int, epochs: int) -> float:
    """Return the step size of an epoch.

    In the first ``warmup`` epochs it grows in equal steps and reaches its full value in epoch ``warmup`` (Goyal et al.
    2017, section 2.2). After that, "cosine" follows SGDR's equation 5 without restarts, from the full step size towards
    0 (Loshchilov and Hutter, ICLR 2017), and "step" halves it every 50 epochs, counted from the first epoch, warm-up
    included.

    Args:
        settings: learning_rate, schedule and warmup.
        epoch: from 1.
        epochs: total number; only "cosine" depends on it.
    """
    full = settings.learning_rate
    if epoch < settings.warmup:
        return full * epoch / settings.warmup
    if settings.schedule == "cosine":
        begin = max(settings.warmup, 1)
        return full * (1 + math.cos(math.pi * (epoch - begin) / max(epochs - begin + 1, 1))) / 2
    if settings.schedule == "step":
        return full * STEP_FACTOR ** ((epoch - 1) // STEP_EPOCHS)
    return full
