"""Summaries: the messages that hold one scalar, histogram, picture, sound, text, curve or table of hyperparameters.

Each function gives the bytes of a `Summary`, ready to be put into an event.
"""

from __future__ import annotations

import time
from typing import Any

import flambeau
from flambeau._C import Tensor
from flambeau.utils.tensorboard import _media, _wire

_FLOAT, _STRING = 1, 7  # element types of TensorFlow


def _summary(*values: bytes) -> bytes:
    return b"".join(_wire.data(1, value) for value in values)


def _plugin(name: str, content: bytes = b"") -> bytes:
    return _wire.data(9, _wire.data(1, _wire.data(1, name) + (_wire.data(2, content) if content else b"")))


def _tensor(kind: int, shape: Any, body: bytes) -> bytes:
    dims = b"".join(_wire.data(2, _wire.integer(1, n)) for n in shape)
    return _wire.data(8, _wire.integer(1, kind) + _wire.data(2, dims) + body)


def number(value: Any) -> float:
    """A single number from a tensor, an array or a number."""
    if hasattr(value, "item"):
        if getattr(value, "numel", None) is not None and value.numel() != 1:
            raise ValueError(f"[add_scalar] expected one number, got a tensor of shape {tuple(value.shape)}")
        value = value.item()
    return float(value)


def scalar(name: str, value: Any, new_style: bool = False, double_precision: bool = False) -> bytes:
    value = number(value)
    tag = _wire.data(1, name)
    if not new_style:
        return _summary(tag + _wire.single(2, value))
    if double_precision:
        body = _tensor(2, (), _wire.doubles(6, [value]))
    else:
        body = _tensor(_FLOAT, (), _wire.floats(5, [value]))
    return _summary(tag + body + _plugin("scalars"))


def tensor_proto(name: str, value: Tensor) -> bytes:
    flat = value.detach().cpu().to(flambeau.float32)
    return _summary(
        _wire.data(1, name) + _tensor(_FLOAT, flat.shape, _wire.floats(5, flat.flatten().tolist())) + _plugin("tensor")
    )


# ---------------------------------------------------------------------------------------------- histograms


def default_bins() -> list[float]:
    """Limits that grow by a tenth, mirrored at zero."""
    limits = []
    limit = 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return [*(-x for x in reversed(limits)), 0.0, *limits]


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> bytes:
    """Counts of values between limits: given ones, a number of equal ones, or the name of one of NumPy's rules."""
    flat = _media.as_tensor(values).flatten().to(flambeau.float64)
    if flat.numel() == 0:
        raise ValueError("[add_histogram] expected values, got an empty tensor")
    if not bool(flambeau.isfinite(flat).all()):
        raise ValueError("[add_histogram] expected finite values, got NaN or infinity")
    low, high = flat.min().item(), flat.max().item()
    limits = _limits(flat, bins, low, high)
    edges = flambeau.tensor(limits, dtype=flambeau.float64)
    inside = flat[(flat >= edges[0]) & (flat <= edges[-1])]
    # The last interval includes its upper end.
    which = (flambeau.bucketize(inside, edges, right=True) - 1).clamp(max=len(limits) - 2)
    counts = flambeau.bincount(which, minlength=len(limits) - 1).tolist()
    if max_bins is not None and len(counts) > max_bins:
        step = -(-len(counts) // max_bins)
        counts = [sum(counts[i : i + step]) for i in range(0, len(counts), step)]
        limits = [*limits[:-1:step], limits[-1]]
    used = [i for i, count in enumerate(counts) if count]
    if not used:
        raise ValueError("[add_histogram] expected values inside the bins, got none")
    first, last = used[0], used[-1]
    return histogram_raw(
        name, low, high, flat.numel(), flat.sum().item(), (flat * flat).sum().item(), limits[first : last + 2],
        [0, *counts[first : last + 1]],
    )  # fmt: skip


def _limits(flat: Tensor, bins: Any, low: float, high: float) -> list[float]:
    if isinstance(bins, str) and bins == "tensorflow":
        return default_bins()
    if isinstance(bins, int):
        if low == high:
            low, high = low - 0.5, high + 0.5
        return [low + (high - low) * i / bins for i in range(bins)] + [high]
    if isinstance(bins, str):
        import numpy

        return numpy.histogram_bin_edges(flat.numpy(), bins=bins).tolist()
    return [float(x) for x in bins]


def histogram_raw(
    name: str,
    min: float,
    max: float,
    num: float,
    sum: float,
    sum_squares: float,
    bucket_limits: Any,
    bucket_counts: Any,
) -> bytes:
    body = (
        _wire.double(1, min) + _wire.double(2, max) + _wire.double(3, num) + _wire.double(4, sum)
        + _wire.double(5, sum_squares) + _wire.doubles(6, bucket_limits) + _wire.doubles(7, bucket_counts)
    )  # fmt: skip
    return _summary(_wire.data(1, name) + _wire.data(5, body))


# ---------------------------------------------------------------------------------------------- media


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> bytes:
    picture = _media.rescale(_media.as_picture(tensor, dataformats), rescale)
    height, width, channels = picture.shape
    body = _wire.integer(1, height) + _wire.integer(2, width) + _wire.integer(3, channels)
    return _summary(_wire.data(1, tag) + _wire.data(4, body + _wire.data(4, _media.png(picture))))


def image_boxes(
    tag: str, tensor: Any, boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: Any = None
) -> bytes:
    """A picture with red frames; labels are not drawn but go into the tag's description."""
    picture = _media.as_picture(tensor, dataformats)
    if picture.shape[2] == 1:
        picture = picture.expand(-1, -1, 3).contiguous()
    height, width, _ = picture.shape
    for left, top, right, bottom in _media.as_tensor(boxes).view(-1, 4).tolist():
        x0, x1 = (max(0, min(width - 1, int(v))) for v in (left, right))
        y0, y1 = (max(0, min(height - 1, int(v))) for v in (top, bottom))
        red = flambeau.tensor([255, 0, 0, 255][: picture.shape[2]], dtype=flambeau.uint8)
        picture[y0, x0 : x1 + 1] = picture[y1, x0 : x1 + 1] = red
        picture[y0 : y1 + 1, x0] = picture[y0 : y1 + 1, x1] = red
    return image(tag, picture, rescale, "HWC")


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> bytes:
    sound = _media.as_tensor(tensor).flatten()
    if bool((sound.abs() > 1).any()):
        import warnings

        warnings.warn("audio amplitude out of range, auto clipped.", stacklevel=3)
    body = (
        _wire.single(1, sample_rate) + _wire.integer(2, 1) + _wire.integer(3, sound.numel())
        + _wire.data(4, _media.wav(sound, sample_rate)) + _wire.data(5, "audio/wav")
    )  # fmt: skip
    return _summary(_wire.data(1, tag) + _wire.data(6, body))


def text(tag: str, value: str) -> bytes:
    body = _tensor(_STRING, (1,), _wire.data(8, value))
    return _summary(_wire.data(1, f"{tag}/text_summary") + body + _plugin("text"))


# ---------------------------------------------------------------------------------------------- curves


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> bytes:
    """Precision and recall over thresholds of predictions between 0 and 1."""
    count = min(num_thresholds, 127)
    labels = _media.as_tensor(labels).flatten().to(flambeau.float64)
    predictions = _media.as_tensor(predictions).flatten().to(flambeau.float64)
    weight = flambeau.ones_like(labels) if weights is None else _media.as_tensor(weights).flatten().to(flambeau.float64)
    bucket = (predictions * (count - 1)).floor().to(flambeau.int64).clamp(0, count - 1)
    hits = flambeau.bincount(bucket, weights=weight * labels, minlength=count)
    misses = flambeau.bincount(bucket, weights=weight * (1 - labels), minlength=count)
    tp = hits.flip(0).cumsum(0).flip(0)
    fp = misses.flip(0).cumsum(0).flip(0)
    tn, fn = fp[0] - fp, tp[0] - tp
    precision = tp / (tp + fp).clamp(min=1e-7)
    recall = tp / (tp + fn).clamp(min=1e-7)
    return pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, count)


def pr_curve_raw(
    tag: str,
    tp: Any,
    fp: Any,
    tn: Any,
    fn: Any,
    precision: Any,
    recall: Any,
    num_thresholds: int = 127,
    weights: Any = None,
) -> bytes:
    rows = [_media.as_tensor(row).flatten().to(flambeau.float32) for row in (tp, fp, tn, fn, precision, recall)]
    count = min(num_thresholds, 127, *(len(row) for row in rows))
    body = _tensor(_FLOAT, (6, count), _wire.floats(5, [x for row in rows for x in row[:count].tolist()]))
    return _summary(_wire.data(1, tag) + body + _plugin("pr_curves", _wire.integer(2, count)))


def custom_scalars(layout: dict[str, dict[str, list[Any]]]) -> bytes:
    """Charts that show several scalars: {category: {chart: ["Multiline" or "Margin", tags]}}."""
    content = b""
    for category, charts in layout.items():
        body = _wire.data(1, category)
        for title, (kind, tags) in charts.items():
            chart = _wire.data(1, title)
            if kind == "Margin":
                if len(tags) != 3:
                    raise AssertionError(f"[add_custom_scalars] expected three tags for a margin, got {len(tags)}")
                series = b"".join(_wire.data(i + 1, tag) for i, tag in enumerate(tags))
                chart += _wire.data(3, _wire.data(1, series))
            else:
                chart += _wire.data(2, b"".join(_wire.data(1, tag) for tag in tags))
            body += _wire.data(2, chart)
        content += _wire.data(2, body)
    tensor = _tensor(_STRING, (), _wire.data(8, content))
    return _summary(_wire.data(1, "custom_scalars__config__") + tensor + _plugin("custom_scalars"))


# ---------------------------------------------------------------------------------------------- hyperparameters


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "item"):
        return value.item()
    raise ValueError(f"[add_hparams] expected int, float, str, bool or a tensor as a value, got {type(value).__name__}")


def _any(value: Any) -> bytes:
    """A value of any of the kinds that a table can hold."""
    if value is None:
        return _wire.integer(1, 0)
    if isinstance(value, bool):
        return _wire.integer(4, int(value))
    if isinstance(value, (int, float)):
        return _wire.double(2, float(value))
    return _wire.data(3, str(value))


def hparams(
    hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: Any = None
) -> tuple[bytes, bytes, bytes]:
    """The experiment, the start and the end of a session."""
    if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
        raise TypeError("[add_hparams] expected two dicts, got other values")
    values = {name: _plain(value) for name, value in hparam_dict.items()}
    started = b""
    infos = b""
    for name, value in values.items():
        started += _wire.data(1, _wire.data(1, name) + _wire.data(2, _any(value)))
        kind = 2 if isinstance(value, bool) else 3 if isinstance(value, (int, float)) else 1
        info = _wire.data(1, name) + _wire.integer(4, kind)
        domain = (hparam_domain_discrete or {}).get(name)
        if domain is not None:
            info += _wire.data(5, b"".join(_wire.data(1, _any(v)) for v in domain))
        infos += _wire.data(5, info)
    metrics = b"".join(_wire.data(6, _wire.data(1, _wire.data(2, name))) for name in metric_dict)
    now = time.time()

    def entry(tag: str, field: int, body: bytes) -> bytes:
        return _summary(_wire.data(1, tag) + _plugin("hparams", _wire.integer(1, 0) + _wire.data(field, body)))

    return (
        entry("_hparams_/experiment", 2, _wire.double(4, now) + infos + metrics),
        entry("_hparams_/session_start_info", 3, started + _wire.double(5, now)),
        entry("_hparams_/session_end_info", 4, _wire.integer(1, 1) + _wire.double(2, now)),
    )
