"""Pooling of `nn.functional` in the language of scripts, written out when a script asks for it.

The functions differ by the number of dimensions and by what follows the name: `max_pool2d_with_indices` gives the places of the
maxima, too, `adaptive_avg_pool2d__1` takes None for sizes that are the input's.
"""

from __future__ import annotations

import re
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.jit import annotations as type_names
from flambeau.jit._library.derived import function_of

_NAME = re.compile("(adaptive_)?(max|avg)_pool([123])d(_with_indices|__1|)")
_MAX_POOL = """def {name}(
    input: Tensor, kernel_size: {size}, stride: {size} | None = None, padding: {size} = 0, dilation: {size} = 1,
    ceil_mode: bool = False, return_indices: bool = {with_indices}
) -> {result}:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return aten.{name}(input, kernel_size, stride, padding, dilation, ceil_mode)
"""
_ADAPTIVE_AVG_POOL = """def {name}(input: Tensor, output_size: {size}) -> Tensor:
    return aten.{operator}(input, {sizes})
"""
_ADAPTIVE_MAX_POOL = """def {name}(
    input: Tensor, output_size: {size}, return_indices: bool = {with_indices}
) -> {result}:
    return aten.{operator}(input, {sizes}){item}
"""


def _output_size(size: list[int | None], current: list[int]) -> list[int]:
    result: list[int] = []
    for i in range(len(size)):
        wanted = size[i]
        if wanted is not None:
            result.append(wanted)
        else:
            result.append(current[len(current) - len(size) + i])
    return result


def _template(adaptive: bool, kind: str, dims: str, form: str) -> str | None:
    if not adaptive:
        return _MAX_POOL if kind == "max" and form != "__1" else None
    if kind == "max":
        return _ADAPTIVE_MAX_POOL if form != "__1" else None
    return _ADAPTIVE_AVG_POOL if not form or (form == "__1" and dims != "1") else None


def pooling_function(name: str) -> Any:
    """The function that scripts compile for one of `nn.functional`; None if it is not one of these."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    adaptive, kind, dims, form = match.groups()
    template = _template(bool(adaptive), kind, dims, form)
    if template is None:
        return None
    with_indices = form == "_with_indices"
    may_be_none = bool(adaptive and form and dims != "1")
    text = template.format(
        name=name,
        operator=name.removesuffix(form),
        size=f"BroadcastingList{dims}[int | None]" if may_be_none else f"BroadcastingList{dims}[int]",
        sizes="_output_size(output_size, input.size())" if may_be_none else "output_size",
        with_indices=with_indices,
        result="tuple[Tensor, Tensor]" if with_indices else "Tensor",
        item="" if with_indices else "[0]",
    )
    scope = {"torch": flambeau, "aten": flambeau.ops.aten, "Tensor": Tensor, "_output_size": _output_size}
    return function_of(name, text, vars(type_names) | scope)
