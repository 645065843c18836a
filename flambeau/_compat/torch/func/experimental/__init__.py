"""`functorch.experimental`: names that have found their places since."""

from __future__ import annotations

from flambeau.func import hessian, jacfwd, jvp

__all__ = ["hessian", "jacfwd", "jvp"]
