"""Optimizers and learning rate schedules.

Most steps are update records (`ops/lists/updates.py`): one native call for all parameters of a group.
"""

from typing import Any

from flambeau.optim import lr_scheduler
from flambeau.optim._adafactor import Adafactor
from flambeau.optim._muon import Muon
from flambeau.optim._stateless import swap_in_optimizer_params_and_state
from flambeau.optim.adadelta import Adadelta
from flambeau.optim.adagrad import Adagrad
from flambeau.optim.adam import Adam
from flambeau.optim.adamax import Adamax
from flambeau.optim.adamw import AdamW
from flambeau.optim.asgd import ASGD
from flambeau.optim.lbfgs import LBFGS
from flambeau.optim.nadam import NAdam
from flambeau.optim.optimizer import Optimizer
from flambeau.optim.radam import RAdam
from flambeau.optim.rmsprop import RMSprop
from flambeau.optim.rprop import Rprop
from flambeau.optim.sgd import SGD
from flambeau.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
    "swap_in_optimizer_params_and_state",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "swa_utils":  # imports nn
        import importlib

        return importlib.import_module(f"{__name__}.swa_utils")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
