"""Samples of normalization and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ops.samples import Call, Constant, Make, call, first, samples


@samples("native_layer_norm")
def native_layer_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 4), [4], make(4), make(4), 1e-5).then(first)
    yield call(make.strided(2, 3, 2), [3, 2], None, None, 1e-5).then(first)
    yield call(make(0, 3), [3], make(3), None, 1e-5).then(first)


@samples("_fused_rms_norm")
def fused_rms_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 4), [4], make(4), None).then(first)
    yield call(make.strided(2, 3), [3], None, 1e-3).then(first)


@samples("nn_layer_norm", "layer_norm")
def layer_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 4), [4], make(4), make(4))
    yield call(make(3), [3])


@samples("nn_rms_norm", "rms_norm")
def rms_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 4), [4], make(4))


@samples("native_group_norm")
def native_group_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 4, 3), make(4), make(4), 2, 4, 3, 2, 1e-5)
    yield call(make.strided(1, 2, 4), None, None, 1, 2, 4, 1, 1e-5)


@samples("nn_group_norm", "group_norm")
def group_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 4, 3), 2, make(4), make(4))


@samples("native_batch_norm")
def native_batch_norm(make: Make) -> Iterator[Call]:
    yield call(make(4, 3), make(3), make(3), None, None, True, 0.1, 1e-5).then(first)
    yield call(make(2, 3, 2, 2), make(3), make(3), *_running(make), False, 0.1, 1e-5).then(first)
    yield call(make.strided(3, 2, 4), None, None, *_running(make, 2), True, 0.1, 1e-5).then(first)


@samples("_batch_norm_statistics")
def batch_norm_statistics(make: Make) -> Iterator[Call]:
    yield call(make.constant(4, 3), None, make.constant(3), None, None, 0.1, 1e-5)
    yield call(make.constant(3, 2, 4, low=None), make.constant(2), None, *_running(make, 2), 0.1, 1e-5)


def _running(make: Make, channels: Any = 3) -> Any:
    return make.constant(channels, low=None), make.constant(channels)


@samples("batch_norm")
def batch_norm(make: Make) -> Iterator[Call]:
    yield call(make(4, 3), make(3), make(3), None, None, True, 0.1, 1e-5, False)


@samples("nn_batch_norm")
def nn_batch_norm(make: Make) -> Iterator[Call]:
    yield call(make(4, 3), None, None, make(3), make(3), True)
    yield call(make(2, 3, 2), *_running(make), make(3), make(3))


@samples("instance_norm")
def instance_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 4), make(3), make(3), None, None, True, 0.1, 1e-5, False)


@samples("nn_instance_norm")
def nn_instance_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 4), None, None, make(3), make(3))


@samples("local_response_norm")
def local_response_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 4, 3), 3)


@samples("_layer_norm_backward")
def layer_norm_backward(make: Make) -> Iterator[Call]:
    mean, rstd = make.constant(2, 1, low=None), make.constant(2, 1)
    for mask in ([True] * 3, [True, False, False]):
        yield call(*(make.constant(2, 4, low=None) for _ in range(2)), mean, rstd, make.constant(4, low=None), 1, mask)
    yield call(*(make.constant(2, 4, low=None) for _ in range(2)), None, rstd, None, 1, [True, True, False])


@samples("_group_norm_backward")
def group_norm_backward(make: Make) -> Iterator[Call]:
    mean, rstd = make.constant(2, 2, low=None), make.constant(2, 2)
    grad, input = make.constant(2, 4, 3, low=None), make.constant(2, 4, 3, low=None)
    yield call(grad, input, mean, rstd, make.constant(4, low=None), 2, 4, 3, 2, [True] * 3)


@samples("_batch_norm_backward")
def batch_norm_backward(make: Make) -> Iterator[Call]:
    mean, rstd = make.constant(3, low=None), make.constant(3)
    for shape in ((4, 3), (2, 3, 2)):
        grad, input = make.constant(*shape, low=None), make.constant(*shape, low=None)
        for training in (True, False):
            yield call(grad, input, mean, rstd, make.constant(3, low=None), training, [True] * 3)


@samples("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3, low=None), make.constant(2, 3), 1, make.dtype)
    yield call(make.constant(2, 3, low=None), Constant(make.strided(2, 3)), 0, make.dtype)


@samples("_softmax", "_log_softmax")
def softmax_kernel(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, False)
    yield call(make.strided(2, 3), 0, False)
    yield call(make(), 0, False)


@samples("_safe_softmax")
def safe_softmax(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1)
    yield call(make(2, 3, 2), 0)


@samples("nn_softmax", "nn_log_softmax", "nn_softmin", "softmax.int", "log_softmax.int", "special_softmax",
         "special_log_softmax")  # fmt: skip
def softmax(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1)
    yield call(make(2, 3, 2), 0)
