"""Views of channels-last images, which leave gaps in memory, keep their memory format through layers."""

from __future__ import annotations

import pytest

import flambeau as fl
import flambeau.nn.functional as F

VIEWS = {
    "rows": lambda x: x[:, :, ::2],
    "channels": lambda x: x[:, :2],
    "columns": lambda x: x[..., 1:],
    "one channel": lambda x: x[:, :1],
}
LAYERS = {
    **{f"interpolate {m}": lambda x, m=m: F.interpolate(x, scale_factor=2, mode=m) for m in ("nearest", "bilinear")},
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "pad": lambda x: F.pad(x, (1, 1)),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "group_norm": lambda x: F.group_norm(x, 1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "conv2d": lambda x: F.conv2d(x, fl.ones(3, x.shape[1], 1, 1)),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("view", VIEWS)
def test_results_of_views_are_channels_last(view: str, layer: str) -> None:
    images = fl.randn(2, 4, 8, 8).to(memory_format=fl.channels_last)
    x = VIEWS[view](images).requires_grad_()
    dense = x.detach().contiguous().requires_grad_()
    result, expected = LAYERS[layer](x), LAYERS[layer](dense)
    assert result.is_contiguous(memory_format=fl.channels_last)
    fl.testing.assert_close(result, expected, check_stride=False)
    weights = fl.randn_like(expected)
    (result * weights).sum().backward()
    (expected * weights).sum().backward()
    fl.testing.assert_close(x.grad, dense.grad, check_stride=False)
