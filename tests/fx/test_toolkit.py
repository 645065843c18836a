"""The rest of the toolkit: fusing groups, splitting by tags, matching with names, tracing with shapes, writing in place."""

import operator

import pytest

import flambeau as fl
from flambeau import fx, nn
from flambeau.fx.experimental import debug, merge_matmul, meta_tracer, normalize, rewriter
from flambeau.fx.experimental.proxy_tensor import get_isolated_graphmodule, make_fx
from flambeau.fx.passes import annotate_getitem_nodes, graph_manipulation, param_fetch, pass_manager
from flambeau.fx.passes.graph_transform_observer import GraphTransformObserver
from flambeau.fx.passes.reinplace import reinplace
from flambeau.fx.passes.split_module import split_module_simple
from flambeau.fx.passes.split_utils import getattr_recursive, setattr_recursive, split_by_tags
from flambeau.fx.passes.utils import compare_graphs, fuser_utils, source_matcher_utils
from flambeau.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.scale = nn.Parameter(fl.rand(8))

    def forward(self, x):
        y = fl.relu(self.first(x)) * self.scale
        return self.second(y) + 1, y.sum()


def nodes(module):
    return {n.name: n for n in module.graph.nodes}


def same(a, b):
    assert all(fl.allclose(x, y) for x, y in zip(a, b, strict=True))


def test_groups_become_submodules():
    net = Net()
    module = fx.symbolic_trace(net)
    x = fl.rand(3, 4)
    named = nodes(module)
    groups = [[named["first"], named["relu"]], [named["mul"], named["sum_1"]]]
    fused = fuser_utils.fuse_by_partitions(module, [dict.fromkeys(g) for g in groups])
    fused.graph.lint()
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == ["fused_0", "fused_1", "second"]
    same(fused(x), net(x))


def test_a_group_that_a_path_leaves_and_enters_is_refused():
    module = fx.symbolic_trace(lambda x: x.sin() + x.sin().cos())
    first, second, cos, add = [n for n in module.graph.nodes if n.op.startswith("call")]
    assert not fuser_utils.validate_partition([second, add])
    assert fuser_utils.validate_partition([second, cos, add])
    with pytest.raises(AssertionError):
        fuser_utils.fuse_as_graphmodule(module, [second, add], "part")
    assert fuser_utils.topo_sort([add, cos, second, first])[-1] is add


def test_parts_by_tag():
    net = Net()
    module = fx.symbolic_trace(net)
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.tag = "front" if node.name in ("first", "relu") else "back"
    x = fl.rand(3, 4)
    split, names = split_by_tags(module, ["front", "back"], return_fqn_mapping=True)
    assert [name for name, _ in split.named_children()] == ["front", "back"]
    same(split(x), net(x))
    assert all(key.startswith(("front.", "back.")) for key in names)
    same(split_by_tags(module, ["front", "back"], return_tuple=True)(x), net(x))
    next(n for n in module.graph.nodes if n.name == "mul").tag = "other"
    with pytest.raises(AssertionError, match="other"):
        split_by_tags(module, ["front", "back"])


def test_parts_by_dict():
    module = fx.symbolic_trace(lambda x: (x + 1).sin() * 2)
    numbers = {n: i // 2 for i, n in enumerate(module.graph.nodes)}
    x = fl.rand(3)
    assert fl.equal(split_module_simple(module, numbers)(x), module(x))


def test_attributes_by_path():
    net = nn.Sequential(nn.Linear(2, 2))
    setattr_recursive(net, "0.note", 3)
    assert getattr_recursive(net, "0.note") == 3
    assert getattr_recursive(net, "0.none.there") is None


def test_patterns_with_names():
    def pattern(x, w):
        product = x @ w
        return fl.relu(product), {"product": product}

    module = fx.symbolic_trace(lambda a, b: fl.relu(a @ b) + fl.relu(b @ a))
    matches = SubgraphMatcherWithNameNodeMap(fx.symbolic_trace(pattern)).match(module.graph)
    assert [m.name_node_map["product"].name for m in matches] == ["matmul", "matmul_1"]


def test_graphs_are_compared_without_names():
    a, b = fx.symbolic_trace(lambda x: x.sin() + 1), fx.symbolic_trace(lambda value: value.sin() + 1)
    c = fx.symbolic_trace(lambda x: x.cos() + 1)
    assert compare_graphs(a.graph, b.graph)
    assert not compare_graphs(a.graph, c.graph)


def test_groups_by_source():
    module = fx.symbolic_trace(nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2)))
    found = source_matcher_utils.get_source_partitions(module.graph, [nn.Linear, nn.ReLU])
    assert {k: len(v) for k, v in found.items()} == {nn.Linear: 2, nn.ReLU: 1}
    first, last = found[nn.Linear]
    (relu,) = found[nn.ReLU]
    assert source_matcher_utils.check_subgraphs_connected(first, relu)
    assert not source_matcher_utils.check_subgraphs_connected(last, relu)


def test_pass_managers_keep_constraints():
    ran = []
    first = pass_manager.inplace_wrapper(lambda m: ran.append("first"))
    second = pass_manager.inplace_wrapper(lambda m: ran.append("second"))
    first.__name__, second.__name__ = "first", "second"
    manager = pass_manager.PassManager(
        [first, pass_manager.loop_pass(second, n_iter=2)],
        [pass_manager.this_before_that_pass_constraint(first, second)],
    )
    assert manager("module") == "module"
    assert ran == ["first", "second", "second"]
    manager = pass_manager.PassManager([second, first], [pass_manager.this_before_that_pass_constraint(first, second)])
    with pytest.raises(RuntimeError, match="order"):
        manager("module")


def test_attributes_for_lowering():
    module = fx.symbolic_trace(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()))
    param_fetch.lift_lowering_attrs_to_nodes(module)
    first = next(n for n in module.graph.nodes if n.op == "call_module")
    assert first.attrs_for_lowering["name"].endswith("Conv2d")
    assert first.attrs_for_lowering["kernel_size"] == (3, 3)


def test_sizes_of_nodes_and_replaced_targets():
    module = fx.symbolic_trace(Net())
    graph_manipulation.get_size_of_all_nodes(module, [fl.rand(3, 4)])
    assert nodes(module)["first"].size_bytes == (3 * 8 * 4, 3 * 8 * 4 + (4 * 8 + 8) * 4)
    graph_manipulation.replace_target_nodes_with(module, "call_function", fl.relu, "call_function", fl.sigmoid)
    assert fl.relu not in {n.target for n in module.graph.nodes}
    module.graph.lint()


def test_types_of_items():
    graph = fx.Graph()
    x = graph.placeholder("x", type_expr=tuple[int, str])
    item = graph.call_function(operator.getitem, (x, 1))
    graph.output(item)
    annotate_getitem_nodes.annotate_getitem_nodes(graph)
    assert item.type is str


def test_an_observer_sees_what_a_pass_does():
    module = fx.symbolic_trace(lambda x: x.relu())
    observer = GraphTransformObserver(module, "replace")
    observer.apply_gm_pass(lambda m: fx.replace_pattern(m, lambda x: x.relu(), lambda x: x.sin().cos()))
    assert observer.erased_nodes == {"relu"}
    assert len(observer.created_nodes) == 2


def test_arguments_by_keyword():
    module = fx.symbolic_trace(lambda x: fl.nn.functional.max_pool2d(fl.add(x, 1), 2))
    made = normalize.NormalizeArgs(module).transform()
    pool = next(n for n in made.graph.nodes if "pool" in n.name)
    assert pool.args == ()
    assert pool.kwargs["kernel_size"] == 2
    x = fl.rand(1, 1, 4, 4)
    assert fl.equal(made(x), module(x))


def test_operators_as_functions():
    module = fx.symbolic_trace(lambda x, y: (x + y) * 2 - x / y)
    made = normalize.NormalizeOperators(module).transform()
    targets = [n.target for n in made.graph.nodes if n.op == "call_function"]
    assert targets == [fl.add, fl.mul, fl.div, fl.sub]
    x, y = fl.rand(3), fl.rand(3)
    assert fl.equal(made(x, y), module(x, y))


def test_products_with_one_factor_are_merged():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(fl.rand(4, 3))

        def forward(self, a, b):
            return fl.matmul(a, self.w) + 1, fl.matmul(b, self.w)

    module, a, b = Two(), fl.rand(2, 4), fl.rand(5, 4)
    merged = merge_matmul.merge_matmul(module)
    assert sum(n.target is fl.matmul for n in merged.graph.nodes) == 1
    same(merged(a, b), module(a, b))


def test_asserts_are_recorded():
    scope = {}  # from source, because pytest rewrites asserts of test modules
    exec("def f(x):\n    assert x.sum() > 0\n    return x + 1", scope)
    module = fx.GraphModule(nn.Module(), rewriter.RewritingTracer().trace(scope["f"]))
    with pytest.raises(AssertionError):
        module(-fl.ones(2))
    assert fl.equal(module(fl.ones(2)), fl.ones(2) + 1)


class Shapes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        y = self.layer(x)
        if y.shape[0] == 2 and y.dim() == 2:
            y = y.view(y.size(0) * y.size(1))
        for _ in range(len(y)):
            y = y + 1
        return y


def test_code_may_branch_on_known_shapes():
    model, x = Shapes(), fl.rand(2, 4)
    module = meta_tracer.symbolic_trace(model, meta_args={"x": x})
    assert sum(n.target is operator.add for n in module.graph.nodes) == 6
    assert fl.equal(module(x), model(x))
    with pytest.raises(fx.TraceError):
        fx.symbolic_trace(model)


def test_operators_write_where_nobody_looks():
    def f(x):
        a = x + 1
        b = a.sin()
        c = b.view(-1) * 2
        return c.relu() + x.sum(), a

    x = fl.rand(2, 3)
    expected = f(x)
    module = reinplace(make_fx(f)(x), x)
    names = [n.target._opname for n in module.graph.nodes if n.op == "call_function"]
    assert names == ["add", "sin", "view", "mul_", "relu_", "sum", "add_"]
    kept = x.clone()
    same(module(x), expected)
    assert fl.equal(x, kept)


def test_a_breakpoint_is_put_into_the_code():
    module = debug.set_trace(fx.symbolic_trace(lambda x: x + 1))
    assert "pdb.set_trace()" in module.code


def test_graphs_apart_from_what_is_traced():
    inner = []

    def f(x):
        inner.append(get_isolated_graphmodule(lambda a, b: a * b, (x, x), {}))
        return x + 1

    module = make_fx(f)(fl.rand(2))
    assert [n.target._opname for n in module.graph.nodes if n.op == "call_function"] == ["add"]
    assert any(n.op == "call_function" and n.target._opname == "mul" for n in inner[0].graph.nodes)


def test_interpreters_know_the_modules_of_their_graph():
    class WithoutDropout(fx.Transformer):
        def call_module(self, target, args, kwargs):
            return (
                args[0]
                if isinstance(self.submodules[target], nn.Dropout)
                else super().call_module(target, args, kwargs)
            )

    module = WithoutDropout(fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.Dropout(0.5)))).transform()
    assert [n.target for n in module.graph.nodes if n.op == "call_module"] == ["0"]
