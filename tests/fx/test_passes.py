"""The toolkit: rewriting, splitting, folding, fusing, drawing. Every pass leaves a graph that keeps all rules."""

import operator
import xml.etree.ElementTree as ElementTree

import pytest

import flambeau as fl
from flambeau import fx, nn
from flambeau._subclasses import FakeTensorMode
from flambeau.fx.experimental import optimization
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.passes import activations, constant_folding, cse, graph_drawer, inference
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from flambeau.fx.passes.infra.pass_manager import PassManager, this_before_that_pass_constraint
from flambeau.fx.passes.operator_support import create_op_support
from flambeau.fx.passes.shape_prop import ShapeProp
from flambeau.fx.passes.split_module import split_module
from flambeau.fx.passes.utils import SubgraphMatcher, stable_topological_sort
from flambeau.ops.symbolic import ShapeEnv

F = nn.functional


def targets(module):
    return [n.target for n in module.graph.nodes if n.op not in ("placeholder", "output")]


def close(a, b):
    return fl.allclose(a, b, atol=1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.drop = nn.Dropout(0.5)
        self.same = nn.Identity()
        self.fc = nn.Linear(4, 5)
        self.norm_fc = nn.BatchNorm1d(5)

    def forward(self, x):
        x = self.drop(self.act(self.norm(self.conv(x))))
        x = F.dropout(self.same(x).mean((2, 3)), 0.3, self.training)
        return self.norm_fc(self.fc(x))


@pytest.fixture
def net():
    model = Net().eval()
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight)
            nn.init.uniform_(module.bias)
    return model


# ---------------------------------------------------------------------------------------------- replace_pattern


def check_replaced(function, pattern, replacement, *args, count):
    module = fx.symbolic_trace(function)
    matches = fx.replace_pattern(module, pattern, replacement)
    assert len(matches) == count
    module.graph.lint()
    return module


def test_relu_becomes_gelu():
    module = check_replaced(lambda x: fl.relu(fl.relu(x) + 1), lambda x: fl.relu(x), lambda x: F.gelu(x), count=2)
    x = fl.randn(4)
    assert close(module(x), F.gelu(F.gelu(x) + 1))


def test_patterns_of_several_nodes_and_literals():
    def f(x, w, b):
        return fl.matmul(x, w) + b, (x + 1) * 2, (x + 1) * 3

    module = check_replaced(f, lambda a, b, c: fl.matmul(a, b) + c, lambda a, b, c: fl.addmm(c, a, b), count=1)
    x, w, b = fl.randn(2, 3), fl.randn(3, 4), fl.randn(4)
    assert close(module(x, w, b)[0], x @ w + b)
    assert fl.addmm in targets(module)
    module = check_replaced(f, lambda x: (x + 1) * 2, lambda x: x - 7, count=1)
    assert close(module(x, w, b)[1], x - 7)
    assert close(module(x, w, b)[2], (x + 1) * 3)


def test_a_value_used_elsewhere_is_not_matched():
    check_replaced(lambda x: (fl.relu(x) + 1, fl.relu(x)), lambda x: fl.relu(x) + 1, lambda x: x, count=1)

    def shared(x):
        y = fl.relu(x)
        return y + 1, y

    check_replaced(shared, lambda x: fl.relu(x) + 1, lambda x: x, count=0)


def test_patterns_with_several_results():
    def f(x):
        a, b = fl.sin(x), fl.cos(x)
        return (a + b) * a

    def pattern(x):
        return fl.sin(x), fl.cos(x)

    module = check_replaced(f, pattern, lambda x: (x, x * 2), count=1)
    x = fl.randn(3)
    assert close(module(x), (x + x * 2) * x)


def test_repeated_parameters_must_be_the_same_value():
    pattern = lambda a: a * fl.sigmoid(a)  # noqa: E731
    module = check_replaced(lambda x, y: (x * fl.sigmoid(x), x * fl.sigmoid(y)), pattern, lambda a: F.silu(a), count=1)
    x, y = fl.randn(3), fl.randn(3)
    assert close(module(x, y)[0], F.silu(x))
    assert close(module(x, y)[1], x * fl.sigmoid(y))


def test_chains_of_matches():
    module = check_replaced(lambda x: x.neg().neg().neg(), lambda x: x.neg(), lambda x: x + 1, count=3)
    assert module(fl.zeros(1)).tolist() == [3]


def test_keywords_match_positions():
    check_replaced(lambda x: fl.sum(x, dim=1), lambda x: fl.sum(x, 1), lambda x: fl.mean(x, 1), count=1)


def test_matching_modules_and_filters(net):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)
            self.norm = nn.BatchNorm2d(1)

        def forward(self, x):
            return self.norm(self.conv(x))

    module = fx.symbolic_trace(net)
    matches = SubgraphMatcher(fx.symbolic_trace(Pair()).graph).match(module.graph)
    assert [m.returning_nodes[0].name for m in matches] == ["norm"]
    done = fx.subgraph_rewriter.replace_pattern_with_filters(
        fx.symbolic_trace(lambda x: (x + 1, x + 2)),
        lambda x, n: x + n,
        lambda x, n: x - n,
        match_filters=[lambda match, graph, pattern: match.placeholder_nodes[1] == 2],
    )
    assert len(done) == 1


def test_replacement_brings_its_modules():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x)

    scale = Scale()
    module = fx.symbolic_trace(lambda x: fl.relu(x) * 2)
    fx.replace_pattern(module, lambda x: fl.relu(x), scale)
    x = fl.randn(2, 3)
    assert close(module(x), scale(x) * 2)


# ---------------------------------------------------------------------------------------------- inference


def test_folding_batch_norm(net):
    x = fl.randn(2, 3, 5, 5)
    module = optimization.fuse(net)
    module.graph.lint()
    assert "norm" not in targets(module)
    assert "norm_fc" not in targets(module)
    assert close(module(x), net(x))


@pytest.mark.parametrize("groups", [1, 2])
def test_folding_into_transposed_convolutions(groups):
    layer, norm = nn.ConvTranspose2d(4, 6, 3, groups=groups), nn.BatchNorm2d(6).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x = fl.randn(2, 4, 5, 5)
    assert close(inference.folded(layer, norm)(x), norm(layer(x)))


def test_a_layer_used_twice_is_not_folded(net):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = net.conv, net.norm

        def forward(self, x):
            return self.norm(self.conv(x)) + self.conv(x)

    module = fx.symbolic_trace(Twice().eval())
    assert inference.fold_batch_norm(module) == 0


def test_dropout_goes(net):
    module = fx.symbolic_trace(net)
    assert inference.remove_dropout(module) == 2
    module.graph.lint()
    x = fl.randn(2, 3, 5, 5)
    assert close(module(x), net(x))
    assert "drop" not in dict(module.named_modules())


def test_prepare_for_inference(net):
    x = fl.randn(2, 3, 5, 5)
    module = inference.prepare_for_inference(net)
    module.graph.lint()
    assert close(module(x), net(x))
    assert [str(t) for t in targets(module) if isinstance(t, str)] == ["conv", "mean", "fc"]


def test_activations_are_replaced_in_every_form():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x) + F.relu(x) + fl.relu(x) + x.relu()

    model = Mixed()
    module = fx.symbolic_trace(model)
    assert activations.replace_activation(module, "relu", "leaky_relu", negative_slope=0.5) == 4
    module.graph.lint()
    x = fl.randn(5)
    assert close(module(x), 4 * F.leaky_relu(x, 0.5))
    assert activations.replace_activation(module, "leaky_relu", nn.GELU()) == 4
    assert close(module(x), 4 * F.gelu(x))


# ---------------------------------------------------------------------------------------------- folding and merging


def test_constants_are_computed_once():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", fl.arange(3.0))
            self.p = nn.Parameter(fl.ones(3))

        def forward(self, x):
            return x + self.b.cos() * 2 + self.p.sin() + fl.ones(3)

    class Buffers(fx.Tracer):
        proxy_buffer_attributes = True

    model = Table()
    module = fx.GraphModule(model, Buffers().trace(model))
    x = fl.randn(3)
    assert constant_folding.fold_constants(module)
    module.graph.lint()
    assert close(module(x), model(x))
    assert "cos" not in targets(module)
    assert "sin" in targets(module)  # the parameter may still be trained


def test_common_subexpressions_are_merged():
    module = fx.symbolic_trace(lambda x: (x.cos() + 1) * (x.cos() + 1) + fl.sin(x) + fl.sin(x))
    assert cse.eliminate_common_subexpressions(module)
    module.graph.lint()
    assert len([t for t in targets(module) if t in ("cos", fl.sin)]) == 2
    x = fl.randn(3)
    assert close(module(x), (x.cos() + 1) ** 2 + 2 * fl.sin(x))


def test_what_is_written_or_random_is_not_merged():
    def f(x):
        a, b = x + 1, x + 1
        a.add_(1)
        return a, b, fl.rand(3), fl.rand(3)

    module = fx.symbolic_trace(f)
    assert not cse.eliminate_common_subexpressions(module)
    a, b, _, _ = module(fl.zeros(3))
    assert a.tolist() == [2, 2, 2]
    assert b.tolist() == [1, 1, 1]


def test_numbers_of_different_types_are_different():
    module = fx.symbolic_trace(lambda x: (x * 1, x * 1.0, x * True))
    assert not cse.eliminate_common_subexpressions(module)


# ---------------------------------------------------------------------------------------------- splitting


def test_split_module(net):
    module = fx.symbolic_trace(net)
    order = {n: i for i, n in enumerate(module.graph.nodes)}
    names = {}
    split = split_module(module, net, lambda n: order[n] // 3, names)
    split.graph.lint()
    for child in split.children():
        child.graph.lint()
    x = fl.randn(2, 3, 5, 5)
    assert close(split(x), net(x))
    assert "conv" in names.values()
    with pytest.raises(RuntimeError, match="circle"):
        split_module(module, net, lambda n: order[n] % 2)


def test_split_with_many_values_between_parts():
    module = fx.symbolic_trace(lambda x: (x.sin() + x.cos(), x.sin() * 2))
    order = {n: i for i, n in enumerate(module.graph.nodes)}
    split = split_module(module, None, lambda n: 0 if order[n] < 3 else 1)
    x = fl.randn(3)
    assert all(close(a, b) for a, b in zip(split(x), module(x)))


# ---------------------------------------------------------------------------------------------- shapes and pictures


def test_shape_propagation(net):
    module = fx.symbolic_trace(net)
    ShapeProp(module).propagate(fl.randn(2, 3, 5, 5))
    conv = next(n for n in module.graph.nodes if n.name == "conv")
    assert conv.meta["tensor_meta"].shape == (2, 4, 5, 5)
    assert conv.meta["tensor_meta"].dtype == fl.float32


def test_fake_propagation_with_symbolic_sizes(net):
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    x = mode.from_tensor(fl.randn(2, 3, 8, 8), dynamic_dims=[0, 2])
    module = fx.symbolic_trace(net)
    FakeTensorProp(module, mode).propagate(x)
    sizes = {n.name: n.meta["val"].shape for n in module.graph.nodes if hasattr(n.meta.get("val"), "shape")}
    assert str(sizes["conv"]) == "torch.Size([s0, 4, s1, 8])"
    assert str(sizes["norm_fc"]) == "torch.Size([s0, 5])"
    assert "f32[s0, 4, s1, 8]" in module.print_readable(False)


def test_drawing(net, tmp_path):
    module = fx.symbolic_trace(net)
    ShapeProp(module).propagate(fl.randn(2, 3, 5, 5))
    drawing = graph_drawer.FxGraphDrawer(module, "net").get_dot_graph()
    assert '"conv" -> "norm";' in drawing.to_string()
    drawing.write_svg(tmp_path / "net.svg")
    root = ElementTree.parse(tmp_path / "net.svg").getroot()
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"conv", "norm", "f32[2, 4, 5, 5]"} <= set(texts)


def test_boxes_do_not_overlap():
    module = fx.symbolic_trace(lambda x, y: (x.sin() + y.cos()) * (x + 1) - (y * 2 + x.tan()))
    root = ElementTree.fromstring(graph_drawer.FxGraphDrawer(module, "f").get_dot_graph().svg())
    boxes = [
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height"))
        for g in root.iter("{http://www.w3.org/2000/svg}g")
        for r in g.iter("{http://www.w3.org/2000/svg}rect")
    ]
    for i, (ax, ay, aw, ah) in enumerate(boxes):
        for bx, by, bw, bh in boxes[i + 1 :]:
            assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay


def test_tabular(net):
    text = fx.symbolic_trace(net).graph.tabular()
    assert text.split("\n")[0].split() == ["opcode", "name", "target", "args", "kwargs"]


# ---------------------------------------------------------------------------------------------- the rest


def test_sorting_repairs_an_order():
    module = fx.symbolic_trace(lambda x: (x + 1) * 2)
    first, second = [n for n in module.graph.nodes if n.op == "call_function"]
    second.append(first)
    with pytest.raises(RuntimeError):
        module.graph.lint()
    stable_topological_sort(module)
    module.graph.lint()


def test_pass_manager_keeps_constraints():
    ran = []

    def first(module):
        ran.append("first")

    def second(module):
        ran.append("second")

    manager = PassManager([second, first], [this_before_that_pass_constraint(first, second)])
    manager(fx.symbolic_trace(lambda x: x + 1))
    assert ran == ["first", "second"]


def test_partitions_are_fused_without_circles():
    def f(x):
        a = x.sin() + 1  # supported
        b = a.tanh()  # not
        c = b.cos() * a  # supported, and needs both
        return c.sin(), a.cos()

    module = fx.symbolic_trace(f)
    support = create_op_support(lambda modules, node: node.target != "tanh")
    fused = CapabilityBasedPartitioner(module, support).partition_and_fuse()
    fused.graph.lint()
    calls = [n.target for n in fused.graph.nodes if n.op in ("call_module", "call_method")]
    assert calls == ["fused_0", "tanh", "fused_1"]
    x = fl.randn(3)
    assert all(close(a, b) for a, b in zip(fused(x), f(x)))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode):
    def f(x, w):
        y = F.gelu(x @ w).softmax(-1)
        return {"a": y.view(-1), "b": y.chunk(2, 0)[0].sum(), "c": x.new_zeros(x.shape[0], 2)}

    x, w = fl.randn(4, 3), fl.randn(3, 5)
    module = make_fx(f, tracing_mode=mode)(x, w)
    module.graph.lint()
    sizes = [4] if mode != "symbolic" else [4, 6, 2]
    for n in sizes:
        x = fl.randn(n, 3)
        assert all(close(module(x, w)[k], v) for k, v in f(x, w).items())


def test_make_fx_sees_the_backward():
    def f(x):
        x = x.detach().requires_grad_(True)
        return fl.autograd.grad((x.sin() * x).sum(), x)[0]

    module = make_fx(f)(fl.randn(3))
    x = fl.randn(3)
    assert close(module(x), x.cos() * x + x.sin())


def test_make_fx_with_decompositions():
    table = {fl.ops.aten.silu.default: lambda x: x * fl.sigmoid(x)}
    for mode in ("real", "fake"):
        module = make_fx(lambda x: F.silu(x), table, mode)(fl.randn(3))
        assert fl.ops.aten.sigmoid.default in targets(module)


def test_to_folder(net, tmp_path):
    module = fx.symbolic_trace(net)
    module.to_folder(tmp_path / "saved", "Saved")
    import importlib.util

    spec = importlib.util.spec_from_file_location("saved_net", tmp_path / "saved" / "module.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    again = loaded.Saved().eval()
    x = fl.randn(2, 3, 5, 5)
    assert close(again(x), net(x))


def test_deepcopy_of_a_rewritten_module_is_independent(net):
    import copy

    module = fx.symbolic_trace(net)
    twin = copy.deepcopy(module)
    inference.remove_dropout(twin)
    assert "drop" in targets(module)
    assert module.conv is not twin.conv


def test_normalized_arguments():
    module = fx.symbolic_trace(lambda x: fl.sum(x, 1))
    node = next(n for n in module.graph.nodes if n.target is fl.sum)
    found = node.normalized_arguments(module, normalize_to_only_use_kwargs=True)
    assert found.kwargs["dim"] == 1
    assert operator.eq(found.kwargs["keepdim"], False)
