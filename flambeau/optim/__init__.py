"""Optimizers and learning rate schedules."""

from flambeau.optim import lr_scheduler
from flambeau.optim.adam import Adam
from flambeau.optim.adamw import AdamW
from flambeau.optim.optimizer import Optimizer
from flambeau.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
