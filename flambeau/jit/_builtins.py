"""What operators do at run time.

Operators on tensors are those of the dispatcher, called with the arguments of the signature; `ADAPTED` has those whose arguments differ there. Operators
on numbers, strings, lists and dicts are Python's, in `PLAIN`.
"""

from __future__ import annotations

import cmath
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import _C, _ops
from flambeau.jit import _arithmetic as A
from flambeau.jit import _types as T
from flambeau.jit import _values as V
from flambeau.jit._aten_forms import FORMS
from flambeau.jit._ir import Node
from flambeau.jit._schemas import Signature


def _check_index(items: Any, index: int) -> int:
    if not -len(items) <= index < len(items):
        raise IndexError("list index out of range" if isinstance(items, list) else "string index out of range")
    return index


def _getitem(items: Any, index: Any) -> Any:
    if isinstance(items, dict):
        if index not in items:
            raise RuntimeError(f"KeyError: {A.to_text(index)}")
        return items[index]
    return items[_check_index(items, index)]


def _set_item(items: Any, index: Any, value: Any) -> Any:
    if isinstance(items, dict):
        items[index] = value
    else:
        items[_check_index(items, index)] = value
    return items


def _delete(items: Any, index: Any) -> None:
    if isinstance(items, dict) and index not in items:
        raise RuntimeError(f"KeyError: {A.to_text(index)}")
    del items[index]


def _slice(items: Any, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if step == 0:
        raise RuntimeError("slice step cannot be zero")
    return items[start:end:step]


def _append(items: list[Any], item: Any) -> list[Any]:
    items.append(item)
    return items


def _extend(items: list[Any], more: list[Any]) -> None:
    items.extend(more)


def _pop(items: Any, *args: Any) -> Any:
    if isinstance(items, list):
        if not items:
            raise IndexError("pop from empty list")
        _check_index(items, args[0])
    elif len(args) == 1 and args[0] not in items:
        raise RuntimeError(f"KeyError: {A.to_text(args[0])}")
    return items.pop(*args)


def _remove(items: list[Any], item: Any) -> None:
    items.pop(_find(items, item, "list.remove(x): x not in list"))


def _same(a: Any, b: Any) -> bool:
    return bool((a == b).all()) if isinstance(a, _C.Tensor) and a is not b else a is b or a == b


def _find(items: list[Any], item: Any, message: str = "'x' is not in list") -> int:
    for index, one in enumerate(items):
        if _same(one, item):
            return index
    raise RuntimeError(message)


def _contains(items: Any, item: Any) -> bool:
    if isinstance(items, list) and any(isinstance(x, _C.Tensor) for x in items):
        return any(_same(x, item) for x in items)
    return item in items


def _range_length(lo: int, hi: int, step: int) -> int:
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(lo, hi, step))


def _split_lines(text: str, keepends: bool = False) -> list[str]:
    return text.splitlines(keepends)


def _slice_of(text: str, start: int, end: int) -> str:
    return text[start : None if end == -1 else end]


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items)


def _sort(items: list[Any], reverse: bool = False) -> None:
    items.sort(reverse=reverse)


def _make_dict(content: Any = ()) -> dict[Any, Any]:
    return dict(content)


def _get(items: dict[Any, Any], key: Any, default: Any = None) -> Any:
    return items.get(key, default)


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, stacklevel=3)


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers that have no whole number beside them become integers as `int` makes them."""
    return lambda x: function(x) if math.isfinite(x) and abs(x) < 2**63 else A.to_integer(x)


def _complex(real: Any, imag: Any = 0) -> complex:
    return (
        complex(float(real) if isinstance(real, _C.Tensor) and not real.is_complex() else complex(real))
        + 1j * float(imag)
        if imag != 0
        else complex(real)
    )


PLAIN: dict[str, Callable[..., Any] | None] = {
    "add": A.wrapped(operator.add), "sub": A.wrapped(operator.sub), "mul": A.wrapped(operator.mul), "div": A.true_divide, "floordiv": A.floor_divide,
    "remainder": A.modulo, "fmod": A.real_function("fmod"), "mathremainder": A.real_function("remainder"), "pow": A.power, "neg": A.wrapped(operator.neg), "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "__not__": operator.not_,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": A.shift_left,
    "__rshift__": operator.rshift, "__is__": lambda a, b: a is b, "__isnot__": lambda a, b: a is not b,
    "__round_to_zero_floordiv": lambda a, b: int(a / b), "bitwise_not": lambda a: (not a) if isinstance(a, bool) else ~a, "add_": operator.iadd, "mul_": operator.imul,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "logical_not": operator.not_,
    "__range_length": _range_length, "__derive_index": lambda i, lo, step: lo + i * step, "len": len, "Bool": bool, "Int": A.to_integer,
    "Float": float, "Complex": _complex, "FloatImplicit": float, "IntImplicit": int, "ComplexImplicit": complex, "ScalarImplicit": lambda x: x.item(), "str": A.to_text,
    "format": A.format_text, "percentFormat": A.percent_text, "__getitem__": _getitem, "_set_item": _set_item, "Delete": _delete,
    "slice": _slice, "append": _append, "extend": _extend, "insert": lambda l, i, x: l.insert(i, x), "pop": _pop,
    "remove": _remove, "clear": lambda c: c.clear(), "reverse": lambda l: l.reverse(), "copy": lambda c: c.copy(),
    "count": lambda l, x, *a: l.count(x, *a) if isinstance(l, str) else sum(1 for y in l if _same(x, y)), "index": lambda l, x, *a: l.index(x, *a[:1], *(a[1:2] if len(a) > 1 and a[1] != -1 else ())) if isinstance(l, str) else _find(l, x), "__contains__": _contains, "sort": _sort,
    "sorted": _sorted, "list": list, "dict": _make_dict, "keys": lambda d: list(d), "values": lambda d: list(d.values()),
    "items": lambda d: list(d.items()), "get": _get, "setdefault": lambda d, k, v: d.setdefault(k, v),
    "update": lambda d, e: d.update(e), "popitem": A.pop_first, "sum": A.total, "any": any, "all": all, "hash": hash,
    "abs": abs, "ceil": _whole(math.ceil), "floor": _whole(math.floor), "round": A.rounded, "trunc": A.to_integer, "factorial": A.factorial, "gcd": math.gcd, "copysign": math.copysign, "ldexp": math.ldexp, "fabs": math.fabs,
    "modf": math.modf, "frexp": math.frexp, "degrees": math.degrees, "radians": math.radians, "isnan": lambda x: x != x, "isinf": lambda x: cmath.isinf(x), "isfinite": lambda x: cmath.isfinite(x), "polar": cmath.rect,
    "angle": lambda x: cmath.phase(x), "real": lambda x: x.real, "imag": lambda x: x.imag, "lgamma": A.log_gamma, "gamma": A.gamma, "erf": math.erf, "erfc": math.erfc, "expm1": A.real_function("expm1"), "log1p": A.real_function("log1p"), "log": A.logarithm, "hypot": math.hypot,
    "atan2": math.atan2, "ord": ord, "chr": chr, "hex": hex, "oct": oct, "bin": bin, "divmod": A.quotient_and_rest, "warn": _warn,
    "device": flambeau.device, "sqrt": A.real_or_complex("sqrt"), "exp": A.real_or_complex("exp"), "log10": A.real_or_complex("log10"), "log2": A.real_function("log2"),
    "manual_seed": lambda *args: (flambeau if len(args) == 1 else args[0]).manual_seed(args[-1]), "seed": lambda generator=flambeau: generator.seed(), "initial_seed": lambda generator=flambeau: generator.initial_seed(), "Size": list, "_unwrap_optional": None, "is_scripting": lambda: True, "set_grad_enabled": lambda mode: _C._set_grad_enabled(mode),
    "is_grad_enabled": flambeau.is_grad_enabled, "join": lambda s, l: s.join(l), "split": lambda s, sep=None, n=-1: s.split(sep, n),
    "splitlines": _split_lines, "rsplit": lambda s, sep=" ", n=-1: s.rsplit(sep, n), "replace": lambda s, a, b, n=-1: s.replace(a, b, n), "startswith": lambda s, t, a=0, b=-1: _slice_of(s, a, b).startswith(t),
    "endswith": lambda s, t, a=0, b=-1: _slice_of(s, a, b).endswith(t), "find": lambda s, t, a=0, b=-1: s.find(t, a, None if b == -1 else b), "rfind": lambda s, t, a=0, b=-1: s.rfind(t, a, None if b == -1 else b),
    "rindex": lambda s, t, a=0, b=-1: s.rindex(t, a, None if b == -1 else b), "partition": lambda s, t: s.partition(t), "rpartition": lambda s, t: s.rpartition(t),
    "tensor": None, "is_autocast_enabled": flambeau.is_autocast_enabled, "is_autocast_cpu_enabled": flambeau.is_autocast_cpu_enabled, "get_autocast_dtype": lambda d: V.scalar_code(flambeau.get_autocast_dtype(d)), "wait": None, "grad": None,
}  # fmt: skip
for _name in "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split():
    PLAIN[_name] = A.real_or_complex(_name)
for _name in (
    "capitalize center expandtabs isalnum isalpha isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper "
    "ljust lower lstrip rjust rstrip strip swapcase title upper zfill casefold"
).split():
    PLAIN[_name] = (lambda name: lambda text, *args: getattr(text, name)(*args))(_name)


# ---------------------------------------------------------------------------------------------- tensors


def _tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    if isinstance(data, list):
        data = _stacked(data)
    return flambeau.tensor(data, dtype=V.dtype_of(dtype), device=device, requires_grad=requires_grad)


def _stacked(data: Any) -> Any:
    """Nested lists whose elements are one-element tensors become numbers."""
    if isinstance(data, list):
        return [_stacked(item) for item in data]
    return data.item() if isinstance(data, _C.Tensor) else data


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    return flambeau.as_tensor(data, dtype=V.dtype_of(dtype), device=device)


def _size(tensor: Any, dim: Any = None) -> Any:
    return list(tensor.size()) if dim is None else tensor.size(dim)


def _stride(tensor: Any, dim: Any = None) -> Any:
    return list(tensor.stride()) if dim is None else tensor.stride(dim)


def _to(tensor: Any, *args: Any) -> Any:
    """`to` in its four forms: a dtype, a device, both, or another tensor."""
    first = args[0]
    if isinstance(first, _C.Tensor):
        return tensor.to(first, *args[1:3])
    if isinstance(first, flambeau.device):
        if len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
            return tensor.to(first, V.dtype_of(args[1]), *args[2:4])
        return tensor.to(first, None, *[a for a in args[1:] if isinstance(a, bool)])
    rest = [a for a in args[1:] if isinstance(a, bool)]
    if isinstance(first, int) and not isinstance(first, bool):
        return tensor.to(V.dtype_of(first), *rest)
    ints = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    return tensor.to(V.dtype_of(ints[0]), *rest) if ints else tensor


def _to_layout(
    tensor: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Any:
    options: dict[str, Any] = {"non_blocking": bool(non_blocking), "copy": bool(copy)}
    if memory_format is not None:
        options["memory_format"] = V.memory_format_of(memory_format)
    return tensor.to(device=device, dtype=V.dtype_of(dtype), **options)


def _tolist(tensor: Any, dims: int, kind: int) -> Any:
    return tensor.tolist()


def _wait(future: Any) -> Any:
    return future.wait() if hasattr(future, "wait") else future


def _awaited(value: Any) -> Any:
    from flambeau.jit import _await

    return _await.wait(value)


def _unwrap(value: Any) -> Any:
    if value is None:
        raise RuntimeError("AssertionError: Unwrapping null optional")
    return value


def _backward(tensor: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False) -> None:
    tensor.backward(gradient, retain_graph, create_graph)


_PAIRED: dict[Any, Any] = {max: A.larger, min: A.smaller}


def _list_max(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b=None: op(a) if b is None else _PAIRED[op](a, b)


ADAPTED: dict[str, Callable[..., Any]] = {
    "aten::tensor": _tensor, "aten::as_tensor": _as_tensor, "aten::size": _size, "aten::stride": _stride, "aten::Bool": bool,
    "aten::sym_size": _size, "aten::Int": int, "aten::Float": float, "aten::Complex": _complex, "aten::FloatImplicit": float,
    "aten::IntImplicit": int, "aten::ComplexImplicit": complex, "aten::ScalarImplicit": lambda x: x.item(), "aten::item": lambda x: x.item(), "aten::to._": _to,
    "aten::len": len, "aten::dim": lambda x: x.dim(), "aten::numel": lambda x: x.numel(), "prim::dtype": lambda x: V.scalar_code(x.dtype), "prim::device": lambda x: x.device,
    "prim::layout": lambda x: V.layout_code(x.layout), "prim::requires_grad": lambda x: x.requires_grad, "prim::grad": lambda x: x.grad, "prim::data": lambda x: x.detach(), "aten::data": lambda x: x.detach(),
    "prim::type": lambda d: d.type, "prim::index": lambda d: d.index, "prim::itemsize": lambda x: x.itemsize, "prim::nbytes": lambda x: x.nbytes, "prim::name": lambda x: x.name,
    "aten::is_leaf": lambda x: x.is_leaf, "aten::output_nr": lambda x: x.output_nr, "aten::retains_grad": lambda x: x.retains_grad,
    "prim::NumToTensor": lambda x: flambeau.tensor(x), "prim::max": _list_max(max), "prim::min": _list_max(min), "prim::abs": abs, "prim::rangelist": lambda n: list(range(n)), "prim::id": id, "prim::StringIndex": _getitem, "prim::IfThenElse": lambda c, a, b: a if c else b,
    "aten::wait": _wait, "prim::awaitable_wait": _awaited, "prim::awaitable_nowait": lambda value: value, "aten::_unwrap_optional": _unwrap, "prim::unchecked_unwrap_optional": _unwrap, "aten::backward": _backward, "aten::requires_grad_": lambda x, flag=True: x.requires_grad_(flag), "aten::is_floating_point": lambda x: x.is_floating_point(),
    "aten::is_contiguous": lambda x, *f: x.is_contiguous(), "aten::storage_offset": lambda x: x.storage_offset(), "aten::element_size": lambda x: x.element_size(), "aten::cuda": lambda x: x.cuda(), "aten::cpu": lambda x: x.cpu(), "aten::is_signed": lambda x: x.is_signed(),
    "aten::_size_if_not_equal": lambda a, b: None if a == b else a, "aten::broadcast_shapes": lambda *s: list(flambeau.broadcast_shapes(*s)), "aten::_infer_size": lambda a, b: list(flambeau.broadcast_shapes(a, b)), "aten::is_non_overlapping_and_dense": lambda x: x.is_contiguous(), "aten::result_type": lambda a, b: V.scalar_code(flambeau.result_type(a, b)), "aten::promote_types": lambda a, b: V.scalar_code(flambeau.promote_types(V.dtype_of(a), V.dtype_of(b))), "aten::can_cast": lambda a, b: flambeau.can_cast(V.dtype_of(a), V.dtype_of(b)), "aten::is_conj": lambda x: x.is_conj(), "aten::is_neg": lambda x: x.is_neg(), "aten::is_set_to": lambda a, b: a.is_set_to(b), "aten::set_data": lambda a, b: setattr(a, "data", b),
    "aten::_no_grad_fill_": lambda x, v: x.detach().fill_(v), "aten::_no_grad_zero_": lambda x: x.detach().zero_(), "aten::_no_grad_uniform_": lambda x, a, b, g=None: x.detach().uniform_(a, b), "aten::_no_grad_normal_": lambda x, m, s, g=None: x.detach().normal_(m, s), "aten::to.dtype_layout": _to_layout,
    "prim::tolist": _tolist, "aten::detach_": lambda x: x.detach_(), "aten::copy_": lambda x, y, b=False: x.copy_(y), "aten::get_device": lambda x: x.get_device(), "aten::type_as": lambda x, o: x.type_as(o), "aten::pin_memory": lambda x, d=None: x.pin_memory(), "aten::is_pinned": lambda x, d=None: x.is_pinned(),
}  # fmt: skip
for _name in "is_cuda is_cpu is_xla is_xpu is_sparse is_sparse_csr is_mkldnn is_mps is_mtia is_quantized is_meta is_ipu is_nested is_vulkan is_maia".split():
    ADAPTED[f"prim::{_name}"] = (lambda name: lambda x: bool(getattr(x, name, False)))(_name)


# ---------------------------------------------------------------------------------------------- choice


def on_tensors(signature: Signature | None) -> bool:
    """Whether an overload works on tensors rather than on plain values."""
    if signature is None:
        return True
    kinds = [a.type for a in signature.arguments] + [r.type for r in signature.returns]
    return any(_mentions_tensor(kind) for kind in kinds)


def _mentions_tensor(kind: T.JitType) -> bool:
    if isinstance(kind, T.DictType):
        return False
    return isinstance(kind, T.TensorType) or any(_mentions_tensor(part) for part in kind.contained())


_CONTAINER_OPS = frozenset(
    "append extend insert pop remove clear reverse count index __contains__ __getitem__ _set_item Delete sort copy list".split()
)


def plain_implementation(node: Node) -> Callable[..., Any] | None:
    """The Python function for an operator on plain values, None for operators on tensors."""
    name = node._kind.partition("::")[2]
    signature = node.call if isinstance(node.call, Signature) else None
    if node._kind.startswith("prim::"):
        return None
    first = node._inputs[0].type() if node._inputs else None
    if (
        name in _CONTAINER_OPS
        and isinstance(first, (T.ListType, T.DictType))
        and name in PLAIN
        and not _is_tensor_index(node)
    ):
        return PLAIN[name]
    if name in ("slice", "add", "mul", "eq", "ne", "add_", "sorted", "len", "reverse", "mul_") and isinstance(
        first, (T.ListType, T.DictType)
    ):
        return _list_eq(name) if name in ("eq", "ne") else PLAIN[name]
    if name in (
        "__is__",
        "__isnot__",
        "format",
        "percentFormat",
        "str",
        "keys",
        "values",
        "items",
        "get",
        "setdefault",
        "update",
        "popitem",
        "dict",
        "hash",
    ):
        return PLAIN[name]
    if on_tensors(signature):
        return None
    implementation = PLAIN.get(name)
    if implementation is None:
        return None
    result = signature.returns[0].type if signature is not None and len(signature.returns) == 1 else None
    if result == T.FLOAT:
        return _as_float(implementation)
    if result == T.INT and name == "pow":
        return A.integer_power
    return _as_int(implementation) if result == T.INT and name == "round" else implementation


def _list_eq(name: str) -> Callable[..., Any]:
    def same(a: list[Any], b: list[Any]) -> bool:
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b))

    return same if name == "eq" else lambda a, b: not same(a, b)


def _is_tensor_index(node: Node) -> bool:
    return node._kind == "aten::index" and isinstance(node._inputs[0].type(), T.TensorType)


def _as_float(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: float(function(*args))


def _as_int(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: int(function(*args))


def adapted_implementation(node: Node) -> Callable[..., Any] | None:
    """The function for an operator whose arguments differ here."""
    if node._kind == "aten::to":
        layout = isinstance(node.call, Signature) and node.call.overload_name == "dtype_layout"
        return _to_layout if layout else _to
    return ADAPTED.get(node._kind)


def form(node: Node) -> Callable[..., Any] | None:
    """The function of this library that stands for an operator of ATen."""
    return FORMS.get(node._kind[6:]) if node._kind.startswith("aten::") else None


def tensor_callable(kind: str) -> Callable[..., Any]:
    """The function of the dispatcher for an operator on tensors."""
    space, _, name = kind.partition("::")
    packet = getattr(_ops.namespace(space), name, None)
    if packet is not None and not hasattr(packet, "__absent__"):
        return packet._function if isinstance(packet, _ops.OpOverloadPacket) else packet
    for owner in (flambeau, flambeau.nn.functional, flambeau.Tensor):
        if hasattr(owner, name):
            return getattr(owner, name)
    if hasattr(flambeau.Tensor, name):
        return getattr(flambeau.Tensor, name)

    def absent(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"[jit] expected an operator that flambeau has, got {kind}")

    return absent


__all__ = ["adapted_implementation", "plain_implementation", "tensor_callable"]
