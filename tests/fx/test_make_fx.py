"""make_fx: the operators that a function calls, with its gradients, as a graph that computes the same for other inputs."""

import pytest

import flambeau as fl
from flambeau import fx, nn
from flambeau._subclasses import FakeTensorMode
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.ops.symbolic import ShapeEnv
from flambeau.utils import _pytree as pytree

F = nn.functional
MODES = ["real", "fake", "symbolic"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)
        self.register_buffer("shift", fl.rand(6))

    def forward(self, x):
        y = F.gelu(self.norm(self.first(x))) + self.shift
        return F.log_softmax(self.second(y), dim=-1)


def double_backward(x):
    y = (x.tanh() * x.exp()).sum()
    (g,) = fl.autograd.grad(y, x, create_graph=True)
    return fl.autograd.grad((g**2).sum(), x)


def write_through_a_view(x):
    y = x * 2
    y[:, 1].mul_(x[:, 0])
    y[0] = x[1].sin()
    return fl.autograd.grad((y**2).sum(), x)


def write_to_a_base(x):
    y = x * 3
    row = y[0]
    y.mul_(x)
    y.add_(1)
    return fl.autograd.grad((row * y).sum(), x)


def several_results(x):
    values, indices = x.sort(dim=1)
    a, b = values.chunk(2, dim=1)
    return fl.autograd.grad((a * b.exp()).sum() + x.max(dim=0).values.sum(), x)[0], indices


def broadcasting(x):
    w = fl.ones(x.shape[1], requires_grad=True)
    b = fl.ones(1, 1, requires_grad=True)
    return fl.autograd.grad(((x * w + b) ** 3).mean(), [x, w, b])


def reshaping(x):
    y = x.reshape(-1).view(2, -1).t().contiguous().flatten().unsqueeze(0).expand(3, -1)
    return fl.autograd.grad((fl.cat([y, y * 2]) ** 2).sum(), x)


def attention(x):
    scores = fl.softmax(x @ x.mT / 2.0, -1)
    return fl.autograd.grad((scores @ x).pow(2).sum(), x)


def convolution(x):
    image = x.view(1, 1, *x.shape)
    y = F.max_pool2d(F.conv2d(image, fl.ones(2, 1, 2, 2), padding=1), 2)
    return fl.autograd.grad(F.interpolate(y, scale_factor=2).square().sum(), x)


def gradient_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 5)
    return fl.autograd.grad((y**2).sum(), x)


class Cube(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 30 * g * x**2


def own_function(x):
    return fl.autograd.grad(Cube.apply(x * 2).sum(), x)


def functional(x):
    return fl.func.grad(lambda t: (t.sin() * t).sum())(x)


FUNCTIONS = [
    double_backward, write_through_a_view, write_to_a_base, several_results, broadcasting, reshaping, attention, convolution,
    gradient_hook, own_function, functional,
]  # fmt: skip


def compare(module, function, *inputs):
    module.graph.lint()
    for got, want in zip(pytree.tree_leaves(module(*inputs)), pytree.tree_leaves(function(*inputs)), strict=True):
        assert got.dtype == want.dtype
        assert fl.allclose(got, want, atol=1e-5, rtol=1e-4), (got, want)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_inside_a_function(function, mode):
    fl.manual_seed(0)
    module = make_fx(function, tracing_mode=mode)(fl.rand(4, 6, requires_grad=True))
    compare(module, function, fl.rand(4, 6, requires_grad=True))


@pytest.mark.parametrize(
    "function", [double_backward, broadcasting, reshaping, attention, several_results], ids=lambda f: f.__name__
)
def test_a_symbolic_graph_of_gradients_serves_other_sizes(function):
    module = make_fx(function, tracing_mode="symbolic")(fl.rand(4, 6, requires_grad=True))
    compare(module, function, fl.rand(6, 8, requires_grad=True))


@pytest.mark.parametrize("mode", MODES)
def test_parameters_and_constants_become_attributes(mode):
    net, scale = Net().eval(), fl.rand(4)
    module = make_fx(lambda x: net(x * scale) + net.second.bias, tracing_mode=mode)(fl.rand(2, 4))
    targets = [n.target for n in module.graph.nodes if n.op == "get_attr"]
    assert targets[:3] == ["_tensor_constant0", "_param_constant0", "_param_constant1"]
    assert module._param_constant0 is net.first.weight
    assert len(list(module.parameters())) == 6
    compare(module, lambda x: net(x * scale) + net.second.bias, fl.rand(2, 4))


@pytest.mark.parametrize("mode", MODES)
def test_a_training_step(mode):
    net = Net()

    def step(x, target):
        loss = F.nll_loss(net(x), target)
        return loss, fl.autograd.grad(loss, list(net.parameters()))

    module = make_fx(step, tracing_mode=mode)(fl.rand(5, 4), fl.tensor([0, 1, 2, 0, 1]))
    compare(module, step, fl.rand(5, 4), fl.tensor([2, 2, 1, 0, 0]))


@pytest.mark.parametrize("mode", MODES)
def test_decompositions_apply_to_backward_too(mode):
    table = {fl.ops.aten.tanh.default: lambda x: 2 * fl.sigmoid(2 * x) - 1}
    module = make_fx(double_backward, table, mode)(fl.rand(2, 3, requires_grad=True))
    assert fl.ops.aten.tanh.default not in {n.target for n in module.graph.nodes}
    compare(module, double_backward, fl.rand(2, 3, requires_grad=True))


@pytest.mark.parametrize("mode", MODES)
def test_pre_dispatch_keeps_operators_whole(mode):
    function = lambda x: fl.nn.functional.normalize(x.flatten(1)).chunk(2, 1)  # noqa: E731
    x = fl.rand(3, 2, 2)
    whole = make_fx(function, tracing_mode=mode, pre_dispatch=True)(x)
    parts = make_fx(function, tracing_mode=mode)(x)
    assert len(whole.graph.nodes) < len(parts.graph.nodes)
    compare(whole, function, fl.rand(3, 2, 2))
    compare(parts, function, fl.rand(3, 2, 2))


def test_modules_keep_their_names_when_the_stack_is_recorded():
    net = Net()
    module = make_fx(net, record_module_stack=True)(fl.rand(2, 4))
    assert {n.target for n in module.graph.nodes if n.op == "get_attr"} == {*dict(net.named_parameters()), "shift"}
    (first,) = [n for n in module.graph.nodes if n.target is fl.ops.aten.addmm.default][:1]
    assert list(first.meta["nn_module_stack"]) == ["", "first"]
    compare(module, net, fl.rand(2, 4))


def test_what_autograd_saved_is_found_again():
    module = make_fx(double_backward)(fl.rand(2, 3, requires_grad=True))
    assert all(n.target.startswith("_tensor_constant") for n in module.graph.nodes if n.op == "get_attr")
    assert all(b.numel() == 1 for b in module.buffers())


def test_a_value_that_backward_needs_must_not_be_overwritten():
    def function(x):
        y = x.exp()
        y.mul_(2)
        return fl.autograd.grad(y.sum(), x)

    for mode in MODES:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            make_fx(function, tracing_mode=mode)(fl.rand(3, requires_grad=True))


def test_a_leaf_must_not_be_written():
    for mode in MODES:
        with pytest.raises(RuntimeError, match="leaf Variable"):
            make_fx(lambda x: x.mul_(2), tracing_mode=mode)(fl.rand(3, requires_grad=True))


def test_fakes_have_gradients_without_a_graph_module():
    net = Net()
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        x = mode.from_tensor(fl.rand(2, 4), dynamic_dims=[0])
        net(x).sum().backward()
        assert [tuple(p.grad.shape) for p in net.parameters()] == [tuple(p.shape) for p in net.parameters()]
    assert net.first.weight.grad is None
    assert isinstance(fx.symbolic_trace(net), fx.GraphModule)


@pytest.mark.parametrize("mode", MODES)
def test_graphs_of_nested_arguments_take_them_nested(mode):
    def function(params, x):
        return {"out": params["a"] * x, "all": [x, params["b"]]}

    params = {"a": fl.ones(2), "b": fl.zeros(1)}
    module = make_fx(function, tracing_mode=mode)(params, fl.ones(2))
    assert [n.name for n in module.graph.nodes if n.op == "placeholder"] == ["params_1", "params_2", "x_1"]
    made = module({"a": fl.full((2,), 3.0), "b": fl.zeros(1)}, fl.ones(2))
    assert made["out"].tolist() == [3, 3] and len(made["all"]) == 2
    listed = make_fx(lambda xs: xs[0] + xs[1], tracing_mode=mode)([fl.ones(1), fl.ones(1)])
    assert listed([fl.ones(1), fl.ones(1) * 4]).item() == 5
