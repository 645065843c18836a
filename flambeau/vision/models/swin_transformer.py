"""Swin transformers: attention within windows that are shifted in every second block."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models._weights import variants
from flambeau.vision.ops.misc import MLP, Permute
from flambeau.vision.ops.stochastic_depth import StochasticDepth

__all__ = ["PatchMerging", "PatchMergingV2", "ShiftedWindowAttention", "ShiftedWindowAttentionV2", "SwinTransformer"]


def _quarters(x: Tensor) -> Tensor:
    """The four pixels of every 2x2 patch of (..., H, W, C) side by side, padded to even sizes."""
    height, width = x.shape[-3:-1]
    x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
    parts = [x[..., row::2, column::2, :] for column in (0, 1) for row in (0, 1)]
    return flambeau.cat(parts, -1)


class PatchMerging(nn.Module):
    """Half the size, twice the channels; normalised before the reduction."""

    def __init__(self, dim: int, norm_layer: Callable[..., nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.dim = dim
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = norm_layer(4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.reduction(self.norm(_quarters(x)))


class PatchMergingV2(nn.Module):
    """The same, normalised after the reduction."""

    def __init__(self, dim: int, norm_layer: Callable[..., nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.dim = dim
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = norm_layer(2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.reduction(_quarters(x)))


def _windows(x: Tensor, size: list[int]) -> Tensor:
    """(N, H, W, C) as (N * windows, pixels of a window, C)."""
    n, height, width, channels = x.shape
    x = x.view(n, height // size[0], size[0], width // size[1], size[1], channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size[0] * size[1], channels)


def _shift_mask(x: Tensor, height: int, width: int, size: list[int], shift: list[int]) -> Tensor:
    """(windows, pixels, pixels): -100 between pixels that only the shift has brought into one window."""
    regions = x.new_zeros(1, height, width, 1)
    number = 0
    for rows in ((0, -size[0]), (-size[0], -shift[0]), (-shift[0], None)):
        for columns in ((0, -size[1]), (-size[1], -shift[1]), (-shift[1], None)):
            regions[:, rows[0] : rows[1], columns[0] : columns[1]] = number
            number += 1
    region = _windows(regions, size).squeeze(-1)
    apart = region.unsqueeze(1) - region.unsqueeze(2)
    return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


def shifted_window_attention(
    input: Tensor,
    qkv_weight: Tensor,
    proj_weight: Tensor,
    relative_position_bias: Tensor,
    window_size: list[int],
    num_heads: int,
    shift_size: list[int],
    attention_dropout: float = 0.0,
    dropout: float = 0.0,
    qkv_bias: Tensor | None = None,
    proj_bias: Tensor | None = None,
    logit_scale: Tensor | None = None,
    training: bool = True,
) -> Tensor:
    """Attention within the windows of (N, H, W, C). With a logit scale it is that of cosines."""
    n, height, width, channels = input.shape
    x = F.pad(input, (0, 0, 0, -width % window_size[1], 0, -height % window_size[0]))
    padded = x.shape[1:3]
    shift = [0 if window >= size else s for window, size, s in zip(window_size, padded, shift_size)]
    if sum(shift) > 0:
        x = flambeau.roll(x, (-shift[0], -shift[1]), (1, 2))
    count = (padded[0] // window_size[0]) * (padded[1] // window_size[1])
    x = _windows(x, window_size)
    if logit_scale is not None and qkv_bias is not None:  # keys of version 2 have no bias
        length = qkv_bias.numel() // 3
        qkv_bias = flambeau.cat([qkv_bias[:length], flambeau.zeros_like(qkv_bias[:length]), qkv_bias[2 * length :]])
    qkv = F.linear(x, qkv_weight, qkv_bias)
    q, k, v = qkv.reshape(x.shape[0], x.shape[1], 3, num_heads, channels // num_heads).permute(2, 0, 3, 1, 4).unbind(0)
    if logit_scale is not None:
        attention = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attention = attention * flambeau.clamp(logit_scale, max=math.log(100.0)).exp()
    else:
        attention = (q * (channels // num_heads) ** -0.5) @ k.transpose(-2, -1)
    attention = attention + relative_position_bias
    if sum(shift) > 0:
        mask = _shift_mask(x, padded[0], padded[1], window_size, shift)
        shape = (n, count, num_heads, x.shape[1], x.shape[1])
        attention = (attention.view(shape) + mask[:, None]).view(-1, *shape[2:])
    attention = F.dropout(F.softmax(attention, dim=-1), p=attention_dropout, training=training)
    x = F.dropout(F.linear((attention @ v).transpose(1, 2).reshape(x.shape), proj_weight, proj_bias), p=dropout, training=training)  # fmt: skip
    x = x.view(n, padded[0] // window_size[0], padded[1] // window_size[1], window_size[0], window_size[1], channels)
    x = x.permute(0, 1, 3, 2, 4, 5).reshape(n, padded[0], padded[1], channels)
    if sum(shift) > 0:
        x = flambeau.roll(x, (shift[0], shift[1]), (1, 2))
    return x[:, :height, :width, :].contiguous()


class ShiftedWindowAttention(nn.Module):
    """Attention in windows with a bias for every relative position, from a table."""

    def __init__(
        self,
        dim: int,
        window_size: list[int],
        shift_size: list[int],
        num_heads: int,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if len(window_size) != 2 or len(shift_size) != 2:
            raise ValueError(f"[{type(self).__name__}] expected two sizes each, got {window_size} and {shift_size}")
        self.window_size, self.shift_size, self.num_heads = window_size, shift_size, num_heads
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim, bias=proj_bias)
        self.define_relative_position_bias_table()
        self.define_relative_position_index()

    def define_relative_position_bias_table(self) -> None:
        positions = (2 * self.window_size[0] - 1) * (2 * self.window_size[1] - 1)
        self.relative_position_bias_table = nn.Parameter(flambeau.zeros(positions, self.num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def define_relative_position_index(self) -> None:
        height, width = self.window_size
        places = flambeau.stack(flambeau.meshgrid(flambeau.arange(height), flambeau.arange(width), indexing="ij"))
        places = flambeau.flatten(places, 1)
        apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0).contiguous()
        index = (apart[..., 0] + height - 1) * (2 * width - 1) + apart[..., 1] + width - 1
        self.register_buffer("relative_position_index", index.flatten())

    def _biases(self, table: Tensor) -> Tensor:
        pixels = self.window_size[0] * self.window_size[1]
        return table[self.relative_position_index].view(pixels, pixels, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def get_relative_position_bias(self) -> Tensor:
        return self._biases(self.relative_position_bias_table)

    def forward(self, x: Tensor) -> Tensor:
        return shifted_window_attention(
            x, self.qkv.weight, self.proj.weight, self.get_relative_position_bias(), self.window_size, self.num_heads,
            self.shift_size, self.attention_dropout, self.dropout, self.qkv.bias, self.proj.bias,
            getattr(self, "logit_scale", None), self.training,
        )  # fmt: skip


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """Attention of cosines, with biases that a small network makes of logarithmic distances."""

    def __init__(self, dim: int, window_size: list[int], shift_size: list[int], num_heads: int, **options: Any) -> None:
        super().__init__(dim, window_size, shift_size, num_heads, **options)
        self.logit_scale = nn.Parameter(flambeau.log(10 * flambeau.ones((num_heads, 1, 1))))
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 512, bias=True), nn.ReLU(inplace=True), nn.Linear(512, num_heads, bias=False)
        )
        if self.qkv.bias is not None:
            length = self.qkv.bias.numel() // 3
            self.qkv.bias[length : 2 * length].data.zero_()

    def define_relative_position_bias_table(self) -> None:
        axes = [flambeau.arange(-(size - 1), size, dtype=flambeau.float32) for size in self.window_size]
        table = flambeau.stack(flambeau.meshgrid(axes, indexing="ij")).permute(1, 2, 0).contiguous().unsqueeze(0)
        table = table / flambeau.tensor([size - 1.0 for size in self.window_size]) * 8
        table = flambeau.sign(table) * flambeau.log2(flambeau.abs(table) + 1.0) / 3.0
        self.register_buffer("relative_coords_table", table)

    def get_relative_position_bias(self) -> Tensor:
        table = self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)
        return 16 * flambeau.sigmoid(self._biases(table))


class SwinTransformerBlock(nn.Module):
    """Attention and a small network, each normalised before and added."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window_size: list[int],
        shift_size: list[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.0,
        norm_layer: Callable[..., nn.Module] = nn.LayerNorm,
        attn_layer: Callable[..., nn.Module] = ShiftedWindowAttention,
    ) -> None:
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = attn_layer(
            dim, window_size, shift_size, num_heads, attention_dropout=attention_dropout, dropout=dropout
        )
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.norm2 = norm_layer(dim)
        self.mlp = MLP(dim, [int(dim * mlp_ratio), dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.mlp.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.normal_(module.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class SwinTransformerBlockV2(SwinTransformerBlock):
    """The same, normalised after."""

    def __init__(self, *args: Any, attn_layer: Any = ShiftedWindowAttentionV2, **kwargs: Any) -> None:
        super().__init__(*args, attn_layer=attn_layer, **kwargs)  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


class SwinTransformer(nn.Module):
    """Patches, stages of blocks with merging between them, and a classifier."""

    def __init__(
        self,
        patch_size: list[int],
        embed_dim: int,
        depths: list[int],
        num_heads: list[int],
        window_size: list[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.1,
        num_classes: int = 1000,
        norm_layer: Callable[..., nn.Module] | None = None,
        block: Callable[..., nn.Module] | None = None,
        downsample_layer: Callable[..., nn.Module] = PatchMerging,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        block, norm_layer = block or SwinTransformerBlock, norm_layer or partial(nn.LayerNorm, eps=1e-5)
        stem = nn.Conv2d(3, embed_dim, kernel_size=tuple(patch_size), stride=tuple(patch_size))
        layers: list[nn.Module] = [nn.Sequential(stem, Permute([0, 2, 3, 1]), norm_layer(embed_dim))]
        total, count = sum(depths), 0
        for i, (depth, heads) in enumerate(zip(depths, num_heads)):
            width = embed_dim * 2**i
            blocks = []
            for k in range(depth):
                shift = [0 if k % 2 == 0 else size // 2 for size in window_size]
                drop = stochastic_depth_prob * count / (total - 1)
                blocks.append(
                    block(
                        width, heads, window_size=window_size, shift_size=shift, mlp_ratio=mlp_ratio, dropout=dropout,
                        attention_dropout=attention_dropout, stochastic_depth_prob=drop, norm_layer=norm_layer,
                    )
                )  # fmt: skip
                count += 1
            layers.append(nn.Sequential(*blocks))
            if i + 1 < len(depths):
                layers.append(downsample_layer(width, norm_layer))
        self.features = nn.Sequential(*layers)
        features = embed_dim * 2 ** (len(depths) - 1)
        self.norm = norm_layer(features)
        self.permute = Permute([0, 3, 1, 2])
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten(1)
        self.head = nn.Linear(features, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flatten(self.avgpool(self.permute(self.norm(self.features(x))))))


def _make(row: tuple[int, list[int], list[int], int, float], second: bool = False, **options: Any) -> SwinTransformer:
    """A row is the width, the depths and heads of the stages, the window and the probability of dropping a block."""
    width, depths, heads, window, drop = row
    if second:
        options = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2, **options}
    options.setdefault("stochastic_depth_prob", drop)
    return SwinTransformer([4, 4], width, depths, heads, [window, window], **options)


__all__ += variants(
    globals(),
    _make,
    swin_t=(96, [2, 2, 6, 2], [3, 6, 12, 24], 7, 0.2),
    swin_s=(96, [2, 2, 18, 2], [3, 6, 12, 24], 7, 0.3),
    swin_b=(128, [2, 2, 18, 2], [4, 8, 16, 32], 7, 0.5),
)
__all__ += variants(
    globals(),
    partial(_make, second=True),
    swin_v2_t=(96, [2, 2, 6, 2], [3, 6, 12, 24], 8, 0.2),
    swin_v2_s=(96, [2, 2, 18, 2], [3, 6, 12, 24], 8, 0.3),
    swin_v2_b=(128, [2, 2, 18, 2], [4, 8, 16, 32], 8, 0.5),
)
