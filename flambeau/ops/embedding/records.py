"""Tables of vectors: embedding, embedding_bag, one_hot."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite, native, tag, vjp
from flambeau.ops.values import all_values

native("embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor")  # fmt: skip
native("embedding_renorm_(Tensor(!) self, Tensor indices, float max_norm, float norm_type) -> Tensor", method=False)
native("_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)", module="")  # fmt: skip


def sparse_rows(indices: fl.Tensor, rows: fl.Tensor, size: fl.Size, padding_idx: int) -> fl.Tensor:
    """The gradient of a table of which few rows are used, as a sparse tensor of these rows."""
    from flambeau.sparse.construction import sparse_coo_tensor

    if padding_idx >= 0:
        used_places = (indices != padding_idx).nonzero().squeeze(1)
        indices, rows = indices.index_select(0, used_places), rows.index_select(0, used_places)
    return sparse_coo_tensor(indices.unsqueeze(0), rows, size)


@vjp("embedding")
def embedding_vjp(
    g: fl.Tensor, weight_sizes: fl.Size, indices: fl.Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> tuple[fl.Tensor | None, ...]:
    flat = indices.reshape(-1)
    rows = g.reshape(flat.shape[0], weight_sizes[-1])
    if sparse:
        if scale_grad_by_freq:
            raise RuntimeError("[embedding] expected scale_grad_by_freq=False with sparse gradients, got True")
        return sparse_rows(flat, rows, weight_sizes, padding_idx), None
    if padding_idx >= 0:
        rows = rows.masked_fill((flat == padding_idx).unsqueeze(-1), 0)
    if scale_grad_by_freq:
        times = fl.zeros(weight_sizes[0], dtype=g.dtype, device=g.device).index_add(
            0, flat, fl.ones(flat.shape, dtype=g.dtype, device=g.device)
        )
        rows = rows / times.index_select(0, flat).unsqueeze(-1)
    return fl.zeros(weight_sizes, dtype=g.dtype, device=g.device).index_add(0, flat, rows), None


@vjp("_embedding_bag")
def embedding_bag_vjp(
    g0: fl.Tensor,
    weight: fl.Tensor,
    indices: fl.Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: fl.Tensor | None,
    padding_idx: int,
    out1: fl.Tensor,
    out2: fl.Tensor,
    out3: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    zeros = None if sparse else fl.zeros(weight.shape, dtype=g0.dtype, device=g0.device)
    if mode == 2:
        grad = g0 * (out2 > 0).unsqueeze(-1)
        return zeros.scatter_add(0, out3, grad), None, None, None  # type: ignore[union-attr]
    rows = g0.index_select(0, out1)
    hidden = (indices == padding_idx).unsqueeze(-1) if padding_idx >= 0 else None
    if hidden is not None:
        rows = rows.masked_fill(hidden, 0)
    grad_factors = (rows * weight.index_select(0, indices)).sum(-1) if needs[3] else None
    if mode == 1:
        rows = rows / out2.index_select(0, out1).clamp(min=1).unsqueeze(-1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if scale_grad_by_freq:
        times = fl.zeros(weight.shape[0], dtype=g0.dtype, device=g0.device).index_add(
            0, indices, fl.ones(indices.shape, dtype=g0.dtype, device=g0.device)
        )
        rows = rows / times.index_select(0, indices).unsqueeze(-1)
    if sparse and needs[0]:
        return sparse_rows(indices, rows, weight.shape, padding_idx), None, None, grad_factors
    return zeros.index_add(0, indices, rows) if needs[0] else None, None, None, grad_factors  # type: ignore[union-attr]


MODES = {"sum": 0, "mean": 1, "max": 2}


def wrapped_padding(op: str, padding_idx: int | None, rows: int) -> int:
    """padding_idx counted from the front; -1 stands for none."""
    if padding_idx is None:
        return -1
    if padding_idx and not -rows <= padding_idx < rows:
        raise AssertionError(f"[{op}] expected padding_idx in [{-rows}, {rows - 1}], got {padding_idx}")
    return padding_idx % rows if padding_idx else 0


@composite("nn_embedding")
def embedding(
    input: fl.Tensor,
    weight: fl.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> fl.Tensor:
    padding = wrapped_padding("embedding", padding_idx, weight.shape[0]) if padding_idx is not None else -1
    if max_norm is not None:
        with fl.no_grad():
            fl.embedding_renorm_(weight, input.contiguous(), max_norm, norm_type)
    return fl.embedding(weight, input, padding, scale_grad_by_freq, sparse)


@composite()
def embedding_bag(
    weight: fl.Tensor,
    indices: fl.Tensor,
    offsets: fl.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: fl.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor, fl.Tensor]:
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise RuntimeError(
            f"[embedding_bag] expected padding_idx within the {weight.shape[0]} rows of the weight, got {padding_idx}"
        )
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return fl._embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding
    )


@composite()
def nn_embedding_bag(
    input: fl.Tensor,
    weight: fl.Tensor,
    offsets: fl.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: fl.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> fl.Tensor:
    if mode not in MODES:
        raise ValueError(f"[embedding_bag] expected mode 'sum', 'mean' or 'max', got {mode!r}")
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"[embedding_bag] expected per_sample_weights of shape {tuple(input.shape)}, got {tuple(per_sample_weights.shape)}"
        )
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("[embedding_bag] expected no offsets for input of 2 dimensions, got some")
        bags, width = input.shape
        offsets = fl.arange(0, input.numel(), width, dtype=input.dtype, device=input.device) if width else fl.zeros(bags, dtype=input.dtype, device=input.device)  # fmt: skip
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("[embedding_bag] expected offsets for input of 1 dimension, got none")
        if offsets.dim() != 1:
            raise ValueError(f"[embedding_bag] expected offsets of 1 dimension, got {offsets.dim()}")
    else:
        raise ValueError(f"[embedding_bag] expected input of 1 or 2 dimensions, got {input.dim()}")
    padding = wrapped_padding("embedding_bag", padding_idx, weight.shape[0])
    if mode == "max":
        if scale_grad_by_freq:
            raise ValueError("[embedding_bag] expected mode 'sum' or 'mean' with scale_grad_by_freq, got 'max'")
        if sparse:
            raise ValueError("[embedding_bag] expected mode 'sum' or 'mean' with sparse gradients, got 'max'")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f"[embedding_bag] expected mode 'sum' with per_sample_weights, got {mode!r}")
    if max_norm is not None:
        with fl.no_grad():
            fl.embedding_renorm_(weight, input, max_norm, norm_type)
    return fl._embedding_bag(
        weight,
        input,
        offsets,
        scale_grad_by_freq,
        MODES[mode],
        sparse,
        per_sample_weights,
        include_last_offset,
        padding,
    )[0]


def _is_class(tensor: fl.Tensor, classes: int) -> fl.Tensor:
    # From the tensor, so that the numbers are of its kind: distributed tensors refuse plain ones beside them.
    numbers = fl.arange(classes, device=tensor.device)
    if type(tensor) is not fl.Tensor:
        numbers = tensor.new_ones(classes).cumsum(0) - 1
    return (tensor.unsqueeze(-1) == numbers).to(fl.int64)


@composite(module="nn.functional")
def one_hot(tensor: fl.Tensor, num_classes: int = -1) -> fl.Tensor:
    if tensor.dtype != fl.int64:
        raise RuntimeError(f"[one_hot] expected an int64 tensor, got {tensor.dtype}")
    if tensor.device.type == "meta":
        if num_classes < 0:
            raise NotImplementedError("[one_hot] expected num_classes on meta tensors, got none")
        # Computed, not only allocated: compiled functions are recorded on such tensors.
        return _is_class(tensor, num_classes)
    if tensor.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("[one_hot] expected num_classes > 0 for an empty tensor, got none")
        return fl.empty((*tensor.shape, num_classes), dtype=fl.int64, device=tensor.device)
    if bool((all_values(tensor) < 0).any()):
        raise RuntimeError("[one_hot] expected classes that are not negative, got a negative one")
    most = int(all_values(tensor).max()) + 1
    if num_classes == -1:
        num_classes = most
    elif num_classes < 1:
        raise RuntimeError(f"[one_hot] expected num_classes > 0, got {num_classes}")
    elif num_classes < most:
        raise RuntimeError(f"[one_hot] expected classes below num_classes={num_classes}, got {most - 1}")
    return _is_class(tensor, num_classes)


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "_embedding_bag embedding")
tag("recomputable", "embedding")
tag("rowwise", "embedding nn_embedding")
