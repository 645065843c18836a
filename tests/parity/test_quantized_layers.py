"""Every quantized layer within one step of PyTorch's; checkpoints of quantized models go both ways; so does training."""

import importlib
import io

import numpy as np
import pytest

import flambeau as fl
import flambeau.ao.quantization as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.ao.quantization")
pytestmark = pytest.mark.filterwarnings("ignore")

IMAGE, ROWS, SEQUENCE, VOLUME = (2, 4, 9, 9), (6, 12), (2, 4, 11), (2, 4, 5, 6, 6)
LAYERS = {
    "linear": (lambda nn: [nn.Linear(12, 7)], ROWS),
    "linear without bias": (lambda nn: [nn.Linear(12, 7, bias=False)], ROWS),
    "linear relu": (lambda nn: [nn.Linear(12, 7), nn.ReLU()], ROWS),
    "linear of 3 dimensions": (lambda nn: [nn.Linear(12, 7)], (2, 3, 12)),
    "conv1d": (lambda nn: [nn.Conv1d(4, 6, 3, padding=1)], SEQUENCE),
    "conv1d relu": (lambda nn: [nn.Conv1d(4, 6, 3, stride=2), nn.ReLU()], SEQUENCE),
    "conv2d": (lambda nn: [nn.Conv2d(4, 6, 3, padding=1)], IMAGE),
    "conv2d strided": (lambda nn: [nn.Conv2d(4, 6, (3, 2), stride=(2, 1), dilation=(1, 2))], IMAGE),
    "conv2d grouped": (lambda nn: [nn.Conv2d(4, 8, 3, groups=2, bias=False)], IMAGE),
    "conv2d depthwise": (lambda nn: [nn.Conv2d(4, 4, 3, groups=4, padding=1)], IMAGE),
    "conv2d reflected": (lambda nn: [nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect")], IMAGE),
    "conv2d relu": (lambda nn: [nn.Conv2d(4, 6, 3), nn.ReLU()], IMAGE),
    "conv2d bn": (lambda nn: [nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)], IMAGE),
    "conv2d bn relu": (lambda nn: [nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()], IMAGE),
    "conv3d": (lambda nn: [nn.Conv3d(4, 6, 3)], VOLUME),
    "conv3d relu": (lambda nn: [nn.Conv3d(4, 6, 3), nn.ReLU()], VOLUME),
    "bn2d": (lambda nn: [nn.BatchNorm2d(4)], IMAGE),
    "bn2d relu": (lambda nn: [nn.BatchNorm2d(4), nn.ReLU()], IMAGE),
    "bn3d": (lambda nn: [nn.BatchNorm3d(4)], VOLUME),
    "layer norm": (lambda nn: [nn.LayerNorm(12)], ROWS),
    "group norm": (lambda nn: [nn.GroupNorm(2, 4)], IMAGE),
    "instance norm": (lambda nn: [nn.InstanceNorm2d(4, affine=True)], IMAGE),
    "elu": (lambda nn: [nn.ELU()], ROWS),
    "hardswish": (lambda nn: [nn.Hardswish()], ROWS),
    "leaky relu": (lambda nn: [nn.LeakyReLU(0.2)], ROWS),
    "relu6": (lambda nn: [nn.ReLU6()], ROWS),
    "dropout": (lambda nn: [nn.Dropout()], ROWS),
    "sigmoid": (lambda nn: [nn.Sigmoid()], ROWS),
    "tanh": (lambda nn: [nn.Tanh()], ROWS),
    "max pool": (lambda nn: [nn.MaxPool2d(2)], IMAGE),
    "mean pool": (lambda nn: [nn.AdaptiveAvgPool2d(2)], IMAGE),
}


def values(shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def model_of(lib, quantization, name, state=None):
    model = lib.nn.Sequential(quantization.QuantStub(), *LAYERS[name][0](lib.nn), quantization.DeQuantStub())
    if state is not None:
        model.load_state_dict({key: lib.tensor(value.numpy()) for key, value in state.items()})
    return model


def fused(quantization, model, name, training=False):
    count = len(LAYERS[name][0](fl.nn))
    if count == 1:
        return model
    fuse = quantization.fuse_modules_qat if training else quantization.fuse_modules
    return fuse(model, [str(i + 1) for i in range(count)])


def quantized(name, seed=0):
    """The layer quantized by PyTorch and by flambeau, on the same examples."""
    torch.manual_seed(seed)
    state = model_of(torch, theirs, name).state_dict()
    results = []
    for lib, quantization in ((torch, theirs), (fl, ours)):
        model = model_of(lib, quantization, name, state).eval()
        model = fused(quantization, model, name)
        model.qconfig = quantization.get_default_qconfig("x86")
        model = quantization.prepare(model)
        for i in range(3):
            model(lib.from_numpy(values(LAYERS[name][1], i)))
        results.append(quantization.convert(model))
    return results


def same_grids(results):
    """Gives flambeau's model the grids and weights of PyTorch's, by a checkpoint."""
    file = io.BytesIO()
    torch.save(results[0].state_dict(), file)
    file.seek(0)
    results[1].load_state_dict(fl.load(file))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_within_one_step(name):
    reference, own = quantized(name)
    same_grids((reference, own))
    x = values(LAYERS[name][1], 7)
    want, got = reference[:-1](torch.from_numpy(x)), own[:-1](fl.from_numpy(x))
    assert abs(want.q_scale() - got.q_scale()) <= 2e-4 * want.q_scale() and want.q_zero_point() == got.q_zero_point()
    steps = np.abs(want.int_repr().numpy().astype(int) - got.int_repr().numpy().astype(int))
    assert steps.max() <= 1


@pytest.mark.parametrize("name", ["linear", "linear relu", "conv2d", "conv2d bn relu", "bn2d"])
def test_checkpoints_go_both_ways(name):
    reference, own = quantized(name)
    file = io.BytesIO()
    fl.save(own.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert list(loaded) == list(reference.state_dict())
    reference.load_state_dict(loaded)
    x = values(LAYERS[name][1], 3)
    want, got = reference(torch.from_numpy(x)).numpy(), own(fl.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, want, atol=1.01 * own[1].scale)


@pytest.mark.parametrize("make", ["quantize_per_tensor", "quantize_per_channel"])
@pytest.mark.parametrize("dtype", ["qint8", "quint8", "qint32"])
def test_quantized_tensors_are_saved_for_each_other(make, dtype):
    def quantize(lib):
        x = lib.from_numpy(values((3, 5)))
        if make == "quantize_per_tensor":
            return lib.quantize_per_tensor(x, 0.1, 3, getattr(lib, dtype))
        return lib.quantize_per_channel(x, lib.tensor([0.1, 0.2, 0.3]), lib.tensor([0, 1, 2]), 0, getattr(lib, dtype))

    for writer, reader in ((torch, fl), (fl, torch)):
        file = io.BytesIO()
        writer.save({"x": quantize(writer).t() if make == "quantize_per_tensor" else quantize(writer)}, file)
        for options in ({"weights_only": True}, {"weights_only": False}):
            file.seek(0)
            loaded = reader.load(file, **options)["x"]
            want = quantize(reader).t() if make == "quantize_per_tensor" else quantize(reader)
            assert loaded.dtype == want.dtype and loaded.qscheme() == want.qscheme()
            np.testing.assert_array_equal(loaded.dequantize().numpy(), want.dequantize().numpy())


QAT = ["linear", "linear relu", "conv2d", "conv2d relu", "conv2d bn", "conv2d bn relu"]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", QAT)
def test_training_with_fake_quantization(name, version):
    torch.manual_seed(0)
    state = model_of(torch, theirs, name).state_dict()
    losses, converted = [], []
    for lib, quantization in ((torch, theirs), (fl, ours)):
        model = fused(quantization, model_of(lib, quantization, name, state).train(), name, training=True)
        model.qconfig = quantization.get_default_qat_qconfig("x86", version)
        model = quantization.prepare_qat(model)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.05)
        own = []
        for i in range(4):
            loss = (model(lib.from_numpy(values(LAYERS[name][1], i))) - 0.5).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            own.append(loss.item())
        losses.append(own)
        converted.append(quantization.convert(model.eval()))
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-3)
    x = values(LAYERS[name][1], 9)
    want, got = (m(lib.from_numpy(x)).detach().numpy() for m, lib in zip(converted, (torch, fl)))
    assert np.abs(want - got).max() <= 2.01 * converted[0][1].scale


def test_learned_grids_have_the_same_gradients():
    for channels in (False, True):
        found = []
        for lib in (torch, fl):
            x = lib.from_numpy(values((4, 6)) * 3).requires_grad_()
            count = 4 if channels else 1
            scale = lib.linspace(0.05, 0.2, count).requires_grad_()
            zero = lib.linspace(0.4, 2.6, count).requires_grad_()
            if channels:
                y = lib._fake_quantize_learnable_per_channel_affine(x, scale, zero, 0, -8, 7, 0.5)
            else:
                y = lib._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7, 0.5)
            (y * lib.from_numpy(values((4, 6), 1))).sum().backward()
            found.append([t.detach().numpy() for t in (y, x.grad, scale.grad, zero.grad)])
        for want, got in zip(*found):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_embeddings():
    table = values((10, 8))
    found = []
    for lib, quantization in ((torch, theirs), (fl, ours)):
        model = lib.nn.ModuleDict({"rows": lib.nn.Embedding(10, 8), "bag": lib.nn.EmbeddingBag(10, 8, mode="sum")})
        for part in model.values():
            part.weight.data.copy_(lib.from_numpy(table))
        small = quantization.quantize_dynamic(model.eval(), dtype=lib.quint8)
        indices = lib.tensor([1, 4, 4, 9])
        found.append([small["rows"](indices).numpy(), small["bag"](indices, lib.tensor([0, 2])).numpy()])
        found[-1].append(repr(small))
    assert found[0][2] == found[1][2]
    for want, got in zip(found[0][:2], found[1][:2]):
        np.testing.assert_allclose(got, want, atol=2e-2)


def test_names_are_there():
    import torch.ao.nn.intrinsic as their_intrinsic
    import torch.ao.nn.intrinsic.qat as their_intrinsic_qat
    import torch.ao.nn.qat as their_qat
    import torch.ao.nn.quantized as their_quantized
    import torch.ao.nn.quantized.dynamic as their_dynamic

    pairs = {
        theirs.observer: ours.observer, theirs.fake_quantize: ours.fake_quantize, theirs.qconfig: ours.qconfig,
    }  # fmt: skip
    unneeded = {
        "AffineQuantizedObserverBase", "Granularity", "MappingType", "PerAxis", "PerBlock", "PerGroup", "PerRow", "PerTensor",
        "PerToken", "TorchAODType", "ZeroPointDomain", "get_block_size", "ObserverOrFakeQuantize",
    }  # fmt: skip
    for reference, own in pairs.items():
        missing = [n for n in reference.__all__ if not hasattr(own, n) and n not in unneeded]
        assert not missing
    for path, reference in {
        "nn.intrinsic": their_intrinsic, "nn.intrinsic.qat": their_intrinsic_qat, "nn.qat": their_qat,
        "nn.quantized": their_quantized, "nn.quantized.dynamic": their_dynamic,
    }.items():  # fmt: skip
        own = importlib.import_module(f"flambeau.ao.{path}")
        later = {"LSTM", "MultiheadAttention"} if path == "nn.quantized" else set()
        public = [n for n in dir(reference) if not n.startswith("_") and n not in later]
        assert not [n for n in public if not hasattr(own, n) and isinstance(getattr(reference, n), type)]


class Block:
    """A model with what graph modes have to find: fusions, a sum, pooling, a fixed grid."""

    def __new__(cls, lib):
        nn = lib.nn

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
                self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
                self.pool, self.last = nn.MaxPool2d(2), nn.Linear(128, 6)

            def forward(self, x):
                x = self.relu(self.norm(self.first(x)))
                x = lib.nn.functional.relu(self.norm2(self.second(x)) + x)
                return self.last(lib.flatten(self.pool(x), 1))

        return Network()


def graph_models(training):
    torch.manual_seed(0)
    state = Block(torch).state_dict()
    for lib, quantization in ((torch, theirs), (fl, ours)):
        model = Block(lib)
        model.load_state_dict({key: lib.tensor(value.numpy()) for key, value in state.items()})
        mode = importlib.import_module(f"{'torch' if lib is torch else 'flambeau'}.ao.quantization.quantize_fx")
        yield lib, quantization, mode, model.train() if training else model.eval()


def test_traced_models_are_quantized_alike():
    results = []
    for lib, quantization, mode, model in graph_models(False):
        inputs = [lib.from_numpy(values((4, 3, 8, 8), seed)) for seed in range(3)]
        prepared = mode.prepare_fx(model, quantization.get_default_qconfig_mapping("x86"), (inputs[0],))
        for x in inputs:
            prepared(x)
        small = mode.convert_fx(prepared)
        results.append(
            (type(small.first).__name__, type(small.last).__name__, small.last.scale, small(inputs[1]).detach().numpy())
        )
    (first, last, scale, want), (own_first, own_last, own_scale, got) = results
    assert (first, last) == (own_first, own_last) == ("ConvReLU2d", "Linear")
    assert abs(scale - own_scale) < 0.02 * scale and np.abs(want - got).max() <= 2.01 * scale


def test_traced_models_are_trained_alike():
    results = []
    for lib, quantization, mode, model in graph_models(True):
        inputs = [lib.from_numpy(values((4, 3, 8, 8), seed)) for seed in range(3)]
        prepared = mode.prepare_qat_fx(model, quantization.get_default_qat_qconfig_mapping("x86"), (inputs[0],))
        optimizer = lib.optim.SGD(prepared.parameters(), lr=0.01)
        losses = []
        for x in inputs:
            loss = (prepared(x) - 0.5).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        small = mode.convert_fx(prepared.eval())
        results.append((losses, small.last.scale, small(inputs[1]).detach().numpy()))
    (losses, scale, want), (own_losses, _, got) = results
    np.testing.assert_allclose(own_losses, losses, rtol=0.02)
    assert np.abs(want - got).max() <= 3.01 * scale
