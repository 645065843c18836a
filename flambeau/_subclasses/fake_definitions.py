"""Operators whose decomposition is native code, written in ops: what fakes run where the parts of a call matter, because
it is recorded or differentiated. Otherwise shape rules and meta kernels answer for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._tensor.device import canonical
from flambeau.ops.shapes.geometry import dimension, inferred, numel, view_strides
from flambeau.ops.symbolic.shape_env import DataDependentOutput

DEFINITIONS: dict[str, Callable[..., Any]] = {}


def defines(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        DEFINITIONS.update(dict.fromkeys(names, function))
        return function

    return register


def find(name: str) -> Callable[..., Any] | None:
    if name.startswith("_foreach_") and name not in DEFINITIONS:
        record = _list_records().get(name)
        if record is not None and record.kind == "each":
            defines(name)(_for_each(record))
    return DEFINITIONS.get(name)


def _list_records() -> dict[str, Any]:
    from flambeau.ops.lists import foreach  # noqa: F401
    from flambeau.ops.record import RECORDS

    return RECORDS


def _for_each(record: Any) -> Callable[..., Any]:
    """The operator on one tensor, called at each position of the lists."""
    target = _C._operator_object(record.details["target"])
    formals = record.schema.args
    places = [a.name for a in target._schema.arguments]
    names = [a.name if a.name in places else places[i] for i, a in enumerate(formals)]

    def definition(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *(kwargs[a.name] for a in formals[len(args) :])]
        lists = [isinstance(value, (list, tuple)) for value in given]
        if any(a.name == "scalars" and isinstance(v, fl.Tensor) for a, v in zip(formals, given)):
            raise DataDependentOutput(f"[{record.name}] expected numbers that are known, got a tensor of them")
        results = []
        for at in range(max(len(v) for v, is_list in zip(given, lists) if is_list)):
            picked = {n: v[at] if is_list else v for n, v, is_list in zip(names, given, lists)}
            results.append(target(**picked))
        return results if record.schema.returns != "()" else None

    return definition


# ---------------------------------------------------------------------------------------------- shapes


@defines("reshape")
def reshape(self: Any, shape: Sequence[Any]) -> Any:
    sizes = inferred(shape, numel(self.shape))
    return self.view(sizes) if view_strides(self.geometry, sizes) is not None else self.clone(memory_format=fl.contiguous_format).view(sizes)  # fmt: skip


@defines("flatten")
def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    rank = self.dim()
    if rank == 0:
        return self.reshape(1)
    start, end = dimension(start_dim, rank), dimension(end_dim, rank)
    sizes = tuple(self.shape)
    return self if start == end else self.reshape((*sizes[:start], numel(sizes[start : end + 1]), *sizes[end + 1 :]))


defines("ravel")(lambda self: self.reshape(-1))
defines("reshape_as")(lambda self, other: self.reshape(tuple(other.shape)))
defines("view_as")(lambda self, other: self.view(tuple(other.shape)))
defines("expand_as")(lambda self, other: self.expand(tuple(other.shape)))
defines("broadcast_to")(lambda self, size: self.expand(tuple(size)))


@defines("unflatten")
def unflatten(self: Any, dim: int, sizes: Sequence[Any]) -> Any:
    at = dimension(dim, self.dim())
    shape = tuple(self.shape)
    return self.view((*shape[:at], *inferred(sizes, shape[at]), *shape[at + 1 :]))


@defines("t")
def t(self: Any) -> Any:
    return self.transpose(0, 1) if self.dim() == 2 else fl._ops.alias(self)


@defines("_numpy_T")
def reversed_dims(self: Any) -> Any:
    return self.permute(tuple(reversed(range(self.dim()))))


defines("swapaxes", "swapdims")(lambda self, a, b: self.transpose(a, b))
defines("_mT")(lambda self: self.transpose(-2, -1))
defines("adjoint", "_mH")(lambda self: self.transpose(-2, -1).conj())
defines("_H")(lambda self: (self.transpose(0, 1) if self.dim() == 2 else self).conj())


@defines("movedim.int", "moveaxis.int", "movedim.intlist", "moveaxis.intlist")
def movedim(self: Any, source: Any, destination: Any) -> Any:
    rank = self.dim()
    sources, places = ([dimension(d, rank) for d in (x if isinstance(x, (list, tuple)) else [x])] for x in (source, destination))  # fmt: skip
    left = iter([d for d in range(rank) if d not in sources])
    placed = dict(zip(places, sources))
    return self.permute([placed[d] if d in placed else next(left) for d in range(rank)])


@defines("narrow")
def narrow(self: Any, dim: int, start: Any, length: Any) -> Any:
    return fl._ops.slice(self, dim, start, start + length, 1)


# ---------------------------------------------------------------------------------------------- pieces


@defines("chunk", "unsafe_chunk")
def chunk(self: Any, chunks: int, dim: int = 0) -> Any:
    size = self.size(dim)
    return self.split((size + chunks - 1) // chunks, dim)


defines("unsafe_split.Tensor")(lambda self, split_size, dim: self.split(split_size, dim))
defines("unsafe_split_with_sizes")(lambda self, split_sizes, dim: self.split(list(split_sizes), dim))


@defines("tensor_split.sections")
def equal_parts(self: Any, sections: int, dim: int = 0) -> list[Any]:
    size = int(self.size(dim))
    ends = [i * (size // sections) + min(i, size % sections) for i in range(sections + 1)]
    return [fl._ops.slice(self, dim, a, b, 1) for a, b in pairwise(ends)]


@defines("tensor_split.indices")
def parts_at(self: Any, indices: Sequence[Any], dim: int = 0) -> list[Any]:
    ends = [0, *indices, self.size(dim)]
    return [fl._ops.slice(self, dim, a, b, 1) for a, b in pairwise(ends)]


def _split_along(dim: Callable[[Any], int]) -> Callable[..., Any]:
    return lambda self, indices_or_sections: self.tensor_split(indices_or_sections, dim(self))


defines("hsplit.int", "hsplit.array")(_split_along(lambda x: 0 if x.dim() == 1 else 1))
defines("vsplit.int", "vsplit.array")(_split_along(lambda x: 0))
defines("dsplit.int", "dsplit.array")(_split_along(lambda x: 2))


# ---------------------------------------------------------------------------------------------- conversions


@defines("contiguous")
def contiguous(self: Any, memory_format: Any = fl.contiguous_format) -> Any:
    return self if self.is_contiguous(memory_format=memory_format) else self.clone(memory_format=memory_format)


@defines("to.dtype")
def to_dtype(self: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    return (
        self if self.dtype == dtype and not copy else fl._ops._to_copy(self, dtype=dtype, memory_format=memory_format)
    )


@defines("to.device")
def to_device(
    self: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Any:
    there = device is None or canonical(device) in (self.device, self.fake_device)
    if there and not copy and (dtype is None or dtype == self.dtype):
        return self
    return fl._ops._to_copy(self, dtype=dtype, device=device, memory_format=memory_format)


@defines("to.other")
def to_other(self: Any, other: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    return to_device(self, other.device, other.dtype, non_blocking, copy, memory_format)


defines("copy_.number")(lambda self, src, non_blocking=False: self.fill_(src))
defines("type_as")(lambda self, other: self.to(other.dtype))
for _name, _dtype in {
    "float": fl.float32, "double": fl.float64, "half": fl.float16, "bfloat16": fl.bfloat16, "int": fl.int32,
    "long": fl.int64, "short": fl.int16, "char": fl.int8, "byte": fl.uint8, "bool": fl.bool, "cfloat": fl.complex64,
    "cdouble": fl.complex128,
}.items():  # fmt: skip
    defines(_name)(lambda self, memory_format=None, _dtype=_dtype: to_dtype(self, _dtype, memory_format=memory_format))


@defines("conj")
def conj(self: Any) -> Any:
    return self.conj_physical() if self.is_complex() else self


defines("resolve_conj", "resolve_neg")(lambda self: self)


@defines("real")
def real(self: Any) -> Any:
    return fl.view_as_real(self).select(-1, 0) if self.is_complex() else self


@defines("imag")
def imag(self: Any) -> Any:
    return fl.view_as_real(self).select(-1, 1)


# ---------------------------------------------------------------------------------------------- arithmetic

defines("outer", "ger")(lambda self, vec2: self.unsqueeze(1) * vec2)


@defines("softmax.int", "special_softmax")
def softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return fl._softmax(self if dtype is None else self.to(dtype), dim, False)


@defines("log_softmax.int", "special_log_softmax")
def log_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return fl._log_softmax(self if dtype is None else self.to(dtype), dim, False)
