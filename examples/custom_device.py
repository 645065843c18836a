"""A device of one's own in forty lines: it keeps tensors in host memory and counts what it is asked to do.

python examples/custom_device.py

docs/new-device.md builds one step by step; flambeau/backends/reference is a complete one.
"""

import ctypes
import math
import operator

import flambeau as torch
from flambeau.backends import register_device
from flambeau.backends.reference.memory import offsets

device = register_device("abacus")
moves = []


def window(t):
    """The tensor's memory as a C array, and where its elements are in it."""
    places = offsets(t.shape, t.stride())
    kind = ctypes.c_bool if t.dtype is torch.bool else ctypes.c_float
    return (kind * (max(places, default=-1) + 1)).from_address(t.data_ptr()), places


def read(t):
    memory, places = window(t)
    return [memory[p] for p in places]


def write(t, values):
    memory, places = window(t)
    for place, value in zip(places, values):
        memory[place] = value


@device.kernel("copy_", any_device=True)  # the way in and out
def copy_(self, src, non_blocking=False):
    moves.append(f"copy of {self.numel()} numbers from {src.device} to {self.device}")
    write(self, read(src.expand(self.shape)))
    return self


@device.kernel("fill_", any_device=True)
def fill_(self, value):
    write(self, [value.item() if isinstance(value, torch.Tensor) else value] * self.numel())
    return self


FUNCTIONS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "le": operator.le, "where": lambda c, a, b: a if c else b, "exp": math.exp,
}  # fmt: skip


def evaluate(expr, names):
    """One expression of an op record, for one element."""
    if expr.op in ("const", "arg"):
        return expr.args[0] if expr.op == "const" else names[expr.args[0]]
    return FUNCTIONS[expr.op](*(evaluate(a, names) for a in expr.args))


def pointwise(expr, operands, out, dtype):
    """All pointwise operators at once."""
    moves.append(f"{expr} over {out.numel()} numbers")
    columns = [read(v) if isinstance(v, torch.Tensor) else [v] * out.numel() for v in operands.values()]
    write(out, [evaluate(expr, dict(zip(operands, row))) for row in zip(*columns)])


device.pointwise = pointwise

x = torch.tensor([-1.0, 2.0, 3.0]).to("abacus").requires_grad_()
y = torch.relu(x * 2 + 1)
print(y)
y.backward(torch.ones(3, device="abacus"))  # derivatives are expressions too
print("gradient", x.grad.cpu())
print("what the device was asked for:", *moves[:6], sep="\n  ")
assert y.tolist() == [0, 5, 7] and x.grad.tolist() == [0, 2, 2]
