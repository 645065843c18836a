"""`get_logger`: loggers of launchers, at the level of the variable LOGLEVEL."""

from __future__ import annotations

import inspect
import logging
import os

__all__ = ["get_logger"]


def get_logger(name: str | None = None) -> logging.Logger:
    """The logger of a name, or of the module that calls."""
    if name is None:
        module = inspect.getmodule(inspect.stack()[1].frame)
        name = module.__name__ if module is not None else "flambeau"
    logger = logging.getLogger(name)
    logger.setLevel(os.environ.get("LOGLEVEL", "WARNING"))
    return logger
