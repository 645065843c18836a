"""What NumPy's functions are in terms of operators on tensors.

`UFUNCS` has the functions of elements, which get operands in the dtype of NumPy's own loop. `FUNCTIONS` has the others, and
`METHODS` those methods of arrays that differ from the function of their name (`numpy_functions.py`, `numpy_shapes.py`). A function that is not here breaks the graph,
and so does a keyword that a definition does not name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau._dynamo import arrays
from flambeau._dynamo.arrays import TracedArray, cast, guarded, numpy, on_host, refuse
from flambeau._dynamo.breaks import Unsupported
from flambeau._dynamo.sizes import SymInt
from flambeau._dynamo.traced import TracedNumber, TracedTensor

Rule = Callable[..., Any]


def _op(name: str) -> Rule:
    """The operator of this name."""

    def run(tracer: Any, *args: Any) -> Any:
        function = fl
        for part in name.split("."):
            function = getattr(function, part)
        return tracer.builder.call_function(function, args, {})

    return run


def _python(function: Any) -> Rule:
    return lambda tracer, *args: tracer.builder.call_function(function, args, {})


class Calls:
    """Operators on tensors of the graph: `fn.sum(x, 0)` records a call."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def __getattr__(self, name: str) -> Any:
        function = getattr(fl, name) if hasattr(fl, name) else getattr(fl.linalg, name.removeprefix("linalg_"))
        where = on_host() if name in _SIZED else {}
        return lambda *args, **kwargs: self.tracer.builder.call_function(function, args, {**where, **kwargs})

    def array(self, value: Any) -> TracedArray:
        return arrays.as_array(self.tracer, value)

    def tensor(self, value: Any, dtype: Any = None) -> Any:
        tensor_value = self.array(value).tensor
        return tensor_value if dtype is None else cast(tensor_value, dtype)

    def new(self, tensor: Any) -> TracedArray:
        return TracedArray(self.tracer, tensor)

    def result(self, tensor: Any) -> TracedArray:
        """What reductions return: a scalar where no dimension is left."""
        return TracedArray(self.tracer, tensor, scalar=not tensor.fake.ndim)


# ---------------------------------------------------------------------------------------------- functions of elements


def _floor_divide(tracer: Any, a: Any, b: Any) -> Any:
    fn = Calls(tracer)
    if a.fake.dtype.is_floating_point:
        return fn.floor_divide(a, b)
    zero = b == 0  # where NumPy warns, and says 0
    return fn.where(zero, 0, fn.floor_divide(a, fn.where(zero, 1, b)))


def _remainder(tracer: Any, a: Any, b: Any) -> Any:
    fn = Calls(tracer)
    if a.fake.dtype.is_floating_point:
        result = fn.remainder(a, b)
        return fn.where(result == 0, fn.copysign(result, b), result)
    zero = b == 0
    return fn.where(zero, 0, fn.remainder(a, fn.where(zero, 1, b)))


def _reciprocal(tracer: Any, a: Any) -> Any:
    return Calls(tracer).reciprocal(a) if not _is_integer(a) else refuse("np.reciprocal of integers")


def _is_integer(tensor: Any) -> bool:
    return not (tensor.fake.dtype.is_floating_point or tensor.fake.dtype.is_complex)


def _sign(tracer: Any, a: Any) -> Any:
    fn = Calls(tracer)
    if a.fake.dtype.is_complex:
        return fn.sgn(a)
    signs = fn.sign(a)
    return fn.where(fn.isnan(a), a, signs) if a.fake.dtype.is_floating_point else signs


UFUNCS: dict[str, Rule] = {
    name: _op(name)
    for name in "sin cos tan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt square floor ceil trunc isnan isinf isfinite "
    "signbit logical_not deg2rad rad2deg maximum minimum fmax fmin fmod hypot logaddexp logaddexp2 copysign heaviside nextafter "
    "gcd lcm logical_and logical_or logical_xor matmul float_power".split()
}
UFUNCS.update(
    {
        "arcsin": _op("asin"), "arccos": _op("acos"), "arctan": _op("atan"), "arcsinh": _op("asinh"), "arccosh": _op("acosh"),
        "arctanh": _op("atanh"), "arctan2": _op("atan2"), "rint": _op("round"), "absolute": _op("abs"), "fabs": _op("abs"),
        "negative": _op("neg"), "positive": _op("positive"), "invert": _op("bitwise_not"), "conjugate": _op("conj_physical"),
        "degrees": _op("rad2deg"), "radians": _op("deg2rad"), "sign": _sign, "reciprocal": _reciprocal,
        "floor_divide": _floor_divide, "remainder": _remainder, "add": _python(operator.add), "subtract": _python(operator.sub),
        "multiply": _python(operator.mul), "divide": _python(operator.truediv), "power": _python(operator.pow),
        "bitwise_and": _python(operator.and_), "bitwise_or": _python(operator.or_), "bitwise_xor": _python(operator.xor),
        "left_shift": _op("bitwise_left_shift"), "right_shift": _op("bitwise_right_shift"), "less": _python(operator.lt),
        "less_equal": _python(operator.le), "greater": _python(operator.gt), "greater_equal": _python(operator.ge),
        "equal": _python(operator.eq), "not_equal": _python(operator.ne),
    }
)  # fmt: skip
UFUNCS["true_divide"] = UFUNCS["divide"]
# The operators of the language take numbers as they are.
WITH_NUMBERS = frozenset(
    "add subtract multiply divide true_divide power bitwise_and bitwise_or bitwise_xor less less_equal greater greater_equal "
    "equal not_equal".split()
)

FUNCTIONS: dict[str, Rule] = {}
METHODS: dict[str, Rule] = {}


def entry(*names: str, table: dict[str, Rule] = FUNCTIONS) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            table[name] = rule
        return rule

    return register


# Methods that are the function of their name.
_SHARED = frozenset(
    "sum prod mean var std max min all any argmax argmin cumsum cumprod ravel swapaxes squeeze repeat round argsort take dot trace "
    "diagonal searchsorted".split()
)


@guarded
def call_method(array: TracedArray, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    rule = METHODS.get(name) or (FUNCTIONS[name] if name in _SHARED else None)
    if rule is None:
        if name in ("item", "tolist", "tobytes"):
            from flambeau._dynamo import breaks

            raise Unsupported(breaks.TENSOR_VALUE, f"ndarray.{name}")
        refuse(f"ndarray.{name}")
    return rule(Calls(array.tracer), array, *args, **kwargs)


# ---------------------------------------------------------------------------------------------- calls

# Where NumPy is given no arrays but plain numbers, it answers at capture; these know sizes that are symbols.
_SIZED = frozenset("zeros ones empty full arange eye identity".split())
# Of plain numbers only: the result is a constant.
_ON_NUMBERS = (
    "linspace logspace geomspace indices tri vander hanning hamming blackman kaiser bartlett prod cbrt result_type promote_types "
    "can_cast finfo iinfo dtype broadcast_shapes polyfit cov corrcoef histogram bincount unique argwhere nonzero triu_indices "
    "tril_indices allclose array_equal isscalar ndim issubdtype"
).split()


def _holds_symbol(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_holds_symbol(v) for v in value)
    return type(value) in (SymInt, TracedNumber)


def _made(tracer: Any, result: Any) -> Any:
    """What NumPy returned at capture, as a value of the program."""
    np = numpy()
    if isinstance(result, np.ndarray):
        return arrays.constant(tracer, result)
    if type(result) in (tuple, list):
        return type(result)(_made(tracer, r) for r in result)
    if isinstance(result, (np.finfo, np.iinfo)):
        return tracer.outside.wrap(result, tracer.outside.sources.constant(result))
    return result if arrays.is_known(result) else refuse(f"a result of type {type(result).__name__}")


def handler(function: Any, name: str) -> Rule:
    """What a call of a NumPy function does while capturing."""
    rule = FUNCTIONS.get(name)
    is_ufunc = isinstance(function, numpy().ufunc)

    def run(tracer: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = (args, tuple(kwargs.values()))
        if arrays.holds_array(arguments) or (rule is not None and _holds_tensor(arguments)):
            if is_ufunc:
                return arrays.call_ufunc(tracer, function, args, kwargs)
            if rule is None:
                refuse(f"np.{name}")
            return rule(Calls(tracer), *args, **kwargs)
        if (
            name in _SIZED
            and rule is not None
            and (_holds_symbol(arguments) or name in ("zeros", "ones", "empty", "full"))
        ):
            return rule(Calls(tracer), *args, **kwargs)
        plainly = (arrays._plain(args), {k: arrays._plain(v) for k, v in kwargs.items()})
        if not arrays.is_known(plainly[0]) or not arrays.is_known(tuple(plainly[1].values())):
            refuse(f"np.{name} of these arguments")
        return _made(tracer, function(*plainly[0], **plainly[1]))

    return guarded(run)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_holds_tensor(v) for v in value)
    return type(value) is TracedTensor


def handlers() -> list[tuple[Any, Rule]]:
    """All functions of the tables, as NumPy has them, with what a call of them does."""
    from flambeau._dynamo import numpy_shapes  # noqa: F401  (fills the tables)

    np, rules = numpy(), []
    for name in [*FUNCTIONS, *UFUNCS, *_ON_NUMBERS]:
        function = np
        for part in name.split("."):
            function = getattr(function, part, None)
        if function is not None:
            rules.append((function, handler(function, name)))
    return rules


# The function of elements that a reduction of it is.
_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
_RUNNING = {"add": "cumsum", "multiply": "cumprod"}


@guarded
def call_ufunc_method(tracer: Any, ufunc: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """ufunc.reduce(), .accumulate() and .outer()."""
    fn = Calls(tracer)
    array = fn.array(args[0])
    if name == "outer" and len(args) == 2:
        other = fn.array(args[1])
        left = fn.new(fn.reshape(array.tensor, (*array.shape, *(1 for _ in other.shape))))
        return arrays.call_ufunc(tracer, ufunc, (left, other), kwargs)
    table = _REDUCTIONS if name == "reduce" else _RUNNING if name == "accumulate" else {}
    rule = FUNCTIONS.get(table.get(ufunc.__name__, ""))
    if rule is None:
        refuse(f"np.{ufunc.__name__}.{name}")
    if len(args) < 2:
        kwargs = {"axis": 0, **kwargs}
    return rule(fn, array, *args[1:], **kwargs)
