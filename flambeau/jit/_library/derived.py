"""Functions of `nn.functional` whose definition in scripts follows from two signatures: their own, and that of ATen's operator.

`elu(input, alpha=1.0, inplace=False)` and `aten::elu(Tensor self, Scalar alpha=1, ...)` give

    def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
        if inplace:
            result = aten.elu_(input, alpha)
        else:
            result = aten.elu(input, alpha)
        return result

Where the arguments are the same, scripts call the operator itself.
"""

from __future__ import annotations

import functools
import inspect
import linecache
from typing import Any, List, Optional  # noqa: UP035

import flambeau
from flambeau import Tensor
from flambeau.jit._schemas import NO_DEFAULT, Argument, Signature, aten_signatures
from flambeau.nn import functional

_OLDER = ("size_average", "reduce")  # names of `reduction` in older programs


def reduction_code(reduction: str) -> int:
    if reduction == "none":
        ret = 0
    elif reduction == "mean":
        ret = 1
    elif reduction == "sum":
        ret = 2
    else:
        ret = -1
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return ret


def older_reduction_code(size_average: Optional[bool], reduce: Optional[bool], reduction: str) -> int:  # noqa: UP045
    if size_average is None and reduce is None:
        ret = reduction_code(reduction)
    elif reduce is not None and not reduce:
        ret = 0
    elif size_average is not None and not size_average:
        ret = 2
    else:
        ret = 1
    return ret


def _operator_of(name: str) -> Signature | None:
    """ATen's operator behind a function; some have a longer name there."""
    for operator in (f"{name}_nd", f"{name}_loss", name):
        overloads = aten_signatures(f"aten::{operator}")
        if overloads:
            return overloads[0]
    return None


def _source_of(argument: Argument, first: str, older: bool) -> tuple[str | None, str]:
    """The parameter that an argument of the operator comes from, and the expression that is passed."""
    if argument.name == "reduction":
        return (
            "reduction",
            f"older_reduction_code({', '.join(_OLDER)}, reduction)" if older else "reduction_code(reduction)",
        )
    if argument.name in ("cudnn_enable", "cudnn_enabled"):
        return None, "True"
    name = {"self": first, "train": "training"}.get(argument.name, argument.name)
    return name, name


@functools.cache
def derived_function(name: str) -> Any:
    """The function that scripts compile for one of `nn.functional`; None if no operator has its arguments or all of them."""
    function = vars(functional).get(name)
    operator = _operator_of(name)
    if operator is None or not isinstance(function, flambeau._C.Function):
        return None
    parameters = inspect.signature(function).parameters
    first, older = next(iter(parameters), ""), _OLDER[0] in parameters
    sources = [(argument, *_source_of(argument, first, older)) for argument in operator.arguments]
    passed = [row for row in sources if row[1] is None or row[1] in parameters]
    if any(argument.default is NO_DEFAULT for argument, source, _ in sources if source not in (None, *parameters)):
        return None
    kinds = {source: argument.type.annotation_str for argument, source, _ in passed if source}
    kinds |= {"reduction": "str", "inplace": "bool"} | dict.fromkeys(_OLDER, "Optional[bool]")
    heads = [_head(parameter, kinds[n]) for n, parameter in parameters.items() if n in kinds]
    expressions = [expression for *_, expression in passed]
    if [n for n in parameters if n in kinds] == expressions:
        return None
    return _compiled(name, heads, operator.name.removeprefix("aten::"), ", ".join(expressions), "inplace" in parameters)


def _head(parameter: inspect.Parameter, kind: str) -> str:
    own = parameter.annotation
    kind = own.__name__ if own in (int, float, bool, str) else {"number": "float"}.get(kind, kind)
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {kind}{default}"


def _compiled(name: str, heads: list[str], operator: str, arguments: str, inplace: bool) -> Any:
    call = f"aten.{operator}({arguments})"
    lines = [f"result = {call}"]
    if inplace:
        lines = ["if inplace:", f"    result = aten.{operator}_({arguments})", "else:", f"    {lines[0]}"]
    text = f"def {name}({', '.join(heads)}) -> Tensor:\n" + "".join(
        f"    {line}\n" for line in [*lines, "return result"]
    )
    scope: dict[str, Any] = {"aten": flambeau.ops.aten, "List": List, "Optional": Optional, "Tensor": Tensor}  # noqa: UP006
    scope |= {"reduction_code": reduction_code, "older_reduction_code": older_reduction_code}
    return function_of(name, text, scope)


def function_of(name: str, text: str, scope: dict[str, Any]) -> Any:
    """The function that a text defines, with source that can be read again."""
    file = f"<flambeau.jit {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope)
    return scope[name]
