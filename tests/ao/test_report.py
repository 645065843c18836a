"""The table of layers: each quantized by itself, with noise, score and time; drawn; turned into a configuration."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao.quantization.quantize_fx import convert_fx, prepare_fx
from flambeau.ao.report import sensitivity


def network():
    fl.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Sequential(nn.Linear(288, 16), nn.ReLU(), nn.Linear(16, 4))
    )
    with fl.no_grad():
        model[3][0].weight[:, 0] *= 200  # a row with one large number loses the others
    return model.eval()


def batches():
    return [fl.randn(8, 3, 8, 8, generator=fl.Generator().manual_seed(i)) for i in range(2)]


def test_layers_are_told_apart():
    model = network()
    report = sensitivity(model, batches(), evaluate=lambda m: -m(batches()[0]).square().mean().item())
    assert [r.name for r in report.layers] == ["0", "3.0", "3.2"] and report.worst(1) == ["3.0"]
    first = report.layers[0]
    assert first.kind == "Conv2d" and first.quantized_bytes * 4 == first.float_bytes and first.noise_db > 25
    assert first.float_seconds > 0 and first.quantized_seconds > 0 and first.speedup > 0
    assert all(r.drop == report.score - r.score for r in report.layers)
    assert set(report.too_bad(-1e9)) == {"0", "3.0", "3.2"}
    assert type(model[0]) is nn.Conv2d and not hasattr(model[0], "qconfig")


def test_it_is_printed_and_drawn(tmp_path):
    report = sensitivity(network(), batches())
    lines = str(report).splitlines()
    assert len(lines) == 4 and lines[0].split()[:2] == ["layer", "kind"] and "#" in lines[2]
    report.draw(tmp_path / "layers.svg")
    text = (tmp_path / "layers.svg").read_text()
    assert text.startswith("<svg") and text.count("<rect") == 6
    with pytest.raises(ValueError, match="evaluate"):
        report.too_bad(0.1)


def test_layers_that_lose_most_stay_in_floating_point():
    model = network()
    report = sensitivity(model, batches())
    ready = prepare_fx(model, report.mapping(keep=report.worst(1)), (batches()[0],))
    ready(batches()[0])
    small = convert_fx(ready)
    inner = small.get_submodule("3.0")
    assert isinstance(inner, nn.Linear) or isinstance(inner[0], nn.Linear)
    assert type(small.get_submodule("3.2")).__name__ == "Linear" and not isinstance(
        small.get_submodule("3.2"), nn.Linear
    )
