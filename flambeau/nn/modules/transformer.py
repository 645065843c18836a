"""The transformer: encoder and decoder layers, stacks of them, and both together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.init import xavier_uniform_
from flambeau.nn.modules.attention import MultiheadAttention
from flambeau.nn.modules.container import ModuleList
from flambeau.nn.modules.dropout import Dropout
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.normalization import LayerNorm
from flambeau.ops.attention.records import _float_mask

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip

Activation = str | Callable[[Tensor], Tensor]


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"[Transformer] expected the activation relu or gelu, got {activation}")
    return getattr(F, activation)


def _get_clones(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _may_leave_out_padding(layer: Any) -> bool:
    """Whether PyTorch has a path for sequences of several lengths through layers like this one."""
    if not isinstance(layer, TransformerEncoderLayer) or layer.norm_first or not layer.activation_relu_or_gelu:
        return False
    attention = layer.self_attn
    return (
        attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and attention.num_heads % 2 == 0
        and layer.norm1.eps == layer.norm2.eps
    )


def _causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """Minus infinity above the diagonal, zero elsewhere."""
    return flambeau.triu(flambeau.full((size, size), float("-inf"), dtype=dtype, device=device), diagonal=1)


def _is_causal(mask: Tensor | None, is_causal: bool | None, size: int | None) -> bool:
    """Whether a mask shuts out exactly what comes later; told by the caller or seen from the mask."""
    if is_causal is not None or mask is None or size is None:
        return bool(is_causal)
    wanted = _causal_mask(size, mask.device, mask.dtype) if mask.is_floating_point() else None
    if wanted is None:
        wanted = flambeau.ones(size, size, dtype=flambeau.bool, device=mask.device).triu(1)
    return mask.shape == wanted.shape and bool((mask == wanted).all())


def _length(src: Tensor, batch_first: bool) -> int | None:
    if src.dim() not in (2, 3):
        return None
    return src.size(0 if src.dim() == 2 or not batch_first else 1)


class _Layer(Module):
    """What encoder and decoder layers share: attentions, the feed-forward part, and a norm and a dropout for each."""

    __constants__ = ["norm_first"]  # noqa: RUF012
    _attentions: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"bias": bias, "device": device, "dtype": dtype}
        for name in self._attentions:
            attention = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        parts = range(1, len(self._attentions) + 2)
        for part in parts:
            setattr(self, f"norm{part}", LayerNorm(d_model, eps=layer_norm_eps, **options))
        for part in parts:
            setattr(self, f"dropout{part}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation
        relu = self.activation is F.relu or isinstance(self.activation, flambeau.nn.ReLU)
        gelu = self.activation is F.gelu or isinstance(self.activation, flambeau.nn.GELU)
        self.activation_relu_or_gelu = 1 if relu else 2 if gelu else 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a layer norm.

    - d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype.

    >>> nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(flambeau.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        padding = _float_mask("src_key_padding_mask", src_key_padding_mask, src.dtype)
        src_mask = _float_mask("src_mask", src_mask, src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, padding, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, padding, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _sa_block(self, x: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Tensor:
        x = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal
        )[0]
        return self.dropout1(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the memory of the encoder, and a feed-forward network.

    - d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype.

    >>> nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)(flambeau.randn(1, 3, 8), flambeau.randn(1, 5, 8)).shape
    torch.Size([1, 3, 8])
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(self, x: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Tensor:
        x = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )[0]
        return self.dropout1(x)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False
    ) -> Tensor:
        x = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )[0]
        return self.dropout2(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._feed_forward(x))


class TransformerEncoder(Module):
    """A stack of encoder layers.

    - encoder_layer: the layer, copied num_layers times; norm: applied at the end; enable_nested_tensor, mask_check.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)(flambeau.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    __constants__ = ["norm"]  # noqa: RUF012

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor and _may_leave_out_padding(encoder_layer)
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        padding = _float_mask("src_key_padding_mask", src_key_padding_mask, src.dtype)
        mask = _float_mask("mask", mask, src.dtype)
        batch_first = getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)
        causal = _is_causal(mask, is_causal, _length(src, batch_first))
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        if padding is not None and self._leaves_out_padding(src, mask, padding):
            output = output.masked_fill((padding != 0).unsqueeze(-1), 0.0)
        return output if self.norm is None else self.norm(output)

    def _leaves_out_padding(self, src: Tensor, mask: Tensor | None, padding: Tensor) -> bool:
        """Whether what comes out for padding is zero: PyTorch computes inference on sequences without it."""
        first = self.layers[0]
        if not self.use_nested_tensor or first.training or src.dim() != 3 or mask is not None:
            return False
        if not flambeau.backends.mha.get_fastpath_enabled() or flambeau.is_autocast_enabled():
            return False
        if flambeau.is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in first.parameters())):
            return False
        if not self.mask_check:
            return True
        # Only padding at the ends can be left out.
        return not flambeau.compiler.is_compiling() and not bool((padding.diff(dim=1) > 0).any())


class TransformerDecoder(Module):
    """A stack of decoder layers.

    - decoder_layer: the layer, copied num_layers times; norm: applied at the end.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> nn.TransformerDecoder(layer, 2)(flambeau.randn(1, 3, 8), flambeau.randn(1, 5, 8)).shape
    torch.Size([1, 3, 8])
    """

    __constants__ = ["norm"]  # noqa: RUF012

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch_first = getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)
        causal = _is_causal(tgt_mask, tgt_is_causal, _length(tgt, batch_first))
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """Encoder and decoder of "Attention is all you need".

    - d_model, nhead: width and heads; num_encoder_layers, num_decoder_layers; dim_feedforward; dropout; activation.
    - custom_encoder, custom_decoder; layer_norm_eps; batch_first; norm_first: normalize before each part; bias; device, dtype.

    >>> m = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> m(flambeau.randn(1, 5, 8), flambeau.randn(1, 3, 8)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        norm = {"eps": layer_norm_eps, "bias": bias, **options}
        self.encoder = custom_encoder
        if custom_encoder is None:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*layer, **options), num_encoder_layers, LayerNorm(d_model, **norm)
            )
        self.decoder = custom_decoder
        if custom_decoder is None:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*layer, **options), num_decoder_layers, LayerNorm(d_model, **norm)
            )
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        if src.dim() == 3:
            batch = 0 if self.batch_first else 1
            if src.size(batch) != tgt.size(batch):
                raise RuntimeError(
                    f"[Transformer] expected src and tgt of one batch size, got {src.size(batch)} and {tgt.size(batch)}"
                )
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError(
                f"[Transformer] expected {self.d_model} features, got {src.size(-1)} in src and {tgt.size(-1)} in tgt"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A mask of (sz, sz) that shuts out what comes later."""
        return _causal_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                xavier_uniform_(parameter)
