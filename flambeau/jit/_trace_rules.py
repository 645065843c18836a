"""Calls that a trace treats in a way of its own: sizes, attributes, indexing, and tensors that become Python values."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from flambeau import _C, jit
from flambeau.jit import _types as T
from flambeau.jit._ir import Value
from flambeau.jit._traced_values import TracedInt, TracedSize

Rule = Callable[[Any, Any, Any, Any], Any]


def _sizes(tracer: Any, tensor: Any) -> TracedSize:
    value = tracer.value(tensor)
    sizes = []
    for dim, size in enumerate(tuple(tensor.shape)):
        place = tracer.graph.insertConstant(dim)
        sizes.append(TracedInt.of(int(size), tracer.recorder.operator("aten::size", [value, place], None), tracer))
    return TracedSize(sizes)


def _size(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    sizes = _sizes(tracer, args[0])
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return sizes if dim is None else sizes[int(dim)]


def _untraced(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    from flambeau.jit._trace import _plain

    return func(*_plain(args), **_plain(kwargs))


def _called_by_package(depth: int) -> bool:
    """Whether a call comes from our own layers and functions, which mean the constants they make."""
    return str(sys._getframe(depth).f_globals.get("__name__", "")).startswith("flambeau.")


def _constant(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A tensor made of Python values: a constant, unless tensors are among them."""
    from flambeau.jit._trace import _plain

    result = func(*_plain(args), **_plain(kwargs))
    name = getattr(func, "__name__", "tensor")
    if not (args and isinstance(args[0], (TracedInt, _C.Tensor))) and not _called_by_package(3):
        warnings.warn(
            f"torch.{name} results are registered as constants in the trace. You can safely ignore this warning if you use this function to create tensors out of constant "
            "variables that would be the same every time you call this function. In any other case, this might cause the trace to be incorrect.",
            jit.TracerWarning,
            stacklevel=3,
        )
    if args and isinstance(args[0], TracedInt):
        tracer.bind(result, tracer.recorder.operator("prim::NumToTensor", [args[0].value], None))
    elif args and isinstance(args[0], _C.Tensor) and name == "as_tensor":
        tracer.bind(result, tracer.value(args[0]))
    elif id(result) not in tracer.known:
        tracer.bind(result, tracer.graph.insertConstant(result.detach(), T.TENSOR))
    return result


_CONVERSIONS = {
    "__bool__": "a tensor to a Python boolean", "__int__": "a tensor to a Python integer", "__float__": "a tensor to a Python float", "__index__": "a tensor to a Python index",
    "item": "a tensor to a Python number", "tolist": "a tensor to a Python list", "numpy": "a tensor to a NumPy array", "is_nonzero": "a tensor to a Python boolean",
    "__len__": "", "__complex__": "a tensor to a Python complex", "__array__": "a tensor to a NumPy array",
}  # fmt: skip


def _converts(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    what = _CONVERSIONS[func.__name__]
    if func.__name__ == "__len__":
        warnings.warn(
            "Using len to get tensor shape might cause the trace to be incorrect. Recommended usage would be tensor.shape[0]. Passing a tensor of different shape might lead to errors or silently give incorrect results.",
            jit.TracerWarning,
            stacklevel=3,
        )
    else:
        warnings.warn(
            f"Converting {what} might cause the trace to be incorrect. We can't record the data flow of Python values, so this value will be treated as a constant in the "
            "future. This means that the trace might not generalize to other inputs!",
            jit.TracerWarning,
            stacklevel=3,
        )
    return func(*args, **kwargs)


def _unbind(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`unbind`, which is also what a loop over a tensor asks for."""
    if sys._getframe(2).f_code.co_name == "__iter__":
        warnings.warn(
            "Iterating over a tensor might cause the trace to be incorrect. Passing a tensor of different shape won't change the number of iterations executed (and might lead to "
            "errors or silently give incorrect results).",
            jit.TracerWarning,
            stacklevel=4,
        )
    return tracer.call_recorded(func, args, kwargs)


_ATTRIBUTES = {
    "T": "aten::numpy_T",
    "mT": "aten::mT",
    "H": "aten::matrix_H",
    "mH": "aten::mH",
    "real": "aten::real",
    "imag": "aten::imag",
    "data": "aten::detach",
}


def _attribute(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    name = getattr(func.__self__, "__name__", "")
    if name == "shape":
        return _sizes(tracer, args[0])
    result = func(*args, **kwargs)
    if name in _ATTRIBUTES:
        tracer.bind(result, tracer.recorder.operator(_ATTRIBUTES[name], [tracer.value(args[0])], None))
    return result


# ---------------------------------------------------------------------------------------------- indexing


def _indices(tracer: Any, tensor: Value, index: Any) -> tuple[Value, list[Value | None]]:
    """Selects and slices, and the index tensors that remain."""
    e = tracer.recorder
    parts = list(index) if isinstance(index, tuple) else [index]
    if isinstance(index, list):
        parts = [index]
    dim = 0
    advanced: list[Value | None] = []
    for position, part in enumerate(parts):
        if part is Ellipsis:
            dim = tracer.dims - len([p for p in parts[position + 1 :] if p is not None])
            dim -= sum(1 for p in parts[:position] if isinstance(p, int) and not isinstance(p, bool))
            dim += sum(1 for p in parts[:position] if p is None)
            continue
        place = tracer.graph.insertConstant(dim)
        if isinstance(part, slice):
            bounds = [tracer.value(b) for b in (part.start, part.stop)]
            tensor = e.operator(
                "aten::slice", [tensor, place, *bounds, tracer.value(1 if part.step is None else part.step)], None
            )
        elif part is None:
            tensor = e.operator("aten::unsqueeze", [tensor, place], None)
        elif isinstance(part, int) and not isinstance(part, bool):
            tensor = e.operator("aten::select", [tensor, place, tracer.value(part)], None)
            continue
        else:
            while len(advanced) < dim:
                advanced.append(None)
            value = tracer.value(part)
            if not isinstance(value.type(), T.TensorType):
                value = e.call_operator("aten::tensor", [e.as_value(value, None)], {}, None)
            advanced.append(value)
        dim += 1
    return tensor, advanced


def _getitem(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    from flambeau.jit._trace import _plain

    tensor, index = args
    result = func(tensor, _plain(index))
    tracer.dims = tensor.dim()
    value, advanced = _indices(tracer, tracer.value(tensor), index)
    if any(a is not None for a in advanced):
        value = tracer.recorder.operator("aten::index", [value, tracer.recorder._index_list(advanced)], None)
    elif value is tracer.value(tensor):
        value = tracer.recorder.operator("aten::alias", [value], None)
    tracer.bind(result, value)
    return result


def _setitem(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    from flambeau.jit._trace import _plain

    tensor, index, content = args
    tracer.dims = tensor.dim()
    e = tracer.recorder
    value, advanced = _indices(tracer, tracer.value(tensor), index)
    new = tracer.value(content)
    if not isinstance(content, _C.Tensor):
        dtype, device = e.operator("prim::dtype", [value], None), e.operator("prim::device", [value], None)
        new = e.call_operator("aten::tensor", [e.as_value(new, None)], {"dtype": dtype, "device": device}, None)
    if any(a is not None for a in advanced):
        e.operator("aten::index_put_", [value, e._index_list(advanced), new], None)
    else:
        e.operator("aten::copy_", [value, new], None)
    func(tensor, _plain(index), content)
    return None


def _split(tracer: Any, func: Any, args: Any, kwargs: Any) -> Any:
    return NotImplemented


_RULES: dict[str, Rule] = {
    "size": _size, "dim": _untraced, "numel": _untraced, "stride": _untraced, "is_contiguous": _untraced, "is_floating_point": _untraced, "is_complex": _untraced,
    "tensor": _constant, "as_tensor": _constant, "from_numpy": _constant, "__getitem__": _getitem, "__setitem__": _setitem, "unbind": _unbind, "__get__": _attribute,
    "element_size": _untraced, "get_device": _untraced, "data_ptr": _untraced, "storage_offset": _untraced, "is_grad_enabled": _untraced, "__set__": _untraced, "__hash__": _untraced,
    "__repr__": _untraced, "is_tensor": _untraced, "requires_grad_": _untraced, "register_hook": _untraced, "__format__": _untraced, "backward": _untraced, "is_same_size": _untraced,
    "equal": _untraced, "allclose": _untraced, "__reduce_ex__": _untraced, "__deepcopy__": _untraced, "manual_seed": _untraced, "result_type": _untraced, "broadcast_shapes": _untraced,
}  # fmt: skip
_RULES.update(dict.fromkeys(_CONVERSIONS, _converts))


def rule_for(func: Any) -> Rule | None:
    return _RULES.get(getattr(func, "__name__", ""))
