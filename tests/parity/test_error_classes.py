"""A wrong call raises what PyTorch raises, or a subclass of it, and says what was expected and what came.

`bad_calls.txt` has wrong calls, one a line, over the public API: shapes, dtypes, indices, types, missing and unknown
arguments, modules, optimizers and loaders with a bad configuration. In them `t` is a matrix of 2 by 3, `v` a vector of 3,
`i` three integers, `b` two bools and `g` a vector that requires grad.
"""

import importlib
import io
import pathlib
import re
import warnings

import pytest

torch = pytest.importorskip("torch")

CALLS = (pathlib.Path(__file__).parent / "bad_calls.txt").read_text().splitlines()

# Python's own messages, and those that other programs look for.
PLAIN = re.compile(
    r"has no attribute|missing \d|positional argument|keyword argument|not iterable|no len\(\)|not callable|flambeau has no"
    r"|No such file|Can't pickle|list index|Error\(s\) in loading state_dict|missing the required|already exists"
    r"|name can't contain|Tensor-likes|do not match|^\w+$|unsupported operand|not supported between|could not convert"
    r"|subscriptable|cannot be interpreted|can only concatenate|slice indices|multiple values|modulo by zero|item assignment"
    r"|is not a buffer|initial_lr|required argument|must be|index out of range"
)


def names(library):
    """What the lines refer to, for one library; made anew for each, because some calls write to their arguments."""
    lib = importlib.import_module(library)
    data = importlib.import_module(f"{library}.utils.data")
    importlib.import_module(f"{library}.utils.checkpoint")
    g = lib.ones(3, requires_grad=True)

    class Ragged(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, k):
            return lib.ones(k + 1)

    class NoLen(data.Dataset):
        def __getitem__(self, k):
            return k

    def for_iter(x):
        for _ in x:
            pass

    def two_backwards():
        y = (g * g).sum()
        y.backward()
        y.backward()

    def inplace_leaf():
        g.add_(1)

    def inplace_saved():
        y = g.exp()
        y.add_(1)
        y.sum().backward()

    def assign_before_init():
        class Module(lib.nn.Module):
            def __init__(self):
                self.layer = lib.nn.Linear(2, 2)

        Module()

    def nan_grad():
        p = lib.ones(2, requires_grad=True)
        p.grad = lib.tensor([float("nan"), 1.0])
        return p

    known = {name: getattr(data, name) for name in data.__all__}
    known.update((k, v) for k, v in locals().items() if callable(v))
    return known | {
        "torch": lib, "nn": lib.nn, "F": lib.nn.functional, "io": io, "tmp": io.BytesIO, "DS": Ragged, "g": g,
        "t": lib.ones(2, 3), "i": lib.arange(3), "b": lib.tensor([True, False]), "v": lib.ones(3),
    }  # fmt: skip


def outcome(library, call):
    known = names(library)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(call, known)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("call", CALLS)
def test_the_error_is_of_the_class_that_pytorch_raises(call):
    theirs, ours = outcome("torch", call), outcome("flambeau", call)
    if theirs is None:
        assert ours is None
        return
    assert type(theirs).__name__ in [cls.__name__ for cls in type(ours).__mro__], f"{ours!r}, PyTorch: {theirs!r}"
    message = str(ours.args[0] if isinstance(ours, KeyError) else ours)
    assert re.match(r"\[[^\]]+\] expected .+", message, re.DOTALL) or PLAIN.search(message), message
