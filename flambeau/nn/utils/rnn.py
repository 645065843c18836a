"""Sequences of different lengths: packed (without padding, step by step), padded into one tensor, or as a list."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as fl
from flambeau import Tensor

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pad_packed_sequence", "pad_sequence",
    "unpad_sequence", "pack_sequence", "unpack_sequence",
]  # fmt: skip

PackedSequence_ = namedtuple("PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])
PackedSequence_.__annotations__ = {
    "data": Tensor,
    "batch_sizes": Tensor,
    "sorted_indices": "Tensor | None",
    "unsorted_indices": "Tensor | None",
}


def bind(optional: Any, fn: Callable[[Any], Any]) -> Any:
    """fn of a value, None of None."""
    return None if optional is None else fn(optional)


class PackedSequence(PackedSequence_):
    """The elements of a batch of sequences ordered by step, and how many sequences reach each step.

    Sequences lie in the order of decreasing length. `sorted_indices` tells where they were in the batch, and
    `unsorted_indices` leads back; both are None when the batch was in that order.
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        return super().__new__(cls, *_packed_sequence_init_args(data, batch_sizes, sorted_indices, unsorted_indices))

    def pin_memory(self) -> PackedSequence:
        """The same in memory that devices can read directly."""
        return type(self)(
            self.data.pin_memory(),
            self.batch_sizes,
            bind(self.sorted_indices, lambda t: t.pin_memory()),
            bind(self.unsorted_indices, lambda t: t.pin_memory()),
        )

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Conversion of the data; the indices follow to its device. Returns itself when nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        options = {name: kwargs[name] for name in ("non_blocking", "copy") if name in kwargs}
        return type(self)(
            data,
            self.batch_sizes,
            bind(self.sorted_indices, lambda t: t.to(data.device, **options)),
            bind(self.unsorted_indices, lambda t: t.to(data.device, **options)),
        )

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On a GPU."""
        return self.to(*args, **{"device": "cuda", **kwargs})

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """In the CPU's memory."""
        return self.to(*args, **{"device": "cpu", **kwargs})

    def double(self) -> PackedSequence:
        return self.to(dtype=fl.float64)

    def float(self) -> PackedSequence:
        return self.to(dtype=fl.float32)

    def half(self) -> PackedSequence:
        return self.to(dtype=fl.float16)

    def long(self) -> PackedSequence:
        return self.to(dtype=fl.int64)

    def int(self) -> PackedSequence:
        return self.to(dtype=fl.int32)

    def short(self) -> PackedSequence:
        return self.to(dtype=fl.int16)

    def char(self) -> PackedSequence:
        return self.to(dtype=fl.int8)

    def byte(self) -> PackedSequence:
        return self.to(dtype=fl.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in pinned memory."""
        return self.data.is_pinned()


def _packed_sequence_init_args(
    data: Any,
    batch_sizes: Tensor | None = None,
    sorted_indices: Tensor | None = None,
    unsorted_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    if unsorted_indices is None:
        unsorted_indices = invert_permutation(sorted_indices)
    if batch_sizes is None:
        if not isinstance(data, (list, tuple)) or len(data) != 2:
            raise AssertionError(
                f"[PackedSequence] expected batch_sizes, or data and batch_sizes as a pair, got {type(data).__name__}"
            )
        data, batch_sizes = data
    if batch_sizes.device.type != "cpu":
        raise ValueError(f"[PackedSequence] expected batch_sizes on the CPU, got {batch_sizes.device}")
    return data, batch_sizes, sorted_indices, unsorted_indices


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another."""
    if permutation is None:
        return None
    out = fl.empty_like(permutation, memory_format=fl.legacy_contiguous_format)
    return out.scatter_(0, permutation, fl.arange(permutation.numel(), device=permutation.device))


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | list[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs (time, batch, *), or (batch, time, *) if batch_first; lengths must decrease unless enforce_sorted is False."""
    if not isinstance(lengths, Tensor):
        lengths = fl.as_tensor(lengths, dtype=fl.int64, device="cpu")
    lengths = lengths.to(dtype=fl.int64)
    order = None
    if not enforce_sorted:
        lengths, order = fl.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    data, batch_sizes = fl._pack_padded_sequence(input, lengths, batch_first)
    return PackedSequence(data, batch_sizes, order, None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded tensor and the lengths of its sequences, in the order before packing."""
    longest = sequence.batch_sizes.size(0)
    if total_length is not None:
        if total_length < longest:
            raise ValueError(f"[pad_packed_sequence] expected total_length of at least {longest}, got {total_length}")
        longest = total_length
    padded, lengths = fl._pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value, longest)
    order = sequence.unsorted_indices
    if order is not None:
        return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]
    return padded, lengths


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (length, *) of different lengths as one tensor (time, batch, *), or (batch, time, *) if batch_first."""
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, Iterable):
        raise RuntimeError(f"[pad_sequence] expected an iterable of tensors, got {type(sequences).__name__}")
    sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("[pad_sequence] expected at least one sequence, got none")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"[pad_sequence] expected padding_side 'left' or 'right', got {padding_side!r}")
    if any(sequence.dim() == 0 for sequence in sequences):
        raise RuntimeError("[pad_sequence] expected sequences of at least 1 dimension, got a number")
    longest = max(sequence.size(0) for sequence in sequences)
    rest = sequences[0].shape[1:]
    out = sequences[0].new_full((len(sequences), longest, *rest), padding_value)
    for row, sequence in enumerate(sequences):
        length = sequence.size(0)
        start = longest - length if padding_side == "left" else 0
        out[row, start : start + length] = sequence
    return out if batch_first else out.transpose(0, 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded tensor, each truncated to its length."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [sequence[: int(length)] for sequence, length in zip(padded_sequences, lengths)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences of different lengths."""
    lengths = fl.as_tensor([sequence.size(0) for sequence in sequences], device="cpu")
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch, in the order before packing."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
