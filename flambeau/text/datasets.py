"""Datasets for language models, from texts and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.utils.data import Dataset


def text_lines(path: str | os.PathLike[str], encoding: str = "utf-8", keep_empty: bool = False) -> Iterator[str]:
    """The lines of a file, without their ends."""
    with open(path, encoding=encoding) as file:
        for line in file:
            line = line.rstrip("\r\n")
            if line or keep_empty:
                yield line


class LanguageModelDataset(Dataset[Any]):
    """Windows of one long sequence: item i is (tokens, the tokens one place later).

    tokens: one-dimensional; length: of a window; stride: from one window to the next, by default without overlap.

    >>> data = flambeau.text.LanguageModelDataset(flambeau.arange(7), length=3)
    >>> len(data), [part.tolist() for part in data[1]]
    (2, [[3, 4, 5], [4, 5, 6]])
    """

    def __init__(self, tokens: Tensor, length: int, stride: int | None = None) -> None:
        if tokens.dim() != 1:
            raise ValueError(f"[LanguageModelDataset] expected one sequence of tokens, got shape {tuple(tokens.shape)}")
        if length < 1 or (stride is not None and stride < 1):
            raise ValueError(f"[LanguageModelDataset] expected length and stride of at least 1, got {length}, {stride}")
        self.tokens, self.length, self.stride = tokens, length, stride or length

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1 - self.length) // self.stride + 1)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"[LanguageModelDataset] expected an index below {len(self)}, got {index}")
        start = index % len(self) * self.stride
        window = self.tokens[start : start + self.length + 1]
        return window[:-1], window[1:]


def bptt_batches(tokens: Tensor, batch_size: int, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Consecutive pieces (time, batch) of `batch_size` parallel streams and their targets, for truncated backpropagation.

    >>> [x.shape for x, y in flambeau.text.bptt_batches(flambeau.arange(20), batch_size=2, length=4)]
    [torch.Size([4, 2]), torch.Size([4, 2]), torch.Size([1, 2])]
    """
    steps = len(tokens) // batch_size
    if steps < 2:
        raise ValueError(f"[bptt_batches] expected at least {2 * batch_size} tokens, got {len(tokens)}")
    streams = tokens[: steps * batch_size].reshape(batch_size, steps).t().contiguous()
    for start in range(0, steps - 1, length):
        stop = min(start + length, steps - 1)
        yield streams[start:stop], flambeau.narrow(streams, 0, start + 1, stop - start)
