"""Optimizers whose steps never read values on the host: recorded ones are like that already."""

from flambeau.optim import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
