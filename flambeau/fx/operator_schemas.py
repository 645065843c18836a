"""Arguments of calls under the names of their parameters."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau
from flambeau._ops import OpOverload, read_schema


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_EMPTY = inspect.Parameter.empty
_ANNOTATIONS = {"Tensor": flambeau.Tensor, "int": int, "float": float, "bool": bool, "str": str}


def _signature_of(text: str) -> inspect.Signature:
    schema = read_schema(text)
    parameters = []
    for argument in schema.arguments:
        name = "input" if argument.name == "self" else argument.name
        name = f"{name}_" if keyword.iskeyword(name) else name  # `from` of random_ is no name of a parameter in Python
        kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = argument.default_value if argument.has_default_value() else _EMPTY
        name += "_" * keyword.iskeyword(name)  # uniform_(from, to)
        annotation = _ANNOTATIONS.get(str(argument.type), _EMPTY)
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
    # A parameter with a default may come before one without in schemas, not in signatures.
    seen = False
    for i, p in enumerate(parameters):
        if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            if p.default is not _EMPTY:
                seen = True
            elif seen:
                parameters[i] = p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    parameters.sort(key=lambda p: p.kind)
    return inspect.Signature(parameters)


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of an operator's overloads, or None for other functions."""
    if isinstance(op, OpOverload):
        texts = [flambeau._C._operator_info(op)[0]]
    elif isinstance(op, (flambeau._C.Function, flambeau._C.Method)):
        texts = list(op._schemas)
    else:
        return (None, None) if return_schemas else None
    signatures = [_signature_of(text) for text in texts]
    return (signatures, [read_schema(text) for text in texts]) if return_schemas else signatures


_KINDS = inspect.Parameter
_ANY = inspect.Signature([_KINDS("args", _KINDS.VAR_POSITIONAL), _KINDS("kwargs", _KINDS.VAR_KEYWORD)])


def signature_of(function: Any) -> inspect.Signature:
    """What `inspect.signature` says of a native function; methods have none, as in PyTorch."""
    if isinstance(function, flambeau._C.Method):
        raise AttributeError("__signature__")
    signatures = get_signature_for_torch_op(function)
    return signatures[0] if len(signatures) == 1 else _ANY


def _bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], only_kwargs: bool) -> Any:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    if only_kwargs:
        positional_only = [p.name for p in signature.parameters.values() if p.kind is inspect.Parameter.POSITIONAL_ONLY]
        named = {name: value for name, value in bound.arguments.items() if name not in positional_only}
        return ArgsKwargsPair(tuple(bound.arguments[n] for n in positional_only), named)
    return ArgsKwargsPair(bound.args, dict(bound.kwargs))


def normalize_function(
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Arguments of a call as the function's signature has them, defaults filled in; None when it is not known. Where
    several overloads fit, the first is taken."""
    kwargs = {("input" if k == "self" else k): v for k, v in (kwargs or {}).items()}
    signatures = get_signature_for_torch_op(target)
    if signatures is None:
        try:
            signatures = [inspect.signature(inspect.unwrap(target))]
        except (TypeError, ValueError):
            return None
    for signature in signatures:
        bound = _bound(signature, args, kwargs, normalize_to_only_use_kwargs)
        if bound is not None:
            return bound  # type: ignore[no-any-return]
    return None


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Arguments of a submodule's call under the names of forward's parameters."""
    if root is None:
        return None
    module = root.get_submodule(target)
    bound = _bound(inspect.signature(module.forward), args, kwargs or {}, normalize_to_only_use_kwargs)
    return bound  # type: ignore[no-any-return]


def create_type_hint(x: Any) -> Any:
    """The type of a value, as an annotation."""
    if isinstance(x, (list, tuple)):
        kinds = {create_type_hint(v) for v in x}
        inner = kinds.pop() if len(kinds) == 1 else Any
        return list[inner] if isinstance(x, list) else tuple[inner, ...]  # type: ignore[valid-type]
    return type(x)
