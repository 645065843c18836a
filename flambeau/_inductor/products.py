"""Products of matrices with what follows them: in evaluation, a product, its bias, activation, and sums or products with
other tensors become one call, `_product_finished` (`csrc/cpu/gemm/product_finish.h`).

The steps are applied to the part of the result that a thread has just computed. In low precision each is rounded, as if it
were an operator of its own, so that results are eager mode's. Where the weight is frozen (`freezing.py`) the call gets it
packed, as the inner loops read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau._inductor import config
from flambeau._inductor.epilogue import Epilogues, is_plain, made_by, operand_beside
from flambeau._inductor.product_operands import product_operands
from flambeau.backends import records
from flambeau.ops import tags

__all__ = ["finish_products"]

# Numbers of the steps, by their names in csrc/cpu/gemm/product_finish.h.
_ADD, _MUL, _RELU, _GELU, _GELU_TANH, _SILU, _SIGMOID, _TANH = (
    _C._PRODUCT_STEPS[name] for name in ("Add", "Mul", "Relu", "Gelu", "GeluTanh", "Silu", "Sigmoid", "Tanh")
)
_BINARY = {"add.Tensor": _ADD, "mul.Tensor": _MUL}
_GELUS = {"none": _GELU, "tanh": _GELU_TANH}
_FUNCTIONS: Any = {
    _ADD: fl.add, _MUL: fl.mul, _GELU: lambda x: fl.nn.functional.gelu(x),
    _GELU_TANH: lambda x: fl.nn.functional.gelu(x, approximate="tanh"),
}  # fmt: skip
_ACTIVATIONS = {_RELU: fl.relu, _SILU: fl.nn.functional.silu, _SIGMOID: fl.sigmoid, _TANH: fl.tanh}
_UNARY = {function.__name__: step for step, function in _ACTIVATIONS.items()}
_MOST, _OPERANDS = 6, 2  # steps of one call, and operands beside the bias

_APART, _FINISHED, _PACKED = range(3)  # ways to compute one
MOST_ROWS = 512  # of a product in single precision, for packing its weight

_DTYPES = (fl.float32, fl.bfloat16)


def finish_products(trace: Trace, frozen: Set[int] = frozenset()) -> None:
    """Changes the calls of a trace without derivatives; `frozen` are storages that stay from run to run."""
    if any(call.op._full_name in _Finishing.names for call in trace.calls):
        _Finishing(trace, frozen).run()


class _Finishing(Epilogues):
    names = tags.operators("matmul")

    def __init__(self, trace: Trace, frozen: Set[int]) -> None:
        super().__init__(trace)
        self.frozen = frozen

    def alike(self, result: RecordedValue, value: RecordedValue) -> bool:
        return (result.size, result.dtype) == (value.size, value.dtype) and is_plain(result) and result.offset == 0

    def finished(self, at: int, call: RecordedCall) -> tuple[list[RecordedCall], list[int]] | None:
        value = call.results[0]
        parts = self._operands(call)
        if value is None or parts is None or value.dtype not in _DTYPES or not self.alike(value, value):
            return None
        first, second, bias = parts
        places = [at]
        steps: list[int] = []
        operands: list[RecordedValue] = []
        while len(steps) < _MOST and (following := self.only_reader(value, places)) is not None:
            place, user, result = following
            step = _step(user, value)
            if step is None:
                break
            kind, operand = step
            if operand is not None and len(operands) == _OPERANDS:
                break
            if kind == _ADD and operand is not None and _is_bias(operand, value) and not steps and bias is None:
                bias = operand
            else:
                steps.append(kind)
                operands += [] if operand is None else [operand]
            places.append(place)
            value = result
        frozen = second.storage in self.frozen
        if len(places) == 1 and not frozen:
            return None
        way = _way(first, second, bias, steps, operands, frozen)
        if way == _APART or (way == _FINISHED and len(places) == 1):
            return None
        packed, calls = None, []
        if way == _PACKED:
            packed, packing = made_by(self.trace, fl.ops.aten._product_packed.default, second)
            calls.append(packing)
        args = (first, second, bias, packed, *(*operands, None, None)[:_OPERANDS], steps)
        calls.append(RecordedCall(fl.ops.aten._product_finished.default, args, {}, [value], []))
        return calls, places

    def _operands(self, call: RecordedCall) -> tuple[RecordedValue, RecordedValue, RecordedValue | None] | None:
        """A product as (..., m, k) @ (k, n) + bias; None if it is another one."""
        operands = product_operands(call)
        if operands is None:
            return None
        first, second, bias = operands.first, operands.second, operands.bias
        if operands.transposed and len(second.size) == 2:
            second = self.trace.value(second.tensor.detach().t())
        if len(first.size) < 2 or len(second.size) != 2 or (bias is not None and bias.size != second.size[1:]):
            return None
        return first, second, bias


def _is_bias(operand: RecordedValue, value: RecordedValue) -> bool:
    """Whether an operand that is added to a product is the same as a bias of it, which is added before rounding."""
    return value.dtype is fl.float32 and operand.size == value.size[-1:]


def _step(call: RecordedCall, value: RecordedValue) -> tuple[int, RecordedValue | None] | None:
    """The number of the step that a call is, and its other operand."""
    name = call.op._full_name
    if name in _BINARY:
        other = operand_beside(call, value)
        if other is None or other.dtype is not value.dtype:
            return None
        row = other.size[-1:] == value.size[-1:] and math.prod(other.size) == value.size[-1]
        whole = other.size == value.size and is_plain(other)
        return (_BINARY[name], other) if whole or (row and len(other.size) <= len(value.size)) else None
    if not call.args or call.args[0] is not value:
        return None
    if name == "gelu":
        return _GELUS[records.bind(call.op, call.args, call.kwargs)["approximate"]], None
    return (_UNARY[name], None) if name in _UNARY else None


def _way(
    first: RecordedValue,
    second: RecordedValue,
    bias: RecordedValue | None,
    steps: list[int],
    operands: list[RecordedValue],
    frozen: bool,
) -> int:
    """How a product and its steps take the least time."""
    rows = math.prod(first.size[:-1])
    if 0 in second.size or rows == 0:
        return _FINISHED
    if config.max_autotune:
        return _measured(first, second, bias, steps, operands, frozen)
    # A single row is multiplied where the weight lies, each of whose elements is read once; for many rows of single
    # precision packing is a small part of the work. Measured with one thread: packed weights save 15% at 64 rows, 5 to
    # 20% at 128, 1 to 6% at 512, and nothing from 1024 on.
    pays = 1 < rows <= (MOST_ROWS if first.dtype is fl.float32 else math.inf)
    return _PACKED if frozen and pays else _FINISHED


def _measured(
    first: RecordedValue,
    second: RecordedValue,
    bias: RecordedValue | None,
    steps: list[int],
    operands: list[RecordedValue],
    frozen: bool,
) -> int:
    from flambeau._inductor.compile_fx import compile_tensor_function
    from flambeau._inductor.tune import quickest

    values = [first, second, *([] if bias is None else [bias]), *operands]
    examples = [_example(v) for v in values]
    kinds = steps if bias is None else [_ADD, *steps]

    def apart(a: Any, b: Any, *others: Any) -> list[Any]:
        product, rest = a @ b, iter(others)
        for kind in kinds:
            product = (_FUNCTIONS | _ACTIVATIONS)[kind](product, *([next(rest)] if kind in (_ADD, _MUL) else []))
        return [product]

    compiled = compile_tensor_function(apart, len(examples), settings={"max_autotune": False, "epilogue_fusion": False})
    added = None if bias is None else examples[2]
    others = (*examples[len(examples) - len(operands) :], None, None)[:_OPERANDS]

    def finished(packed: Any) -> Callable[[], Any]:
        return lambda: fl._ops._product_finished(examples[0], examples[1], added, packed, *others, steps)

    with fl.no_grad():
        ways = [lambda: compiled(*examples), finished(None)]
        ways += [finished(fl._ops._product_packed(examples[1]))] if frozen else []
        sizes = [(v.size, v.stride) for v in values]
        return quickest(f"product {first.dtype} {sizes} {kinds}{' packed' if frozen else ''}", ways)


def _example(value: RecordedValue) -> Any:
    """A tensor that looks like a value."""
    extent = 1 + sum((n - 1) * s for n, s in zip(value.size, value.stride))
    return fl.full((extent,), 0.5, dtype=value.dtype).as_strided(value.size, value.stride)
