"""Vision transformers: an image as a sequence of patches."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau
from flambeau import nn
from flambeau.vision.models._weights import model, weights
from flambeau.vision.ops.misc import MLP, Conv2dNormActivation

ViT_B_16_Weights = weights("ViT_B_16_Weights", IMAGENET1K_V1="vit_b_16-c867db91.pth")
ViT_B_32_Weights = weights("ViT_B_32_Weights", IMAGENET1K_V1="vit_b_32-d86f8d99.pth")
ViT_L_16_Weights = weights("ViT_L_16_Weights", IMAGENET1K_V1="vit_l_16-852ce7e3.pth")
ViT_L_32_Weights = weights("ViT_L_32_Weights", IMAGENET1K_V1="vit_l_32-c7638314.pth")
ViT_H_14_Weights = weights("ViT_H_14_Weights", IMAGENET1K_SWAG_E2E_V1="vit_h_14_swag-80465313.pth")

__all__ = [
    "Encoder", "EncoderBlock", "ViT_B_16_Weights", "ViT_B_32_Weights", "ViT_H_14_Weights", "ViT_L_16_Weights",
    "ViT_L_32_Weights", "VisionTransformer", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32",
]  # fmt: skip


class MLPBlock(MLP):
    """The two linear layers after attention."""

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__(in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Attention and linear layers, each after a normalisation and beside a shortcut."""

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = partial(nn.LayerNorm, eps=1e-6),  # noqa: B008
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input: flambeau.Tensor) -> flambeau.Tensor:
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """The position of each patch, then the blocks."""

    def __init__(
        self,
        seq_length: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = partial(nn.LayerNorm, eps=1e-6),  # noqa: B008
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(flambeau.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        arguments = (num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{i}", EncoderBlock(*arguments)) for i in range(num_layers))
        )
        self.ln = norm_layer(hidden_dim)

    def forward(self, input: flambeau.Tensor) -> flambeau.Tensor:
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Patches and a class token through an encoder; the class token is classified."""

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        representation_size: int | None = None,
        norm_layer: Callable[..., nn.Module] = partial(nn.LayerNorm, eps=1e-6),  # noqa: B008
        conv_stem_configs: list[Any] | None = None,
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ValueError(
                f"[VisionTransformer] expected patches that fill the image, got {patch_size} in {image_size}"
            )
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.num_classes, self.representation_size = num_classes, representation_size
        if conv_stem_configs:
            self.conv_proj = self._stem(conv_stem_configs, hidden_dim)
        else:
            self.conv_proj = nn.Conv2d(3, hidden_dim, kernel_size=patch_size, stride=patch_size)  # type: ignore[assignment]
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(flambeau.zeros(1, 1, hidden_dim))
        self.encoder = Encoder(
            self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer
        )
        heads: OrderedDict[str, nn.Module] = OrderedDict()
        if representation_size is not None:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
        heads["head"] = nn.Linear(representation_size or hidden_dim, num_classes)
        self.heads = nn.Sequential(heads)
        self._initialise()

    @staticmethod
    def _stem(configs: list[Any], hidden_dim: int) -> nn.Sequential:
        stem, channels = nn.Sequential(), 3
        for i, config in enumerate(configs):
            stem.add_module(
                f"conv_bn_relu_{i}",
                Conv2dNormActivation(
                    channels,
                    config.out_channels,
                    kernel_size=config.kernel_size,
                    stride=config.stride,
                    norm_layer=config.norm_layer,
                    activation_layer=config.activation_layer,
                ),
            )
            channels = config.out_channels
        stem.add_module("conv_last", nn.Conv2d(channels, hidden_dim, kernel_size=1))
        return stem

    def _initialise(self) -> None:
        if isinstance(self.conv_proj, nn.Conv2d):
            fan_in = self.conv_proj.in_channels * self.patch_size**2
            nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / fan_in))
            nn.init.zeros_(self.conv_proj.bias)  # type: ignore[arg-type]
        if self.representation_size is not None:
            nn.init.trunc_normal_(self.heads.pre_logits.weight, std=math.sqrt(1 / self.hidden_dim))
            nn.init.zeros_(self.heads.pre_logits.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def _process_input(self, x: flambeau.Tensor) -> flambeau.Tensor:
        """Images as sequences of embedded patches."""
        for d in (2, 3):  # asserted in a way that tracers record
            flambeau._assert(x.shape[d] == self.image_size, f"[VisionTransformer] expected images of {self.image_size}")
        return self.conv_proj(x).flatten(2).permute(0, 2, 1)

    def forward(self, x: flambeau.Tensor) -> flambeau.Tensor:
        x = self._process_input(x)
        token = self.class_token.expand(x.shape[0], -1, -1)
        x = self.encoder(flambeau.cat([token, x], dim=1))
        return self.heads(x[:, 0])


def _build(patch: int, layers: int, heads: int, hidden: int, mlp: int, **options: Any) -> VisionTransformer:
    return VisionTransformer(options.pop("image_size", 224), patch, layers, heads, hidden, mlp, **options)


@model(ViT_B_16_Weights)
def vit_b_16(**options: Any) -> VisionTransformer:
    return _build(16, 12, 12, 768, 3072, **options)


@model(ViT_B_32_Weights)
def vit_b_32(**options: Any) -> VisionTransformer:
    return _build(32, 12, 12, 768, 3072, **options)


@model(ViT_L_16_Weights)
def vit_l_16(**options: Any) -> VisionTransformer:
    return _build(16, 24, 16, 1024, 4096, **options)


@model(ViT_L_32_Weights)
def vit_l_32(**options: Any) -> VisionTransformer:
    return _build(32, 24, 16, 1024, 4096, **options)


@model(ViT_H_14_Weights)
def vit_h_14(**options: Any) -> VisionTransformer:
    return _build(14, 32, 16, 1280, 5120, **options)
