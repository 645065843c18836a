"""`freezing`: what depends on parameters alone is computed once, and again when one of them changes."""

import copy
import gc

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import config
from flambeau.nn import functional as F

FREEZING = {"freezing": True}


def mlp(dtype=fl.float32):
    fl.manual_seed(0)
    return (
        nn.Sequential(nn.Linear(20, 50), nn.GELU(), nn.Linear(50, 33, bias=False), nn.Tanh(), nn.Linear(33, 7))
        .to(dtype)
        .eval()
    )


class Convolutions(nn.Module):
    """Both kinds of convolutions, with what follows."""

    def __init__(self):
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.Conv2d(64, 64, 3, 1, 1, bias=False)
        self.thin, self.beside = nn.Conv2d(64, 16, 1), nn.Conv2d(64, 16, 1, bias=False)
        self.norms = nn.ModuleList(
            [nn.BatchNorm2d(64), nn.BatchNorm2d(64), nn.BatchNorm2d(16), nn.BatchNorm2d(16, affine=False)]
        )
        for norm in self.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            if norm.affine:
                nn.init.uniform_(norm.weight, 0.5, 2)
                nn.init.normal_(norm.bias)

    def forward(self, x):
        y = F.relu(self.norms[0](self.stem(x)))
        y = F.relu(self.norms[1](self.wide(y)) + y)
        return F.relu(self.norms[2](self.thin(y))) + self.norms[3](self.beside(y))


@pytest.mark.host  # packing is of the CPU's products
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16])
def test_weights_are_packed_once(dtype, calls_of):
    model = mlp(dtype)
    compiled = fl.compile(model, options=FREEZING)
    x = fl.randn(9, 20).to(dtype)
    assert calls_of(compiled, x) == ["_product_finished"] * 3
    with fl.no_grad():
        for batch in (9, 2, 33, 0, 1, 128):
            x = fl.randn(batch, 20).to(dtype)
            fl.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_weights_of_recurrent_layers_are_transposed_once(kind, calls_of):
    fl.manual_seed(0)
    model = kind(12, 20, 2, batch_first=True, bidirectional=True).eval()
    compiled = fl.compile(model, options=FREEZING)
    assert calls_of(compiled, fl.randn(1, 7, 12)).count("_rnn_layer") == 4
    with fl.no_grad():
        for batch in (1, 3, 8):
            x = fl.randn(batch, 7, 12)
            fl.testing.assert_close(compiled(x)[0], model(x)[0])
        for p in model.parameters():
            p.mul_(0.5)
        fl.testing.assert_close(compiled(x)[0], model(x)[0])


@pytest.mark.host  # packing is of the CPU's products
def test_geometries_share_what_is_packed(calls_of):
    model = mlp()
    compiled = fl.compile(model, options=FREEZING)
    assert calls_of(compiled, fl.randn(9, 20), title="kept") == ["_product_packed"] * 3
    assert calls_of(compiled, fl.randn(10, 20), title="kept") == []
    assert calls_of(fl.compile(model), fl.randn(10, 20), title="kept") == []


def changes(model):
    """Ways to change a parameter."""
    first, last = model[0], model[4]
    with fl.no_grad():
        first.weight.mul_(2)
        yield
        last.weight[3] = 1.5
        yield
        first.bias.fill_(0.25)
        yield
        first.weight.data.add_(0.5)
        yield
        last.weight.data = fl.randn(7, 33)
        yield
        first.weight = nn.Parameter(fl.randn(50, 20))
        yield
        model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()})
        yield
        held = last.weight.data
        yield
        held.zero_()
        yield
        first.weight.detach().copy_(fl.randn(50, 20))
        yield
        fl.optim.SGD(model.parameters(), 0.1)
        for p in model.parameters():
            p.grad = fl.ones_like(p)
        fl.optim.SGD(model.parameters(), 0.1).step()
        yield


def test_changed_parameters_are_seen():
    model = mlp()
    compiled = fl.compile(model, options=FREEZING)
    x = fl.randn(9, 20)
    with fl.no_grad():
        fl.testing.assert_close(compiled(x), model(x))
        count = 0
        for _ in changes(model):
            before = compiled(x)
            fl.testing.assert_close(before, model(x))
            fl.testing.assert_close(compiled(x), before)
            count += 1
    assert count == 11


@pytest.mark.host  # packing is of the CPU's products
def test_convolutions_and_their_normalisations(calls_of):
    fl.manual_seed(1)
    model = Convolutions().eval()
    compiled = fl.compile(model, options=FREEZING)
    x = fl.randn(2, 3, 32, 32)
    seen = calls_of(compiled, x)
    assert seen.count("_convolution_finished") == 1 and seen.count("conv2d") == 3
    assert not set(seen) & {"sub.Tensor", "mul.Tensor", "rsqrt", "_convolution_packed"}
    with fl.no_grad():
        fl.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        for change in (
            model.norms[0].running_var, model.norms[1].weight, model.norms[2].bias, model.norms[3].running_mean,
            model.wide.weight, model.thin.bias, model.stem.weight,
        ):  # fmt: skip
            change.mul_(1.5)
            fl.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_training_is_not_frozen():
    model = mlp()
    compiled = fl.compile(model, options=FREEZING)
    x = fl.randn(9, 20)
    for _ in range(2):
        compiled(x).sum().backward()
        mine = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).sum().backward()
        for a, p in zip(mine, model.parameters()):
            fl.testing.assert_close(a, p.grad)
        model.zero_grad()
        with fl.no_grad():
            for p in model.parameters():
                p.mul_(0.9)
            fl.testing.assert_close(compiled(x), model(x))


def test_statistics_that_are_collected_are_not_frozen():
    fl.manual_seed(2)
    model, twin = Convolutions(), Convolutions()
    twin.load_state_dict(model.state_dict())
    compiled = fl.compile(model, options=FREEZING)
    with fl.no_grad():
        for _ in range(3):
            x = fl.randn(2, 3, 16, 16)
            fl.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-4)
            for a, b in zip(model.buffers(), twin.buffers()):
                fl.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


class Reads(nn.Module):
    """Results that are made of parameters alone, and random numbers that only look so."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(fl.randn(8, 8))

    def forward(self, x):
        table = self.weight.softmax(-1)
        return x @ table, table * 2, fl.rand_like(self.weight), self.weight.exp()


def test_results_are_the_callers_own():
    fl.manual_seed(3)
    model = Reads().eval()
    compiled = fl.compile(model, options=FREEZING)
    x = fl.randn(4, 8)
    with fl.no_grad():
        for _ in range(3):
            got, expected = compiled(x), model(x)
            for i in (0, 1, 3):
                fl.testing.assert_close(got[i], expected[i])
                got[i].zero_()
        assert not fl.equal(compiled(x)[2], compiled(x)[2])


def test_two_copies_of_a_model_have_their_own():
    first = mlp()
    second = copy.deepcopy(first)
    with fl.no_grad():
        second[0].weight.mul_(3)
        x = fl.randn(5, 20)

        def both(x):
            return first(x), second(x)

        compiled = fl.compile(both, options=FREEZING)
        for got, expected in zip(compiled(x), both(x)):
            fl.testing.assert_close(got, expected)
        one = fl.compile(lambda m, x: m(x), options=FREEZING)
        for model in (first, second, first):
            fl.testing.assert_close(one(model, x), model(x))


@pytest.mark.host  # packing is of the CPU's products
def test_inference_mode_and_the_setting(calls_of):
    model = mlp()
    x = fl.randn(5, 20)
    with config.patch("freezing", True), fl.inference_mode():
        compiled = fl.compile(model)
        assert calls_of(compiled, x, title="kept") == ["_product_packed"] * 3
        fl.testing.assert_close(compiled(x), model(x))


def test_conversions_are_made_once(calls_of):
    model = mlp()
    compiled = fl.compile(model, options=FREEZING)
    x = fl.randn(5, 20)
    with fl.autocast("cpu", dtype=fl.bfloat16):
        assert "_to_copy" not in calls_of(compiled, x)[1:]
        with fl.no_grad():
            fl.testing.assert_close(compiled(x), model(x))
            model[2].weight.mul_(2)
            fl.testing.assert_close(compiled(x), model(x))


def test_what_was_packed_goes_with_the_function():
    model = mlp()
    weight = model[0].weight
    storage = fl.Tensor.untyped_storage(weight)
    compiled = fl.compile(model, options=FREEZING)
    with fl.no_grad():
        compiled(fl.randn(5, 20))
    del compiled, model, weight
    gc.collect()
    assert storage.nbytes() == 20 * 50 * 4  # and nothing fails when it goes last
