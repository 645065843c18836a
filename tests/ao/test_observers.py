"""Observers in models: what they keep in state dicts, how they are configured, and that they change nothing."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao import quantization as quant
from flambeau.ao.quantization import observer


@pytest.mark.parametrize(
    "make",
    [
        observer.MinMaxObserver,
        observer.MovingAverageMinMaxObserver,
        observer.PerChannelMinMaxObserver,
        observer.HistogramObserver,
        observer.PlaceholderObserver,
    ],
)
def test_observers_hand_tensors_on(make):
    x = fl.randn(4, 6)
    assert make()(x) is x


def test_a_moving_average_follows_slowly():
    watch = observer.MovingAverageMinMaxObserver(averaging_constant=0.5)
    watch(fl.tensor([-2.0, 2.0]))
    watch(fl.tensor([-4.0, 8.0]))
    assert (watch.min_val.item(), watch.max_val.item()) == (-3.0, 5.0)
    watch.reset_min_max_vals()
    assert watch.min_val.item() == float("inf")


def test_ranges_go_through_state_dicts():
    seen, fresh = observer.PerChannelMinMaxObserver(), observer.PerChannelMinMaxObserver()
    seen(fl.randn(3, 5))
    fresh.load_state_dict(seen.state_dict())
    for ours, theirs in zip(fresh.calculate_qparams(), seen.calculate_qparams(), strict=True):
        assert fl.equal(ours, theirs)


def test_arguments_are_bound_by_with_args():
    make = observer.MinMaxObserver.with_args(dtype=fl.qint8).with_args(reduce_range=True)
    watch = make()
    watch(fl.tensor([-1.0, 1.0]))
    scale, _ = watch.calculate_qparams()
    assert watch.dtype is fl.qint8 and scale.item() == pytest.approx(2 / 127, rel=1e-3)


def layers():
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).eval()


def test_a_configuration_by_name():
    model, config = layers(), quant.get_default_qconfig()
    quant.propagate_qconfig_(model, {"2": config})
    assert model[0].qconfig is None and model[2].qconfig is config


def test_parts_without_a_configuration_are_not_watched():
    model = layers()
    model.qconfig, model[2].qconfig = quant.get_default_qconfig(), None
    watched = quant.prepare(model)
    assert hasattr(watched[0], "activation_post_process") and not hasattr(watched[2], "activation_post_process")
