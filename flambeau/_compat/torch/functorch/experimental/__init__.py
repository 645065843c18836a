"""`functorch.experimental`: names that have found their places since."""

from __future__ import annotations

from flambeau.func import hessian, jacfwd, jvp, replace_all_batch_norm_modules_
from flambeau.func.transforms import functionalize

__all__ = ["functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]
