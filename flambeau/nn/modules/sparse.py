"""Tables of vectors looked up by index: Embedding, and EmbeddingBag, which reduces each bag of vectors to one."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


def _padding_row(name: str, padding_idx: int | None, rows: int) -> int | None:
    """The row counted from the front."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertionError(f"[{name}] expected padding_idx within the {rows} rows, got {padding_idx}")
    return padding_idx + rows if padding_idx < 0 else padding_idx


class _Table(Module):
    """The weight of both kinds: drawn from the normal distribution with a row of zeros for padding, or given."""

    weight: Tensor
    padding_idx: int | None

    def _make_weight(
        self, rows: int, columns: int, initial: Tensor | None, freeze: bool, device: Any, dtype: Any
    ) -> None:
        if initial is None:
            weight = fl.empty((rows, columns), device=device, dtype=dtype)
            self.weight = Parameter(weight, requires_grad=not freeze)
            self.reset_parameters()
            return
        if list(initial.shape) != [rows, columns]:
            raise AssertionError(
                f"[{type(self).__name__}] expected a weight of shape {(rows, columns)}, got {tuple(initial.shape)}"
            )
        self.weight = Parameter(initial, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw the rows from the normal distribution."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with fl.no_grad():
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Table):
    """Rows of a learned table, one for each index.

    - num_embeddings: rows; embedding_dim: their width.
    - padding_idx: the row that stays zero and gets no gradient; max_norm, norm_type: rows are scaled to at most this norm.
    - scale_grad_by_freq; sparse: sparse gradients; device, dtype.

    `Embedding.from_pretrained(table)` makes one of a given table.

    >>> nn.Embedding(10, 3)(flambeau.tensor([[1, 2], [4, 5]])).shape
    torch.Size([2, 2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _padding_row("Embedding", padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self._make_weight(num_embeddings, embedding_dim, _weight, _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        if self.max_norm is None:
            padding = self.padding_idx
            return fl.embedding(
                self.weight, input, -1 if padding is None else padding, self.scale_grad_by_freq, self.sparse
            )
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq is not False:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        if self.sparse is not False:
            parts.append("sparse=True")
        return ", ".join(parts)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An Embedding over a given table, which is not trained unless freeze is False."""
        if embeddings.dim() != 2:
            raise AssertionError(f"[Embedding] expected embeddings of 2 dimensions, got {embeddings.dim()}")
        rows, columns = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=embeddings,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )


class EmbeddingBag(_Table):
    """Sum, mean or maximum over bags of rows of a learned table.

    - num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, sparse, padding_idx, device, dtype: as for Embedding.
    - mode: "sum", "mean" or "max"; include_last_offset: the last offset is the number of indices.

    >>> nn.EmbeddingBag(10, 3)(flambeau.tensor([1, 2, 4]), flambeau.tensor([0, 2])).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = _padding_row("EmbeddingBag", padding_idx, num_embeddings)
        self._make_weight(num_embeddings, embedding_dim, _weight, False, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq is not False:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """An EmbeddingBag over a given table, which is not trained unless freeze is False."""
        if embeddings.dim() != 2:
            raise AssertionError(f"[EmbeddingBag] expected embeddings of 2 dimensions, got {embeddings.dim()}")
        rows, columns = embeddings.shape
        bag = cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=embeddings,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        bag.weight.requires_grad = not freeze
        return bag
