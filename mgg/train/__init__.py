"""Stage train: full-graph training of a model over any technique, backend and number of PEs."""

from mgg.train.loop import Result, train
from mgg.train.trainer import Trainer, loss_and_gradients

__all__ = ["Result", "Trainer", "loss_and_gradients", "train"]
