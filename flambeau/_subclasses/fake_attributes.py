"""What fake tensors answer where no operator is called: attributes, sizes, indexing, and questions about data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau._subclasses import fake_data
from flambeau.ops.geometry import contiguous_strides, dimension, equal_sizes, is_contiguous, numel
from flambeau.ops.symbolic.numbers import SymInt, hint_of
from flambeau.ops.symbolic.shape_env import DataDependentOutput, _described, user_line

Handler = Callable[..., Any]
ATTRIBUTES: dict[str, Handler] = {}
SETTERS: dict[str, Handler] = {}
METHODS: dict[str, Handler] = {}


class SymbolicSize(tuple[Any, ...]):
    """A shape with symbolic sizes; with plain ones it is a Size."""

    __slots__ = ()

    def numel(self) -> Any:
        return numel(self)

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return size_of(item) if isinstance(index, slice) else item

    def __add__(self, other: Any) -> Any:
        return size_of((*self, *other))

    def __radd__(self, other: Any) -> Any:
        return size_of((*other, *self))

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"


def size_of(sizes: Any) -> Any:
    sizes = tuple(sizes)
    return SymbolicSize(sizes) if any(type(s) is SymInt for s in sizes) else fl.Size(sizes)


def find(func: Any) -> Handler | None:
    """The handler of an attribute's getter or setter, or of a method that is no operator."""
    name = getattr(func, "__name__", None)
    owner = getattr(func, "__self__", None)
    if name == "__get__" and owner is not None:
        return ATTRIBUTES.get(_name(owner))
    if name in ("__set__", "__delete__") and owner is not None:
        return SETTERS.get(_name(owner))
    return METHODS.get(name) if name is not None else None


def python_getter(func: Any) -> Handler | None:
    """The function behind an attribute that is written in Python."""
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", None) == "__get__" and owner is not None:
        getter = getattr(owner, "fget", None)
        return getter if callable(getter) else None
    return None


def _name(descriptor: Any) -> str:
    return str(getattr(descriptor, "__name__", None) or getattr(descriptor, "name", ""))


def attribute(name: str) -> Callable[[Handler], Handler]:
    return lambda handler: ATTRIBUTES.setdefault(name, handler)


def method(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            METHODS[name] = handler
        return handler

    return register


# ---------------------------------------------------------------------------------------------- geometry

# Definitions of operators look at data only where there is any: to them, fakes are on the meta device.
_META = fl.device("meta")
attribute("shape")(lambda t: size_of(t.geometry.sizes))
attribute("device")(lambda t: _META if t.fake_mode.definition_devices else t.fake_device)
attribute("dtype")(lambda t: t.fake_dtype)
attribute("ndim")(lambda t: len(t._geometry.sizes))
attribute("requires_grad")(lambda t: _refreshed(t).fake_requires_grad)
attribute("is_leaf")(lambda t: _refreshed(t).fake_is_leaf)
attribute("is_meta")(lambda t: t.device.type == "meta")
attribute("is_cpu")(lambda t: t.device.type == "cpu")
attribute("is_cuda")(lambda t: t.device.type == "cuda")
attribute("nbytes")(lambda t: numel(t.geometry.sizes) * t.element_size())
attribute("grad")(lambda t: t.__dict__.get("fake_grad"))
attribute("_base")(lambda t: None)


def _refreshed(t: Any) -> Any:
    """A view with the history it has after writes to its base."""
    if t.fake_view is not None:
        from flambeau._subclasses import fake_autograd

        fake_autograd.refresh(t)
    return t


@attribute("grad_fn")
def grad_fn(t: Any) -> Any:
    from flambeau._subclasses import fake_autograd

    if not t.fake_mode.keeps_history and t.fake_requires_grad and not t.fake_is_leaf:
        return fake_autograd.FakeNode("NotKept", lambda gradients: [], [], 1)
    fake_autograd.refresh(t)
    return t.history[0] if t.history is not None else None


@attribute("data")
def data(t: Any) -> Any:
    return t.fake_mode.wrap(t.meta(), t.geometry, t.fake_device, False)


def _set_grad(t: Any, value: Any = None) -> None:
    t.__dict__["fake_grad"] = value


def _set_requires_grad(t: Any, value: Any) -> None:
    t.fake_requires_grad = bool(value)


def _set_data(t: Any, value: Any) -> None:
    t.geometry, t.fake_dtype = value.geometry, value.fake_dtype


SETTERS.update(grad=_set_grad, requires_grad=_set_requires_grad, data=_set_data)


@method("size")
def size(t: Any, dim: int | None = None) -> Any:
    return size_of(t.geometry.sizes) if dim is None else t.geometry.sizes[dimension(dim, len(t.geometry.sizes))]


@method("stride")
def stride(t: Any, dim: int | None = None) -> Any:
    return t.geometry.strides if dim is None else t.geometry.strides[dimension(dim, len(t.geometry.strides))]


method("dim", "ndimension")(lambda t: len(t._geometry.sizes))
method("is_floating_point")(lambda t: t.fake_dtype.is_floating_point)
method("is_complex")(lambda t: t.fake_dtype.is_complex)
method("storage_offset")(lambda t: t.geometry.offset)
method("numel", "nelement", "__numel__")(lambda t: numel(t.geometry.sizes))
method("__hash__")(lambda t: id(t))


@method("requires_grad_")
def requires_grad_(t: Any, requires_grad: bool = True) -> Any:
    t.fake_requires_grad = bool(requires_grad)
    return t


method("retain_grad")(lambda t: None)


@method("backward")
def backward(
    t: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
) -> None:
    fl.autograd.backward(t, gradient, retain_graph, create_graph, inputs=inputs)


@method("register_hook")
def register_hook(t: Any, hook: Callable[[Any], Any]) -> Any:
    from flambeau._subclasses import fake_autograd
    from flambeau.autograd._methods import RemovableHandle

    return RemovableHandle(fake_autograd.add_hook(t, hook))


@method("detach_")
def detach_(t: Any) -> Any:
    t.history, t.fake_requires_grad, t.fake_is_leaf = None, False, True
    return t


@method("is_contiguous")
def contiguous(t: Any, memory_format: Any = fl.contiguous_format) -> bool:
    if memory_format is not fl.contiguous_format and memory_format is not None:
        rank = {fl.channels_last: 4, fl.channels_last_3d: 5}.get(memory_format)
        if rank is None or len(t.geometry.sizes) != rank:
            return False
        last = [0, *range(2, rank), 1]
        reordered = [t.geometry.sizes[d] for d in last]
        strides = [t.geometry.strides[d] for d in last]
        return all(bool(a == b) for a, b in zip(strides, contiguous_strides(reordered)))
    if is_contiguous(t.geometry):
        return True
    # Strides of dimensions with one element do not count.
    wanted: Any = 1
    for length, step in zip(reversed(t.geometry.sizes), reversed(t.geometry.strides)):
        if (hint_of(length) != 1 or bool(length != 1)) and not bool(step == wanted):
            return False
        wanted = wanted * length
    return True


@method("__len__")
def length(t: Any) -> Any:
    if not t.geometry.sizes:
        raise TypeError("len() of a 0-d tensor")
    return int(t.geometry.sizes[0])


@method("__iter__")
def iterate(t: Any) -> Any:
    return iter(t.unbind(0))


# ---------------------------------------------------------------------------------------------- data


def _no_data(what: str) -> DataDependentOutput:
    return DataDependentOutput(
        f"[fake] expected a question about shape, dtype or device, got {what}, which needs data{_described(*user_line())}; "
        "keep the value in a tensor, or run this part outside of the traced one"
    )


@method("item")
def item(t: Any) -> Any:
    if t.constant is not None:
        return t.constant.item()
    number = fake_data.read_number(t)
    if number is None:
        raise _no_data("the value of a fake tensor")
    return number


@method("tolist")
def tolist(t: Any) -> Any:
    if t.constant is not None:
        return t.constant.tolist()
    if not t.fake_mode.allows_scalars or t.fake_mode.shape_env is None:
        raise _no_data("tolist() of a fake tensor")
    return fake_data.listed(t)


def _question(asked: str) -> Handler:
    def answer(t: Any, *args: Any, **kwargs: Any) -> Any:
        if t.constant is not None:
            return getattr(t.constant, asked)(*args, **kwargs)
        raise _no_data(f"{asked.strip('_')}() of a fake tensor")

    return answer


for _asked in "numpy __bool__ __int__ __float__ __index__ __complex__ __contains__ __array__".split():
    METHODS[_asked] = _question(_asked)


@method("data_ptr", "_storage_address")
def data_ptr(t: Any) -> int:
    raise _no_data("the address of a fake tensor's data")


# ---------------------------------------------------------------------------------------------- indexing


def _parts(t: Any, index: Any) -> tuple[Any, list[Any]]:
    """The view that an index's numbers, slices, None and ... make, and the tensor indices left for its dimensions."""
    entries = list(index) if isinstance(index, tuple) else [index]
    used = sum(_consumed(e) for e in entries)
    if any(e is Ellipsis for e in entries):
        at = next(i for i, e in enumerate(entries) if e is Ellipsis)
        entries[at : at + 1] = [slice(None)] * (t.dim() - used)
    dim = 0
    tensors: list[Any] = []
    for entry in entries:
        if entry is None:
            t = t.unsqueeze(dim)
            tensors.append(None)
            dim += 1
        elif isinstance(entry, bool):
            raise _no_data("indexing with a bool")
        elif isinstance(entry, slice):
            if entry != slice(None):
                t = fl._ops.slice(t, dim, entry.start, entry.stop, 1 if entry.step is None else entry.step)
            tensors.append(None)
            dim += 1
        elif isinstance(entry, fl.Tensor):
            if entry.dtype in (fl.bool, fl.uint8):
                tensors.extend(_places(t, dim, entry))
                dim += entry.dim()
                continue
            tensors.append(entry)
            dim += 1
        elif isinstance(entry, (list, tuple)):
            tensors.append(fl.tensor(entry, device=t.device))
            dim += 1
        else:
            t = t.select(dim, entry)
    return t, tensors


def _places(t: Any, dim: int, mask: Any) -> list[Any]:
    """The indices where a mask over dimensions of a tensor is true."""
    mode = t.fake_mode
    if not mode.allows_unknown_sizes or not mask.dim():
        raise _no_data("indexing with a mask")
    for own, wanted in zip(mask.geometry.sizes, t.geometry.sizes[dim:]):
        equal_sizes(own, wanted, "a mask")
    return list(mask.nonzero().unbind(1))


def _consumed(entry: Any) -> int:
    if entry is None or entry is Ellipsis or isinstance(entry, bool):
        return 0
    if isinstance(entry, fl.Tensor) and entry.dtype in (fl.bool, fl.uint8):
        return int(entry.dim())
    return 1


@method("__getitem__")
def getitem(t: Any, index: Any) -> Any:
    from flambeau._subclasses.fake_tensor import FakeTensor, mode_for

    if not isinstance(t, FakeTensor):  # data indexed with fakes or symbolic numbers
        t = mode_for((t, index)).from_tensor(t, static_shapes=True)
    view, tensors = _parts(t, index)
    if any(e is not None for e in tensors):
        while tensors and tensors[-1] is None:
            tensors.pop()
        return fl._ops.index(view, tensors)
    return view if view is not t else fl._ops.alias(t)


@method("__setitem__")
def setitem(t: Any, index: Any, value: Any) -> None:
    view, tensors = _parts(t, index)
    if any(e is not None for e in tensors):
        if not isinstance(value, fl.Tensor):
            value = fl.full((), value, dtype=t.dtype, device=t.device)
        view.index_put_(tensors, value)
    elif isinstance(value, fl.Tensor):
        view.copy_(value)
    else:
        view.fill_(value)
