"""Which operators Python's operators call: `a / b` is `div`, `a %= b` is `remainder_`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

# The method of Tensor for each function of the module `operator`.
METHODS: dict[Callable[..., Any], str] = {
    getattr(operator, name): method
    for name, method in {
        "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "mod": "remainder", "pow": "pow", "matmul": "matmul",
        "floordiv": "__floordiv__", "and_": "__and__", "or_": "__or__", "xor": "__xor__", "lshift": "__lshift__",
        "rshift": "__rshift__", "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_", "imod": "remainder_",
        "ipow": "pow_", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne", "neg": "neg",
        "pos": "positive", "invert": "bitwise_not", "abs": "abs", "getitem": "__getitem__", "setitem": "__setitem__",
    }.items()
}  # fmt: skip
