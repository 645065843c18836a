"""Attention with scores changed by a user's function, and masks given by a function and kept as blocks.

The implementation is not fused: scores are computed as a whole, changed, masked and softmaxed. The functions are called
once with index tensors that broadcast against the scores, which gives every element the indices it would be called with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import flambeau as fl
from flambeau import Tensor

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_LARGE_SPARSE_BLOCK_SIZE = 1 << 30

_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class FlexKernelOptions(TypedDict, total=False):
    """Options of fused kernels; taken and not needed."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    BACKEND: str


class AuxRequest(NamedTuple):
    """What to return beside the output."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was returned beside the output."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask that hides nothing."""
    return batch.new_ones(size=(), dtype=fl.bool, device=batch.device)


def _identity(score: Tensor, batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    return score


def or_masks(*mask_mods: _mask_mod_signature) -> _mask_mod_signature:
    """A mask that shows what any of the given ones does."""
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"[or_masks] expected functions, got {mask_mods}")

    def either(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_zeros((), dtype=fl.bool)
        for mod in mask_mods:
            result = result | mod(b, h, q_idx, kv_idx)
        return result

    return either


def and_masks(*mask_mods: _mask_mod_signature) -> _mask_mod_signature:
    """A mask that shows what all of the given ones do."""
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"[and_masks] expected functions, got {mask_mods}")

    def all_of(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_ones((), dtype=fl.bool)
        for mod in mask_mods:
            result = result & mod(b, h, q_idx, kv_idx)
        return result

    return all_of


# ---------------------------------------------------------------- masks


def _indices(B: int, H: int, Q: int, K: int, device: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four indices, each along its own dimension of (B, H, Q, K)."""
    shapes = ((B, (-1, 1, 1, 1)), (H, (1, -1, 1, 1)), (Q, (1, 1, -1, 1)), (K, (1, 1, 1, -1)))
    return tuple(fl.arange(n, device=device, dtype=fl.int32).view(shape) for n, shape in shapes)  # type: ignore[return-value]


def create_mask(mod_fn: Any, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """The dense mask (B, H, Q_LEN, KV_LEN) of a mask function, or the scores that a score function makes of zeros."""
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    indices = _indices(*sizes, device)
    code = getattr(mod_fn, "__code__", None)
    if code is not None and code.co_argcount == 5:
        out = mod_fn(fl.zeros(sizes, device=device), *indices)
        return fl.where(fl.isneginf(out), False, True).expand(sizes)
    return mod_fn(*indices).expand(sizes).to(fl.bool)


def _ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """For rows of zeros and ones, how many ones each has, and the columns with the ones first."""
    counts = dense.sum(-1).to(fl.int32)
    columns = fl.argsort(dense.to(fl.int32), dim=-1, descending=True, stable=True).to(fl.int32)
    return counts.contiguous(), columns.contiguous()


def _dense(counts: Tensor, columns: Tensor) -> Tensor:
    """The rows of zeros and ones again."""
    width = columns.shape[-1]
    listed = fl.arange(width, device=counts.device).expand(columns.shape) < counts.unsqueeze(-1)
    return fl.zeros_like(columns, dtype=fl.int32).scatter(-1, columns.long(), listed.to(fl.int32))


class BlockMask:
    """A mask in blocks: for each row of blocks of queries, which blocks of keys it needs.

    Blocks in `kv_indices` are seen in part, as `mask_mod` says; those in `full_kv_indices` wholly. Only the first
    `kv_num_blocks` entries of a row count. The q_ tensors hold the same by column.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod: _mask_mod_signature = noop_mask,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError(f"[BlockMask] expected kv_indices of at least 2 dimensions, got {kv_indices.dim()}")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "[BlockMask] expected full_kv_num_blocks and full_kv_indices together, got one of them"
            )
        self.seq_lengths = seq_lengths
        self.kv_num_blocks = kv_num_blocks
        self.kv_indices = kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.q_num_blocks = q_num_blocks
        self.q_indices = q_indices
        self.full_q_num_blocks = full_q_num_blocks
        self.full_q_indices = full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    _TENSORS = (
        "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
        "full_q_num_blocks", "full_q_indices",
    )  # fmt: skip

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: _mask_mod_signature | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """A mask from its blocks by row; those by column are found from them."""
        if kv_indices.dim() < 2:
            raise RuntimeError(f"[BlockMask] expected kv_indices of at least 2 dimensions, got {kv_indices.dim()}")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "[BlockMask] expected full_kv_num_blocks and full_kv_indices together, got one of them"
            )
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        by_column: list[Any] = [None] * 4
        if compute_q_blocks:
            by_column[:2] = _ordered(_dense(kv_num_blocks, kv_indices).transpose(-2, -1))
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                by_column[2:] = _ordered(_dense(full_kv_num_blocks, full_kv_indices).transpose(-2, -1))
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        mod = noop_mask if mask_mod is None else mask_mod
        blocks: Any = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *by_column)
        return cls(seq_lengths, *blocks, BLOCK_SIZE=size, mask_mod=mod)  # type: ignore[misc]

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """All parts in the order of the constructor's arguments."""
        lengths = self.seq_lengths if flatten else (self.seq_lengths,)
        size = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        return (*lengths, *(getattr(self, name) for name in self._TENSORS), *size, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of elements of the mask."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """Ones for the blocks that are needed, zeros for the others."""
        partial = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return partial
        return partial | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def sparsity(self) -> float:
        """The share of the mask, in percent, that no block covers."""
        blocks = float(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += float(self.full_kv_num_blocks.sum())
        covered = blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - covered / self.numel())

    def to(self, device: Any) -> BlockMask:
        """The mask on a device."""
        moved = {name: getattr(self, name) for name in self._TENSORS}
        moved = {name: None if tensor is None else tensor.to(device) for name, tensor in moved.items()}
        return BlockMask(self.seq_lengths, **moved, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def __getitem__(self, index: Any) -> BlockMask:
        """Part of the mask by batch, head or blocks of queries; its mask_mod still counts queries from the first."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        parts: Any = [
            None if tensor is None else tensor[index]
            for tensor in (self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices)
        ]
        return BlockMask.from_kv_blocks(  # type: ignore[misc]
            *parts,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=_sliced_mask_mod_error,
            seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks: full, partial and empty ones by shade, for the first batches and heads."""
        rows, columns = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        dense = self.to_dense()
        dense = dense.reshape(-1, *dense.shape[-2:])
        leading = self.kv_indices.shape[:-2]
        pictures = []
        for place, part in enumerate(dense[:limit]):
            index = []
            for size in reversed(leading):
                index.append(place % size)
                place //= size
            high, wide = max(1, -(-part.shape[0] // rows)), max(1, -(-part.shape[1] // columns))
            lines = []
            for i in range(0, part.shape[0], high):
                cells = [float(part[i : i + high, j : j + wide].float().mean()) for j in range(0, part.shape[1], wide)]
                lines.append("".join("██" if c == 1 else "  " if c == 0 else "░░" for c in cells))
            pictures.append(f"{tuple(reversed(index))}\n" + "\n".join(lines))
        return "\n\n".join(pictures) + ("\n..." if dense.shape[0] > limit else "")

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        parts = "".join(f"    {name}={getattr(self, name)},\n" for name in self._TENSORS)
        return f"BlockMask(\n{parts}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n    sparsity={self.sparsity():.2f}%,\n    mask_mod={self.mask_mod}\n)"

    def _elements(self, sizes: tuple[int, int, int, int], device: Any) -> Tensor:
        """Which of the scores (B, H, Q, K) are seen."""
        queries, keys = sizes[2:]

        def spread(blocks: Tensor) -> Tensor:
            across = blocks.to(fl.bool).repeat_interleave(self.BLOCK_SIZE[0], -2)
            return across.repeat_interleave(self.BLOCK_SIZE[1], -1)[..., :queries, :keys]

        partial = spread(_dense(self.kv_num_blocks, self.kv_indices))
        seen = partial & self.mask_mod(*_indices(*sizes, device))
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            seen = seen | spread(_dense(self.full_kv_num_blocks, self.full_kv_indices))
        return seen


def _sliced_mask_mod_error(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    raise RuntimeError("[BlockMask] expected a mask_mod for a part of a mask, got none; assign one to its mask_mod")


def create_block_mask(
    mask_mod: _mask_mod_signature,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """The blocks of a mask function."""
    if not callable(mask_mod):
        raise AssertionError(f"[create_block_mask] expected a function (b, h, q_idx, kv_idx), got {mask_mod!r}")
    size: Any = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    # What lies beyond the sequences is hidden, so that blocks at the ends are not full.
    mask = fl.nn.functional.pad(mask, (0, -KV_LEN % size[1], 0, -Q_LEN % size[0]))
    batch, heads, rows, columns = mask.shape
    seen = mask.view(batch, heads, rows // size[0], size[0], columns // size[1], size[1]).sum((-1, -3))
    full = seen == size[0] * size[1]
    partial = (seen > 0) & ~full if separate_full_blocks else seen > 0
    blocks: Any = (*_ordered(partial), *(_ordered(full) if separate_full_blocks else (None, None)))
    return BlockMask.from_kv_blocks(  # type: ignore[misc]
        *blocks,
        BLOCK_SIZE=size,
        mask_mod=mask_mod,
        seq_lengths=(Q_LEN, KV_LEN),
    )


# ---------------------------------------------------------------- attention


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: _score_mod_signature | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query keyᵀ scale)) value, over what the block mask shows; a query that sees nothing gives 0."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError(
            f"[flex_attention] expected query, key and value of 4 dimensions, got {query.dim()}, {key.dim()} and {value.dim()}"
        )
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError(f"[flex_attention] expected one dtype, got {query.dtype}, {key.dtype} and {value.dtype}")
    if query.size(-1) != key.size(-1):
        raise ValueError(
            f"[flex_attention] expected query and key of one depth, got {query.size(-1)} and {key.size(-1)}"
        )
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError(
            f"[flex_attention] expected as many heads of key as of query, {query.size(1)}, got {key.size(1)}; "
            "pass enable_gqa=True to share them"
        )
    if return_lse and return_aux is not None:
        raise ValueError("[flex_attention] expected only one of return_lse and return_aux, got both")
    heads = query.size(1)
    if heads % key.size(1):
        raise ValueError(f"[flex_attention] expected heads of query divisible by {key.size(1)}, got {heads}")
    if key.size(1) != heads:
        key = key.repeat_interleave(heads // key.size(1), 1)
        value = value.repeat_interleave(heads // value.size(1), 1)
    sizes = (query.size(0), heads, query.size(-2), key.size(-2))
    # Blocks may cover more than the sequences, not less.
    if block_mask is not None and any(own < size for own, size in zip(block_mask.seq_lengths, sizes[2:])):
        raise ValueError(
            f"[flex_attention] expected a block mask of at least {sizes[2:]}, got {block_mask.seq_lengths}; "
            "create it anew for these lengths"
        )
    wide = fl.float64 if query.dtype == fl.float64 else fl.float32
    factor = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * factor
    if score_mod is not None:
        scores = score_mod(scores, *_indices(*sizes, query.device)).to(wide)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask._elements(sizes, query.device), float("-inf"))
    highest = scores.detach().amax(-1, keepdim=True)
    blind = highest == float("-inf")
    weights = (scores - highest.masked_fill(blind, 0.0)).exp()
    total = weights.sum(-1, keepdim=True)
    output = ((weights @ value.to(wide)) / total.masked_fill(blind, 1.0)).to(query.dtype)
    if not return_lse and return_aux is None:
        return output
    lse = fl.logsumexp(scores, -1)
    if return_lse:
        return output, lse
    return output, AuxOutput(
        lse=lse if return_aux.lse else None,  # type: ignore[union-attr]
        max_scores=highest.squeeze(-1) if return_aux.max_scores else None,  # type: ignore[union-attr]
    )
