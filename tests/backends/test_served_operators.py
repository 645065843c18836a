"""Operators that a device has no kernel for: checks and layouts are those of the operator's own kernel."""

import pytest

import flambeau as fl
import flambeau.backends.reference
import flambeau.nn.functional as F

X = fl.arange(120.0).reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.max_pool2d(x, 2, stride=0),
        lambda x: F.max_pool2d(x, 2, padding=2),
        lambda x: F.avg_pool2d(x, 2, divisor_override=0),
        lambda x: F.conv2d(x, fl.zeros(4, 3, 3, 3, device=x.device), stride=0),
        lambda x: fl.cat([x, x[:, :2]]),
        lambda x: F.pad(x, (5, 5, 0, 0), "reflect"),
        lambda x: fl.index_select(x, 0, fl.zeros(2, 2, dtype=fl.int64, device=x.device)),
        lambda x: F.layer_norm(x, (5,), fl.ones(4, device=x.device)),
        lambda x: fl.topk(x, 9),
        lambda x: fl.roll(x, [1, 2], [0]),
    ],
)
def test_bad_arguments_raise_as_on_the_cpu(call):
    errors = []
    for x in (X, X.to("ref")):
        with pytest.raises(Exception) as caught:
            call(x)
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, 2),
        lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
        lambda x: F.pad(x, (1, 1)),
        lambda x: fl.cat([x, x], 1),
        lambda x: F.dropout(x, 0.5),
        lambda x: F.softmax(x, 1),
        lambda x: fl.flip(x, [1]),
    ],
)
def test_channels_last_stays(call):
    x = X.contiguous(memory_format=fl.channels_last)
    assert call(x.to("ref")).stride() == call(x).stride()


def test_tensors_on_several_devices_are_refused():
    there = X.to("ref")
    for call in (
        lambda: fl.cat([X, there]),
        lambda: fl.cat([there, X]),
        lambda: fl.stack([X, there]),
        lambda: fl.index_select(there, 0, fl.tensor([0])),
        lambda: fl.masked_select(there, X > 1),
        lambda: F.conv2d(there, fl.ones(4, 3, 1, 1)),
        lambda: fl.bucketize(there, X[0, 0, 0]),
        lambda: fl.isin(there, X),
    ):
        with pytest.raises(RuntimeError, match="one device"):
            call()


def test_averages_of_integers_are_cut():
    x = fl.tensor([[[[1, 2], [3, 4]], [[-1, -2], [-3, -4]]]])
    assert F.avg_pool2d(x.to("ref"), 2).tolist() == F.avg_pool2d(x, 2).tolist() == [[[[2]], [[-2]]]]
