"""Products in single precision: the gradient of a weight under autocast is not rounded to 16 bits before it is converted.

Autocast multiplies matrices of 16 bits and converts the gradient of a weight to the weight's own dtype. The products are added
up in single precision anyway, so that one call can leave them so: more exact, and without another pass over the gradient.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau.ops import tags

__all__ = ["widen_products"]


def widen_products(trace: Trace) -> None:
    """Changes calls in place."""
    readers: dict[int, list[int]] = {}
    for at, call in enumerate(trace.calls):
        for read in call.reads:
            readers.setdefault(read.storage, []).append(at)
    ends = [*trace.outputs, *trace.gradients]
    fixed = {v.storage for v in ends if v is not None} | {v.storage for call in trace.calls for v in call.writes}
    gone: set[int] = set()
    for at, call in enumerate(trace.calls):
        product = call.results[0] if call.op._full_name == "mm" and not call.writes else None
        if (
            product is None
            or product.storage in fixed
            or len(readers.get(product.storage, ())) != 1
            or not _is_even(call)
        ):
            continue
        reader = readers[product.storage][0]
        wide = _converted(trace.calls[reader], product)
        if wide is None:
            continue
        op = fl.ops.aten._product_widened.default
        trace.calls[at] = replaced = RecordedCall(op, call.args, call.kwargs, [wide], [])
        replaced.backward, replaced.line = call.backward, call.line
        gone.add(reader)
    trace.forward_calls -= sum(at < trace.forward_calls for at in gone)
    trace.calls = [call for at, call in enumerate(trace.calls) if at not in gone]


def _converted(call: RecordedCall, value: RecordedValue) -> RecordedValue | None:
    """What a call makes of a whole product by converting it to single precision."""
    if call.op._full_name not in tags.operators("copy") or call.writes or len(call.results) != 1:
        return None
    result, read = call.results[0], call.reads[0]
    if result is None or result.dtype is not fl.float32 or value.dtype not in (fl.bfloat16, fl.float16):
        return None
    whole = (read.size, read.stride, read.offset) == (value.size, value.stride, value.offset)
    return result if whole and (result.size, result.stride, result.offset) == (value.size, value.stride, 0) else None


def _is_even(call: RecordedCall) -> bool:
    """Whether the matrices lie as the fast kernels want them, which others have copied for them otherwise."""
    values: list[Any] = [*call.reads, call.results[0]]
    return all(n % 8 == 0 for v in values for n in (*v.size, *v.stride, v.offset) if n != 1)
