"""Samples of products of quantized numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ops.samples import Call, Make, call, samples


def _integers(make: Any, *shape: int, dtype: Any) -> Any:
    import flambeau as fl

    return (fl.arange(fl.Size(shape).numel()) * 37 % 101).reshape(shape).to(dtype)


def _weight(make: Any, *shape: int) -> Any:
    import flambeau as fl

    weight = _integers(make, *shape, dtype=fl.int8) - 50
    scales = fl.linspace(0.01, 0.03, shape[0])
    return weight, scales, fl.zeros(shape[0], dtype=fl.int32)


@samples("_quantized_linear")
def quantized_linear(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(
        _integers(make, 3, 5, dtype=fl.uint8), 0.1, 7, *_weight(make, 4, 5), fl.ones(4), 0.2, 3, fl.uint8, "relu"
    )
    yield call(_integers(make, 2, 3, 5, dtype=fl.int8), 0.1, 7, *_weight(make, 4, 5), None, 1.0, 0, None)
    yield call(
        _integers(make, 3, 5, dtype=fl.uint8), 0.1, 7, *_weight(make, 4, 5), None, 1.0, 0, None, "add", fl.ones(3, 4)
    )


@samples("_quantized_conv")
def quantized_conv(make: Make) -> Iterator[Call]:
    import flambeau as fl

    image = _integers(make, 2, 4, 5, 5, dtype=fl.uint8)
    settings = ([1, 1], [1, 1], [1, 1])
    yield call(image, 0.1, 7, *_weight(make, 4, 4, 3, 3), fl.ones(4), *settings, 1, 0.2, 3, fl.uint8, "relu")
    yield call(image, 0.1, 7, *_weight(make, 4, 2, 3, 3), None, *settings, 2, 1.0, 0, None)


@samples("_quantized_linear_dynamic")
def quantized_linear_dynamic(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(fl.linspace(-1, 1, 15).reshape(3, 5), *_weight(make, 4, 5), fl.ones(4))
    yield call(fl.linspace(-1, 1, 15).reshape(3, 5), *_weight(make, 4, 5), None, False, "relu")


@samples("_quantized_dynamically")
def quantized_dynamically(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(fl.linspace(-1, 2, 15).reshape(3, 5))
    yield call(fl.linspace(0, 2, 15), False)


samples.without(
    "what they hold differs between processors; tests/ops/test_int8_products.py", "_int8_pack", "_int8_convolution_pack"
)


@samples("_int8_linear")
def int8_linear(make: Make) -> Iterator[Call]:
    import flambeau as fl

    weight, scales, zeros = _weight(make, 4, 5)
    start = (_integers(make, 3, 5, dtype=fl.uint8), 0.1, 7, weight, None, scales)
    yield call(*start, zeros + 3, fl.ones(4), 1.0, 0)
    yield call(*start, None, None, 0.5, 3, fl.uint8, "add_relu", _integers(make, 3, 4, dtype=fl.uint8), 0.1, 2)


@samples("_int8_linear_dynamic")
def int8_linear_dynamic(make: Make) -> Iterator[Call]:
    import flambeau as fl

    weight, scales, _ = _weight(make, 4, 5)
    for per_row in (False, True):
        yield call(fl.linspace(-1, 1, 15).reshape(3, 5), weight, None, scales, None, fl.ones(4), True, per_row, "relu")


@samples("_int8_convolution")
def int8_convolution(make: Make) -> Iterator[Call]:
    import flambeau as fl

    image, settings = _integers(make, 2, 4, 5, 5, dtype=fl.int8), ([2, 1], [1, 1], [1, 1])
    weight, scales, zeros = _weight(make, 4, 4, 3, 3)
    yield call(image, 0.1, 7, weight, None, scales, zeros + 3, fl.ones(4), *settings, 1, 1.0, 0)
    weight, scales, _ = _weight(make, 4, 2, 3, 3)
    yield call(image, 0.1, 7, weight, None, scales, None, None, *settings, 2, 0.2, 3, fl.int8, "relu")


@samples("_weight_int8pack_mm")
def weight_int8pack_mm(make: Make) -> Iterator[Call]:
    import flambeau as fl

    weight, scales, _ = _weight(make, 4, 5)
    for rows in (3, 9):
        yield call(fl.linspace(-1, 1, 5 * rows).reshape(rows, 5), weight, scales)


@samples("_convert_weight_to_int4pack_for_cpu")
def convert_weight_to_int4pack(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(_integers(make, 16, 8, dtype=fl.int32) % 16, 2)


@samples("_weight_int4pack_mm_for_cpu")
def weight_int4pack_mm(make: Make) -> Iterator[Call]:
    import flambeau as fl

    packed = fl._ops._convert_weight_to_int4pack_for_cpu(_integers(make, 16, 8, dtype=fl.int32) % 16, 2)
    for rows in (2, 9):
        for grids in (2, 1):  # scales and zeros, or scales alone
            scales = fl.linspace(0.01, 0.1, 32 * grids).reshape(2, 16, grids)
            yield call(fl.linspace(-1, 1, 8 * rows).reshape(rows, 8), packed, 4, scales)
