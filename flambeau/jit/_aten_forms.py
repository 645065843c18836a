"""Operators of ATen that archives contain and that have another form here: functions of `nn.functional` with ATen's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau


def _functional() -> Any:
    from flambeau.nn import functional

    return functional


def _resized(mode: str, has_align: bool) -> Callable[..., Any]:
    """`upsample_*` in both forms: with scale factors as a list, or a size and a scale for each dimension."""

    def call(x: Any, size: Any, *rest: Any) -> Any:
        align = rest[0] if has_align else None
        rest = rest[1:] if has_align else rest
        scales = rest[0] if rest and isinstance(rest[0], list) else None
        if size is not None:
            return _functional().interpolate(x, size=list(size), mode=mode, align_corners=align)
        return _functional().interpolate(x, scale_factor=scales, mode=mode, align_corners=align)

    return call


def _antialiased(mode: str) -> Callable[..., Any]:
    def call(x: Any, size: Any, align: bool, *scales: Any) -> Any:
        return _functional().interpolate(
            x,
            size=size,
            scale_factor=scales[0] if size is None else None,
            mode=mode,
            align_corners=align,
            antialias=True,
        )

    return call


def _padded(mode: str) -> Callable[..., Any]:
    return lambda x, padding: _functional().pad(x, padding, mode=mode)


def _grid_sampler(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return _functional().grid_sample(x, grid, modes[mode], paddings[padding], align)


def _feature_dropout(x: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x
    if p == 1:
        return x * 0
    mask = flambeau.empty([*x.shape[:2], *([1] * (x.dim() - 2))], dtype=x.dtype, device=x.device).bernoulli_(1 - p)
    return x * mask / (1 - p)


def _unique2(x: Any, sort: bool = True, inverse: bool = False, counts: bool = False) -> Any:
    values, indices, numbers = flambeau.unique(x, sorted=sort, return_inverse=True, return_counts=True)
    return values, indices, numbers


def _rnn_cell(name: str) -> Callable[..., Any]:
    """Cells by the arithmetic that defines them."""

    def lstm(x: Any, state: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
        gates = _functional().linear(x, wi, bi) + _functional().linear(state[0], wh, bh)
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def gru(x: Any, h: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
        ir, iz, inew = _functional().linear(x, wi, bi).chunk(3, 1)
        hr, hz, hnew = _functional().linear(h, wh, bh).chunk(3, 1)
        r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
        n = (inew + r * hnew).tanh()
        return n + z * (h - n)

    def plain(x: Any, h: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
        total = _functional().linear(x, wi, bi) + _functional().linear(h, wh, bh)
        return total.tanh() if name == "rnn_tanh_cell" else total.relu()

    return {"lstm_cell": lstm, "gru_cell": gru}.get(name, plain)


def _convolution_mode(x: Any, w: Any, b: Any, stride: Any, padding: str, dilation: Any, groups: int) -> Any:
    function = (flambeau.conv1d, flambeau.conv2d, flambeau.conv3d)[len(stride) - 1]
    return function(x, w, b, stride, padding, dilation, groups)


FORMS: dict[str, Callable[..., Any]] = {
    "_convolution_mode": _convolution_mode,
    "glu": lambda x, dim=-1: _functional().glu(x, dim),
    "adaptive_max_pool1d": lambda x, size: _functional().adaptive_max_pool1d(x, size, True),
    "adaptive_max_pool2d": lambda x, size: _functional().adaptive_max_pool2d(x, size, True),
    "adaptive_max_pool3d": lambda x, size: _functional().adaptive_max_pool3d(x, size, True),
    "_adaptive_avg_pool2d": lambda x, size: _functional().adaptive_avg_pool2d(x, size),
    "_adaptive_avg_pool3d": lambda x, size: _functional().adaptive_avg_pool3d(x, size),
    "im2col": lambda x, k, d, p, s: _functional().unfold(x, k, d, p, s),
    "col2im": lambda x, o, k, d, p, s: _functional().fold(x, o, k, d, p, s),
    "grid_sampler": _grid_sampler,
    "affine_grid_generator": lambda theta, size, align: _functional().affine_grid(theta, size, align),
    "feature_dropout": _feature_dropout,
    "feature_dropout_": lambda x, p, train: x.copy_(_feature_dropout(x, p, train)),
    "dropout_": lambda x, p, train: _functional().dropout(x, p, train, True),
    "alpha_dropout": lambda x, p, train: _functional().alpha_dropout(x, p, train),
    "feature_alpha_dropout": lambda x, p, train: _functional().feature_alpha_dropout(x, p, train),
    "log_sigmoid": lambda x: _functional().logsigmoid(x),
    "relu6": lambda x: _functional().relu6(x),
    "relu6_": lambda x: _functional().relu6(x, True),
    "silu_": lambda x: _functional().silu(x, True),
    "_unique2": _unique2,
    "pad_sequence": lambda s, b=False, v=0.0, side="right": flambeau.nn.utils.rnn.pad_sequence(s, b, v, side),
    "native_layer_norm": lambda x, s, w, b, e: (_functional().layer_norm(x, s, w, b, e), x.mean(-1), x.var(-1)),
    "_safe_softmax": lambda x, dim, dtype=None: x.softmax(dim),
    "softmax": lambda x, dim, dtype=None: flambeau.softmax(x, dim, **_dtype(dtype)),
    "log_softmax": lambda x, dim, dtype=None: flambeau.log_softmax(x, dim, **_dtype(dtype)),
    "upsample_nearest1d": _resized("nearest", False),
    "upsample_nearest2d": _resized("nearest", False),
    "upsample_nearest3d": _resized("nearest", False),
    "_upsample_nearest_exact1d": _resized("nearest-exact", False),
    "_upsample_nearest_exact2d": _resized("nearest-exact", False),
    "_upsample_nearest_exact3d": _resized("nearest-exact", False),
    "upsample_linear1d": _resized("linear", True),
    "upsample_bilinear2d": _resized("bilinear", True),
    "upsample_bicubic2d": _resized("bicubic", True),
    "upsample_trilinear3d": _resized("trilinear", True),
    "_upsample_bilinear2d_aa": _antialiased("bilinear"),
    "_upsample_bicubic2d_aa": _antialiased("bicubic"),
    "max_unpool2d": lambda x, i, size: _functional().max_unpool2d(x, i, 1, 1, 0, size),
}


def _dtype(code: Any) -> dict[str, Any]:
    from flambeau.jit._values import dtype_of

    return {} if code is None else {"dtype": dtype_of(code)}


for _dims in (1, 2, 3):
    FORMS[f"reflection_pad{_dims}d"] = _padded("reflect")
    FORMS[f"replication_pad{_dims}d"] = _padded("replicate")
for _cell in ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"):
    FORMS[_cell] = _rnn_cell(_cell)
