"""Layers with weights in eight bits: near the originals, smaller, chosen by class or name, saved and loaded."""

import io

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao.quantization import DeQuantStub, QuantStub, QuantWrapper, quantize_dynamic


def model():
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Sequential(nn.Linear(32, 8)), nn.LSTM(8, 4, batch_first=True))
    with fl.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(fl.sin(fl.arange(p.numel()).float() + i).reshape(p.shape) / 4)
    return net.eval()


X = fl.cos(fl.arange(96.0)).reshape(2, 3, 16)


def test_results_are_near():
    net = model()
    small = quantize_dynamic(net)
    with fl.no_grad():
        (want, (h, c)), (got, (h2, c2)) = net(X), small(X)
    for a, b in ((want, got), (h, h2), (c, c2)):
        assert a.shape == b.shape and 0 < (a - b).abs().max() < 0.05
    weight = small[0].weight()
    assert weight.dtype is fl.qint8 and (weight.dequantize() - net[0].weight).abs().max() < 2e-3
    assert isinstance(net[0], nn.Linear)


def test_which_layers_are_taken():
    kinds = [type(m).__name__ for m in quantize_dynamic(model(), {nn.LSTM})]
    assert kinds == ["Linear", "ReLU", "Sequential", "LSTM"] and "Dynamic" in repr(quantize_dynamic(model(), {nn.LSTM}))
    small = quantize_dynamic(model(), {"2": fl.ao.quantization.float16_dynamic_qconfig}, dtype=fl.float16)
    assert repr(small[2][0]) == "DynamicQuantizedLinear(in_features=32, out_features=8, dtype=torch.float16)"
    assert isinstance(small[0], nn.Linear)
    with pytest.raises(RuntimeError, match="expected dtype"):
        quantize_dynamic(model(), dtype=fl.qint32)
    net = model()
    assert quantize_dynamic(net, inplace=True) is net and "Dynamic" in repr(net[0])


def test_state_dicts_go_through_files():
    small, other = quantize_dynamic(model()), quantize_dynamic(model())
    small[0].set_weight_bias(fl.quantize_per_tensor(fl.ones(32, 16), 0.1, 0, fl.qint8), small[0].bias())
    file = io.BytesIO()
    fl.save(small.state_dict(), file)
    file.seek(0)
    other.load_state_dict(fl.load(file))
    with fl.no_grad():
        assert fl.equal(other(X)[0], small(X)[0])


def test_stubs_do_nothing():
    wrapped = QuantWrapper(nn.Identity())
    assert wrapped(X) is X and DeQuantStub()(QuantStub()(X)) is X
    assert fl.quantization.quantize_dynamic is quantize_dynamic


def test_layers_are_compiled_exported_and_traced():
    small = quantize_dynamic(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).eval())
    x = fl.randn(3, 16)
    wanted = small(x)
    assert fl.allclose(fl.compile(small, fullgraph=True)(x), wanted)
    assert fl.allclose(fl.export.export(small, (x,)).module()(x), wanted)
    assert fl.allclose(fl.jit.trace(small, (x,))(x), wanted)


def test_layers_without_a_configuration_in_a_dict_stay():
    model = fl.nn.Sequential(fl.nn.Linear(2, 2), fl.nn.Linear(2, 2))
    spec = {"0": None, fl.nn.Linear: fl.ao.quantization.default_dynamic_qconfig}
    small = fl.ao.quantization.quantize_dynamic(model, spec)
    assert type(small[0]) is fl.nn.Linear and type(small[1]) is not fl.nn.Linear


def test_recurrent_layers_are_exported(tmp_path):
    fl.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent, self.last = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.recurrent(x)[0])

    small, x = quantize_dynamic(Tagger().eval()), fl.randn(2, 5, 8)
    program = fl.export.export(small, (x,))
    fl.export.save(program, tmp_path / "program.pt2")
    for found in (program.module()(x), fl.export.load(tmp_path / "program.pt2").module()(x)):
        fl.testing.assert_close(found, small(x))
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    fl.onnx.export(small, (x,), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    fl.testing.assert_close(fl.from_numpy(found), small(x), atol=1e-4, rtol=1e-4)
