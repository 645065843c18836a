"""Copies in another order: flip, roll, repeat, triangles, diagonals, padding, shuffling of channels.

The kernels that move data are native (csrc/ops/rearranging.cpp); the rest is written in terms of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, tag, vjp

BOTH = ";nn.functional"  # one function, found in the top module and in nn.functional

native("flip(Tensor self, int[] dims) -> Tensor")
native("roll(Tensor self, int[1] shifts, int[1] dims=[]) -> Tensor")
native("repeat(Tensor self, int[] repeats) -> Tensor", function=False)


@vjp("flip")
def flip_vjp(g: fl.Tensor, dims: list[int]) -> fl.Tensor:
    return g.flip(dims)


@vjp("roll")
def roll_vjp(g: fl.Tensor, shifts: list[int], dims: list[int]) -> fl.Tensor:
    return g.roll([-s for s in shifts], dims)


@vjp("repeat")
def repeat_vjp(g: fl.Tensor, self_sizes: fl.Size, repeats: list[int]) -> fl.Tensor:
    lead = len(repeats) - len(self_sizes)
    sizes = [1] * lead + list(self_sizes)
    if 0 in repeats:
        return fl.zeros(self_sizes, dtype=g.dtype, device=g.device)
    split = g.reshape([n for r, s in zip(repeats, sizes) for n in (r, s)])
    return split.sum(list(range(0, 2 * len(sizes), 2))).reshape(self_sizes) if sizes else g


@composite()
def fliplr(self: fl.Tensor) -> fl.Tensor:
    if self.dim() < 2:
        raise RuntimeError(
            f"[fliplr] expected at least 2 dimensions, got shape {tuple(self.shape)}: Input must be >= 2-d."
        )
    return fl.flip(self, (1,))


@composite()
def flipud(self: fl.Tensor) -> fl.Tensor:
    if self.dim() < 1:
        raise RuntimeError("[flipud] expected at least 1 dimension, got a 0-d tensor: Input must be >= 1-d.")
    return fl.flip(self, (0,))


@composite("rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor")
def rot90(self: fl.Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> fl.Tensor:
    if len(dims) != 2:
        raise RuntimeError(f"[rot90] expected two dimensions to rotate, got {tuple(dims)}")
    if self.dim() < 2:
        raise RuntimeError(f"[rot90] expected at least 2 dimensions, got shape {tuple(self.shape)}")
    if not all(-self.dim() <= d < self.dim() for d in dims):
        raise RuntimeError(f"[rot90] expected dimensions of a {self.dim()}-d tensor, got {tuple(dims)}")
    a, b = (d % self.dim() for d in dims)
    if a == b:
        raise RuntimeError(f"[rot90] expected two different dimensions, got {tuple(dims)}")
    k %= 4
    if k == 0:
        return self.clone()
    if k == 2:
        return fl.flip(self, (a, b))
    return fl.flip(self, (b if k == 1 else a,)).transpose(a, b)


@composite()
def tile(self: fl.Tensor, dims: list[int]) -> fl.Tensor:
    return self.repeat([1] * (self.dim() - len(dims)) + list(dims))


native("repeat_interleave.Tensor(Tensor repeats, *, int? output_size=None) -> Tensor")


@composite("repeat_interleave.self_int")
def repeat_interleave_int(
    self: fl.Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> fl.Tensor:
    if repeats < 0:
        raise RuntimeError(f"[repeat_interleave] expected repeats that are not negative, got {repeats}")
    if dim is None:
        self, dim = self.flatten(), 0
    elif self.dim() == 0:
        self = self.reshape(1)
    size = self.shape[dim]
    if output_size is not None and output_size != size * repeats:
        raise RuntimeError(f"[repeat_interleave] expected output_size {size * repeats}, got {output_size}")
    dim %= self.dim()
    shape = list(self.shape)
    wide = self.unsqueeze(dim + 1).expand(*shape[: dim + 1], repeats, *shape[dim + 1 :])
    return wide.clone(memory_format=fl.contiguous_format).view(shape[:dim] + [size * repeats] + shape[dim + 1 :])


@composite("repeat_interleave.self_Tensor")
def repeat_interleave_tensor(
    self: fl.Tensor, repeats: fl.Tensor, dim: int | None = None, *, output_size: int | None = None
) -> fl.Tensor:
    if dim is None:
        self, dim = self.flatten(), 0
    elif self.dim() == 0:
        self = self.reshape(1)
    size = self.shape[dim]
    if repeats.dim() > 1:
        raise RuntimeError(f"[repeat_interleave] expected a number or a vector of repeats, got {tuple(repeats.shape)}")
    if repeats.numel() == 1:
        repeats = repeats.reshape(1).expand(size)
    elif repeats.numel() != size:
        raise RuntimeError(f"[repeat_interleave] expected {size} repeats for dimension {dim}, got {repeats.numel()}")
    return self.index_select(dim, fl.repeat_interleave(repeats, output_size=output_size))


# ---------------------------------------------------------------- triangles and diagonals

native("tril(Tensor self, int diagonal=0) -> Tensor", inplace=True, out=True)
native("triu(Tensor self, int diagonal=0) -> Tensor", inplace=True, out=True)
native(
    "tril_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None, layout? layout=None, bool? pin_memory=None) -> Tensor"
)
native(
    "triu_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None, layout? layout=None, bool? pin_memory=None) -> Tensor"
)
native("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor")
native("trace(Tensor self) -> Tensor")


@vjp("tril")
def tril_vjp(g: fl.Tensor, diagonal: int) -> fl.Tensor:
    return g.tril(diagonal)


@vjp("triu")
def triu_vjp(g: fl.Tensor, diagonal: int) -> fl.Tensor:
    return g.triu(diagonal)


@vjp("diag_embed")
def diag_embed_vjp(g: fl.Tensor, offset: int, dim1: int, dim2: int) -> fl.Tensor:
    return g.diagonal(offset, dim1, dim2)


@vjp("trace")
def trace_vjp(g: fl.Tensor, self_sizes: fl.Size) -> fl.Tensor:
    return fl._ops._diagonal_backward(g.expand(min(self_sizes)), self_sizes, 0, 0, 1)


@composite(out=True)
def diag(self: fl.Tensor, diagonal: int = 0) -> fl.Tensor:
    if self.dim() == 1:
        return fl.diag_embed(self, diagonal)
    if self.dim() == 2:
        return fl.diagonal(self, diagonal).clone()
    raise RuntimeError(f"[diag] expected a vector or a matrix, got shape {tuple(self.shape)}")


@composite()
def diagflat(self: fl.Tensor, offset: int = 0) -> fl.Tensor:
    return fl.diag_embed(self.flatten(), offset)


# ---------------------------------------------------------------- padding

native("constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor", method=False)


@vjp("constant_pad_nd")
def constant_pad_nd_vjp(g: fl.Tensor, pad: list[int]) -> fl.Tensor:
    return fl.constant_pad_nd(g, [-p for p in pad])


native("_edge_pad(Tensor self, int[] pad, str mode) -> Tensor", method=False)
native("_edge_pad_backward(Tensor grad, int[] sizes, int[] pad, str mode) -> Tensor", method=False)


@vjp("_edge_pad")
def edge_pad_vjp(g: fl.Tensor, self_sizes: fl.Size, pad: list[int], mode: str) -> fl.Tensor:
    return fl._ops._edge_pad_backward(g, self_sizes, pad, mode)


@vjp("_edge_pad_backward")
def edge_pad_backward_vjp(g: fl.Tensor, pad: list[int], mode: str) -> fl.Tensor:
    return fl._ops._edge_pad(g, pad, mode)


@composite(module="nn.functional")
def pad(input: fl.Tensor, pad: list[int], mode: str = "constant", value: float | None = None) -> fl.Tensor:
    if len(pad) % 2:
        raise RuntimeError(f"[pad] expected an even number of paddings, got {tuple(pad)}")
    if len(pad) > 2 * input.dim():
        raise RuntimeError(
            f"[pad] expected at most two paddings for each of {input.dim()} dimensions, got {tuple(pad)}"
        )
    if mode == "constant":
        return fl.constant_pad_nd(input, pad, 0 if value is None else value)
    if value:
        raise RuntimeError(f"[pad] expected no value for mode {mode!r}, got {value}")
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"[pad] expected mode constant, reflect, replicate or circular, got {mode!r}")
    pairs = len(pad) // 2
    if not 1 <= pairs <= 3 or input.dim() not in (pairs + 1, pairs + 2):
        raise NotImplementedError(
            f"[pad] expected paddings of all spatial dimensions for mode {mode!r}, "
            f"got {tuple(pad)} for shape {tuple(input.shape)}"
        )
    if mode != "circular" and 0 in input.shape[1 if input.dim() == pairs + 2 else 0 :]:
        raise RuntimeError(
            f"[pad] expected sizes other than zero apart from the batch, got shape {tuple(input.shape)}: Expected {pairs + 1}D or "
            f"{pairs + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions"
        )
    for k in range(pairs):
        dim = input.dim() - 1 - k
        low, high = pad[2 * k], pad[2 * k + 1]
        size = input.shape[dim]
        most = {"reflect": size - 1, "circular": size, "replicate": max(low, high)}[mode]
        if max(low, high) > most:
            raise RuntimeError(
                f"[pad] expected paddings of at most {most} at dimension {dim}, got {low} and {high}: Padding size should be less than the corresponding input dimension"
            )
        if (size + low + high <= 0 and mode != "circular") or size + low + high < 0:
            raise RuntimeError(f"[pad] expected a positive size at dimension {dim}, got {size} with {low} and {high}")
    if mode == "circular" and min(pad) < 0:
        # Negative paddings crop; what wraps around is what is left.
        for k in range(pairs):
            low, high = min(pad[2 * k], 0), min(pad[2 * k + 1], 0)
            dim = input.dim() - 1 - k
            input = input.narrow(dim, -low, input.shape[dim] + low + high)
        pad = [max(p, 0) for p in pad]
    return fl._ops._edge_pad(input, pad, mode)


# ---------------------------------------------------------------- channels and pixels


def _as_laid_out(source: fl.Tensor, result: fl.Tensor) -> fl.Tensor:
    """The result channel by channel, or with channels last where the source has them last."""
    channels_last = source.dim() == 4 and source.is_contiguous(memory_format=fl.channels_last)
    if not channels_last or source.is_contiguous():
        return result
    return result.contiguous(memory_format=fl.channels_last)


@composite(method=False, module=BOTH)
def pixel_shuffle(self: fl.Tensor, upscale_factor: int) -> fl.Tensor:
    r = upscale_factor
    if self.dim() < 3:
        raise RuntimeError(f"[pixel_shuffle] expected at least 3 dimensions, got shape {tuple(self.shape)}")
    if r <= 0:
        raise RuntimeError(f"[pixel_shuffle] expected a positive upscale factor, got {r}")
    *batch, c, h, w = self.shape
    if c % (r * r):
        raise RuntimeError(f"[pixel_shuffle] expected channels divisible by {r * r}, got {c}")
    n = len(batch)
    split = self.reshape(*batch, c // (r * r), r, r, h, w)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return _as_laid_out(self, split.permute(order).reshape(*batch, c // (r * r), h * r, w * r))


@composite(method=False, module=BOTH)
def pixel_unshuffle(self: fl.Tensor, downscale_factor: int) -> fl.Tensor:
    r = downscale_factor
    if self.dim() < 3:
        raise RuntimeError(f"[pixel_unshuffle] expected at least 3 dimensions, got shape {tuple(self.shape)}")
    if r <= 0:
        raise RuntimeError(f"[pixel_unshuffle] expected a positive downscale factor, got {r}")
    *batch, c, h, w = self.shape
    if h % r or w % r:
        raise RuntimeError(f"[pixel_unshuffle] expected height and width divisible by {r}, got {h} and {w}")
    n = len(batch)
    split = self.reshape(*batch, c, h // r, r, w // r, r)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return _as_laid_out(self, split.permute(order).reshape(*batch, c * r * r, h // r, w // r))


@composite(method=False, module=BOTH)
@composite("native_channel_shuffle", method=False, module=BOTH)
def channel_shuffle(self: fl.Tensor, groups: int) -> fl.Tensor:
    if self.dim() < 3:
        raise RuntimeError(f"[channel_shuffle] expected at least 3 dimensions, got shape {tuple(self.shape)}")
    if groups <= 0:
        raise RuntimeError(
            f"[channel_shuffle] expected a positive number of groups, got {groups}: Number of groups to divide channels in must be "
            "positive."
        )
    b, c, *rest = self.shape
    if c % groups:
        raise RuntimeError(f"[channel_shuffle] expected channels divisible by {groups} groups, got {c}")
    return self.reshape(b, groups, c // groups, *rest).transpose(1, 2).reshape(b, c, *rest)


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "constant_pad_nd flip repeat")
tag("data_dependent", "repeat_interleave.Tensor")
tag("pads", "pad")
tag("moves", "channel_shuffle flip pixel_shuffle repeat roll tile")
autocast("float32", "trace", on="cpu")
