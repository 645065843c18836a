"""Batches of sequences of different lengths: padded, with a mask, or packed for recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_sequence


@dataclass
class Batch:
    """Sequences (batch, time), padded at the end, and their lengths."""

    tokens: Tensor
    lengths: Tensor

    @property
    def padding_mask(self) -> Tensor:
        """True at padding, as `nn.TransformerEncoder(src_key_padding_mask=)` wants it."""
        places = flambeau.arange(self.tokens.shape[1], device=self.tokens.device)
        return places[None] >= self.lengths.to(self.tokens.device)[:, None]

    def to(self, device: Any) -> Batch:
        """Tokens on a device; lengths stay, because packing reads them on the CPU."""
        return Batch(self.tokens.to(device), self.lengths)

    def __len__(self) -> int:
        return self.tokens.shape[0]


def collate(sequences: Sequence[Tensor | Sequence[int]], padding_value: float = 0) -> Batch:
    """A batch of sequences; `DataLoader(..., collate_fn=collate)`.

    >>> batch = flambeau.text.collate([[1, 2, 3], [4]])
    >>> batch.tokens.tolist(), batch.lengths.tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])
    """
    if not sequences:
        raise ValueError("[collate] expected at least one sequence, got none")
    tensors = [s if isinstance(s, Tensor) else flambeau.tensor(s) for s in sequences]
    lengths = flambeau.tensor([len(t) for t in tensors])
    return Batch(pad_sequence(tensors, batch_first=True, padding_value=padding_value), lengths)


def packed(batch: Batch, values: Tensor | None = None) -> PackedSequence:
    """For recurrent layers: the tokens without padding, or values such as embeddings in their place."""
    content = batch.tokens if values is None else values
    return pack_padded_sequence(content, batch.lengths, batch_first=True, enforce_sorted=False)
