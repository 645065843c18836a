# ruff: noqa
"""NumPy beside tensors, printing of tensors, operators by their full names, subclasses."""

import numpy as np

import flambeau as fl

from . import T, program, t


class Tagged(fl.Tensor):
    """A subclass that only adds a name."""


def tagged():
    return T(3).as_subclass(Tagged)


@program(t(3), rounding=True)
def numpy_round_trip(x):
    a = x.numpy()
    return fl.from_numpy(np.sin(a) + 1)


@program(t(3), rounding=True)
def numpy_in_the_middle(x):
    y = x * 2
    z = fl.from_numpy(np.cumsum(y.numpy()))
    return z + 1


@program(t(3))
def numpy_scalars(x):
    return x * np.float64(2.0) + np.int64(3), x * float(np.pi)


@program(t(2, 3))
def numpy_constants(x):
    return x * np.pi + np.e, np.inf > 1


@program(t(2, 3))
def numpy_of_numbers(x):
    return x * np.sqrt(16.0) + np.prod([1, 2, 3]), int(np.ceil(2.1))


@program(lambda: np.arange(3.0))
def numpy_argument(a):
    return fl.from_numpy(a) * 2


@program(t(3))
def print_tensor(x):
    print("before", x)
    y = x * 2
    print(y, "after")
    return y


@program(t(2, 2))
def print_shapes(x):
    print(f"{x.shape} {x.dtype}", x.ndim)
    return x + 1


@program(t(3), breaks=True)
def format_tensor(x):
    y = x + 1
    text = f"{y}"
    return y, text


@program(t(3), breaks=True)
def print_scalar_tensor(x):
    loss = x.sum()
    print(f"loss {loss}")
    return loss * 2


@program(t(3), t(3))
def aten_operators(x, y):
    return (
        fl.ops.aten.add(x, y),
        fl.ops.aten.mul.Tensor(x, y),
        fl.ops.aten.sin.default(x),
        fl.ops.aten.sum.dim_IntList(x, [0]),
    )


@program(t(3))
def aten_inplace(x):
    fl.ops.aten.add_(x, 1)
    return fl.ops.aten.relu(x)


@program(tagged, breaks=True)
def subclass_argument(x):
    return x + 1


@program(t(3))
def as_tensor(x):
    return fl.as_tensor(x), fl.as_tensor([1.0, 2.0]), fl.tensor([x.shape[0], 1])


@program(t(3), breaks=True)
def item_and_back(x):
    n = x.sum().item()
    return x * n


@program(t(3), breaks=True)
def tolist(x):
    return [v * 2 for v in x.tolist()]
