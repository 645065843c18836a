"""Tensors of sequences of different lengths, one after the other in one dense tensor, with no padding.

The object is the dense tensor of all rows (`values`), seen as a batch: functions that treat rows alike are applied to it,
those that know of sequences (sums over one, attention, padding) get the offsets. All others are refused.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ops import tags
from flambeau.overrides import DisableTorchFunctionSubclass

__all__ = ["NestedTensor", "jagged", "nested_view"]


class _Layout:
    """The layout of nested tensors."""

    def __repr__(self) -> str:
        return "torch.jagged"

    def __reduce__(self) -> str:
        return "jagged"


jagged = _Layout()


class jagged_size:
    """The size of the dimension that has no single one; equal for tensors that share their offsets."""

    _count = 0

    def __init__(self) -> None:
        jagged_size._count += 1
        self._name = f"j{jagged_size._count}"

    def __repr__(self) -> str:
        return self._name


def nested_view(values: Tensor, offsets: Tensor, ragged: Any = None, at: int = 1, layout: Any = jagged) -> NestedTensor:
    """Rows seen as sequences; `at` is where their dimension stands, 1 or, with heads in front of it, 2.

    Tensors of PyTorch's older strided layout are kept like the others, and called by its name.
    """
    with DisableTorchFunctionSubclass():
        nested = values.as_subclass(NestedTensor)
        nested._offsets, nested._ragged, nested._at, nested._layout = offsets, ragged or jagged_size(), at, layout
    return nested


def _plain(x: Any) -> Any:
    return x._values if isinstance(x, NestedTensor) else x


# Functions that treat all rows, or all numbers, alike, beside those whose records say so.
_ALIKE = frozenset(
    "requires_grad_ type where __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __neg__ "
    "__abs__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __pos__".split()
)
# Those that concern the values as a whole.
_AS_VALUES = frozenset(
    "__get__ __set__ backward is_contiguous is_pinned numel element_size register_hook retain_grad".split()
)


class NestedTensor(Tensor):
    """A batch of sequences in jagged layout. Made by the functions of `nested`."""

    _offsets: Tensor
    _ragged: jagged_size
    _at: int
    _layout: Any

    # -- parts

    @property
    def _values(self) -> Tensor:  # type: ignore[override]
        with DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    def values(self) -> Tensor:  # type: ignore[override]
        return self._values

    def offsets(self) -> Tensor:
        return self._offsets

    def lengths(self) -> None:
        """None: there is nothing between the sequences."""

    def _lengths(self) -> list[int]:
        return self._offsets.diff().tolist()

    def _like(self, values: Tensor, at: int | None = None) -> NestedTensor:
        return nested_view(values, self._offsets, self._ragged, self._at if at is None else at, self._layout)

    # -- shape

    @property
    def shape(self) -> Any:  # type: ignore[override]
        rest = list(self._values.shape[1:])
        rest.insert(self._at - 1, self._ragged)  # type: ignore[arg-type]
        return (self._offsets.shape[0] - 1, *rest)

    def size(self, dim: int | None = None) -> Any:
        size = self.shape if dim is None else self.shape[dim]
        if size is self._ragged and self._layout is not jagged:
            lengths = set(self._lengths())
            if len(lengths) != 1:
                raise RuntimeError(
                    f"[size] expected a dimension with one size, got dimension {dim}, which is irregular"
                )
            return lengths.pop()
        return size

    def dim(self) -> int:
        return self._values.dim() + 1

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self.dim()

    @property
    def layout(self) -> Any:  # type: ignore[override]
        return self._layout

    @property
    def is_nested(self) -> bool:  # type: ignore[override]
        return True

    @property
    def grad(self) -> Any:  # type: ignore[override]
        with DisableTorchFunctionSubclass():
            gradient = Tensor.grad.__get__(self)  # type: ignore[union-attr]
        return None if gradient is None else self._like(gradient)

    def __len__(self) -> int:
        return self._offsets.shape[0] - 1

    def __repr__(self, **options: Any) -> str:
        if self._layout is not jagged:
            parts = ["  " + repr(part.detach()).replace("\n", "\n  ") for part in self.unbind()]
            return "nested_tensor([\n" + ",\n".join(parts) + "\n])"
        sizes = ", ".join(map(str, self.shape))
        tail = f", grad_fn=<{type(self.grad_fn).__name__}>" if self.grad_fn is not None else ""
        tail = tail or (", requires_grad=True" if self.requires_grad else "")
        return f"NestedTensor(size=({sizes}), offsets={self._offsets}, contiguous={self._at == 1}{tail})"

    # -- sequences

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        if dim not in (0, -self.dim()):
            raise RuntimeError(f"[unbind] expected dim 0 of a nested tensor, got {dim}")
        parts = self._values.split(self._lengths())
        return tuple(part.transpose(0, 1) if self._at == 2 else part for part in parts)

    def __iter__(self) -> Any:
        return iter(self.unbind())

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int):
            raise NotImplementedError(f"[NestedTensor] expected an integer index, got {index!r}")
        return self.unbind()[index]

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:  # type: ignore[override]
        parts = self.unbind()
        along = self._at - 1
        longest = max((p.shape[along] for p in parts), default=0)
        sizes = list(parts[0].shape)
        sizes[along] = longest
        if output_size is not None:
            wanted = list(output_size)[1:]
            if len(wanted) != len(sizes) or any(w < s for w, s in zip(wanted, sizes)):
                raise RuntimeError(f"[to_padded_tensor] expected an output_size that holds {sizes}, got {output_size}")
            sizes = wanted
        padded = []
        for part in parts:
            room = [n for size, want in zip(reversed(part.shape), reversed(sizes)) for n in (0, want - size)]
            padded.append(fl.nn.functional.pad(part, room, value=padding))
        return fl.stack(padded)

    # -- rearranging

    def transpose(self, dim0: int, dim1: int) -> NestedTensor:
        a, b = sorted(d % self.dim() for d in (dim0, dim1))
        if (a, b) == (1, 2) and self.dim() > 2:
            return self._like(self._values, 3 - self._at)
        if a > 2 or (a == 2 and self._at == 1):
            return self._like(self._values.transpose(a - 1, b - 1))
        raise NotImplementedError(f"[transpose] expected the dimensions 1 and 2, or later ones, got {dim0} and {dim1}")

    def _reshaped(self, sizes: Any) -> NestedTensor:
        """View and reshape: batch and sequences stay, what follows may change."""
        sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else tuple(sizes)
        if self._at != 1 or len(sizes) < 2 or sizes[0] not in (-1, len(self)) or sizes[1] not in (-1, self._ragged):
            raise RuntimeError(f"[view] expected (batch, -1, ...) for {self.shape}, got {sizes}")
        return self._like(self._values.reshape(self._values.shape[0], *sizes[2:]))

    def view(self, *sizes: Any) -> NestedTensor:
        return self._reshaped(sizes)

    def reshape(self, *sizes: Any) -> NestedTensor:
        return self._reshaped(sizes)

    def _row_dim(self, dim: int) -> int:
        """A dimension behind the sequences, as one of the values."""
        at = dim % self.dim()
        if at <= self._at:
            raise NotImplementedError(f"[NestedTensor] expected a dimension behind the sequences, got {dim}")
        return at - 1

    def unflatten(self, dim: int, sizes: Any) -> NestedTensor:
        return self._like(self._values.unflatten(self._row_dim(dim), sizes))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
        return self._like(self._values.flatten(self._row_dim(start_dim), self._row_dim(end_dim)))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[NestedTensor, ...]:
        return tuple(map(self._like, self._values.chunk(chunks, self._row_dim(dim))))

    def split(self, split_size: Any, dim: int = 0) -> tuple[NestedTensor, ...]:
        return tuple(map(self._like, self._values.split(split_size, self._row_dim(dim))))

    def unsqueeze(self, dim: int) -> NestedTensor:
        at = dim % (self.dim() + 1)
        if at <= self._at:
            raise NotImplementedError(f"[unsqueeze] expected a place behind the sequences, got {dim}")
        return self._like(self._values.unsqueeze(at - 1))

    def squeeze(self, dim: int) -> NestedTensor:  # type: ignore[override]
        return self._like(self._values.squeeze(self._row_dim(dim)))

    # -- functions

    def _reduced(self, name: str, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
        function = getattr(fl, name)
        if dim is None:
            return function(self._values, **options)
        dims = [d % self.dim() for d in ((dim,) if isinstance(dim, int) else dim)]
        if dims == [self._at] and self._at == 1 and name in ("sum", "mean"):
            batch = len(self)
            of = fl.repeat_interleave(fl.arange(batch), self._offsets.diff())
            out = fl.zeros(batch, *self._values.shape[1:], dtype=self._values.dtype).index_add(0, of, self._values)
            if name == "mean":
                out = out / self._offsets.diff().reshape(-1, *[1] * (out.dim() - 1)).to(out.dtype)
            return out.unsqueeze(1) if keepdim else out
        return self._like(function(self._values, [self._row_dim(d) for d in dims], keepdim=keepdim, **options))

    def sum(self, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
        return self._reduced("sum", dim, keepdim, **options)

    def mean(self, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
        return self._reduced("mean", dim, keepdim, **options)

    def _extreme(self, name: str, dim: Any, keepdim: bool) -> Tensor:
        if dim is not None and dim % self.dim() == self._at == 1:
            extremes = fl.stack([getattr(part, name)(0) for part in self.unbind()])
            return extremes.unsqueeze(1) if keepdim else extremes
        return self._reduced(name, dim, keepdim)

    def amax(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._extreme("amax", dim, keepdim)

    def amin(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._extreme("amin", dim, keepdim)

    def _along_rows(self, name: str, dim: Any, keepdim: bool) -> Tensor:
        function = getattr(fl, name)
        if dim is None:
            return function(self._values)
        return self._like(function(self._values, self._row_dim(dim), keepdim))

    def any(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._along_rows("any", dim, keepdim)

    def all(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        return self._along_rows("all", dim, keepdim)

    def argmax(self, dim: int, keepdim: bool = False) -> Tensor:  # type: ignore[override]
        return self._along_rows("argmax", dim, keepdim)

    def argmin(self, dim: int, keepdim: bool = False) -> Tensor:  # type: ignore[override]
        return self._along_rows("argmin", dim, keepdim)

    def min(self) -> Tensor:  # type: ignore[override]
        return self._values.min()

    def max(self) -> Tensor:  # type: ignore[override]
        return self._values.max()

    def select(self, dim: int, index: int) -> NestedTensor:
        return self._like(self._values.select(self._row_dim(dim), index))

    def expand(self, *sizes: Any) -> NestedTensor:  # type: ignore[override]
        sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else tuple(sizes)
        if self._at != 1 or len(sizes) != self.dim() or sizes[0] not in (-1, len(self)):
            raise RuntimeError(f"[expand] expected (batch, -1, ...) for {self.shape}, got {sizes}")
        if sizes[1] not in (-1, self._ragged):
            raise RuntimeError(f"[expand] expected sequences of the same lengths, got {sizes}")
        return self._like(self._values.expand(-1, *sizes[2:]))

    def zero_(self) -> NestedTensor:
        self._values.zero_()
        return self

    def fill_(self, value: Any) -> NestedTensor:
        self._values.fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> NestedTensor:
        self._values.copy_(self._broadcast(source), non_blocking)
        return self

    def __deepcopy__(self, memo: Any) -> NestedTensor:
        import copy

        return memo.setdefault(id(self), self._like(copy.deepcopy(self._values, memo)))

    def _normalised(self, func: Any, dim: int, **options: Any) -> NestedTensor:
        """Softmax along rows, or along each sequence."""
        if dim % self.dim() == self._at == 1:
            return self._like(fl.cat([func(part, dim=0, **options) for part in self.unbind()]))
        return self._like(func(self._values, dim=self._row_dim(dim), **options))

    def _times_batch(self, name: str, other: Tensor) -> NestedTensor:
        """Each sequence by the matrix of its own."""
        if self.dim() != 3 or other.shape[0] != len(self):
            raise RuntimeError(
                f"[{name}] expected a matrix for each of {len(self)} sequences, got {tuple(other.shape)}"
            )
        return self._like(fl.cat([part @ matrix for part, matrix in zip(self.unbind(), other)]))

    def _broadcast(self, other: Any) -> Any:
        """An operand beside the rows of this one."""
        if isinstance(other, NestedTensor):
            if other._ragged is not self._ragged or other._at != self._at:
                raise RuntimeError(
                    f"[NestedTensor] expected operands that share their offsets, got {self.shape} and {other.shape}"
                )
            return other._values
        if not isinstance(other, Tensor) or other.dim() <= self.dim() - 1 - self._at:
            return other
        if self._at == 1 and other.dim() == self.dim() and other.shape[1] == 1 and other.shape[0] in (1, len(self)):
            rows = other.expand(len(self), *other.shape[1:]).squeeze(1)
            return rows.repeat_interleave(self._offsets.diff(), 0)
        raise RuntimeError(
            f"[NestedTensor] expected an operand that broadcasts to {self.shape}, got {tuple(other.shape)}"
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        flat = [x for a in (*args, *kwargs.values()) for x in (a if isinstance(a, (list, tuple)) else (a,))]
        first = next((a for a in flat if isinstance(a, NestedTensor)), None)
        if first is None or name in _AS_VALUES:
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        own = cls.__dict__.get(name)
        if callable(own) and not name.startswith("_") and args and args[0] is first:
            return own(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            return _attention(func, *args, **kwargs)
        if name in ("softmax", "log_softmax"):
            dim = kwargs.pop("dim", args[1] if len(args) > 1 else None)
            return first._normalised(func, dim, **kwargs)
        if name == "stack" or (name in tags.functions("joins") and not name.endswith("stack")):
            return _joined(func, name, first, *args, **kwargs)
        if name in ("bmm", "matmul", "__matmul__") and args[0] is first and args[1].dim() == 3:
            if isinstance(args[1], NestedTensor) or first._at != 1:
                raise NotImplementedError(f"[{name}] expected a nested and a dense tensor, got two nested ones")
            return first._times_batch(name, args[1])
        if name in _ALIKE or name in tags.functions("pointwise", "elementwise"):
            result = func(*map(first._broadcast, args), **{k: first._broadcast(v) for k, v in kwargs.items()})
            return first._like(result)
        if (name in tags.functions("rowwise") or name == "__matmul__") and first._at == 1:
            result = func(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})
            return (first._like(result[0]), *result[1:]) if isinstance(result, tuple) else first._like(result)
        raise NotImplementedError(f"[{name}] expected dense tensors, got a nested one: it is not written for them")


def _joined(func: Any, name: str, first: NestedTensor, tensors: Any, dim: int = 0, **options: Any) -> NestedTensor:
    """Nested tensors with the same offsets, beside each other along a dimension of their rows."""
    rank = first.dim() + (name == "stack")
    at = dim % rank
    if at <= first._at:
        raise RuntimeError(
            f"[{name}] expected a dimension behind the sequences, got {dim}: not supported for NestedTensor"
        )
    parts = [first._broadcast(t) if isinstance(t, NestedTensor) else None for t in tensors]
    if any(part is None for part in parts):
        raise RuntimeError(f"[{name}] expected nested tensors only, got a dense one among them")
    return first._like(func(parts, at - 1, **options))


def _attention(
    func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    **options: Any,
) -> NestedTensor:  # fmt: skip
    """Each sequence by itself: there is no padding to mask."""
    if attn_mask is not None:
        raise NotImplementedError("[scaled_dot_product_attention] expected no mask beside nested tensors, got one")
    results = [
        func(q[None], k[None], v[None], dropout_p=dropout_p, is_causal=is_causal, **options)[0]
        for q, k, v in zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
    ]
    if query._at == 2:
        return query._like(fl.cat([r.transpose(0, 1) for r in results]))
    return query._like(fl.cat(results))
