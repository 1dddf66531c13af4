"""Stage train: full-graph training; a technique aggregates, or brings halo rows to models that work arc by arc."""

from mgg.train.loop import Result, train
from mgg.train.trainer import Trainer, loss_and_gradients

__all__ = ["Result", "Trainer", "loss_and_gradients", "train"]
