"""Stage train: full-graph training. A technique aggregates, or fetches halo rows for models that work arc by arc."""

from mgg.train.loop import Result, train
from mgg.train.trainer import Trainer, loss_and_gradients

__all__ = ["Result", "Trainer", "loss_and_gradients", "train"]
