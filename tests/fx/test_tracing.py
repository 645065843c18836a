"""Symbolic tracing: what is recorded, what is refused and how."""

import math
import operator
import threading

import pytest

import flambeau as fl
from flambeau import fx


def wrapped_helper(x, n):
    return x * len(x) if n else x


fx.wrap("wrapped_helper")
fx.wrap("len")


def targets(module):
    return [n.target for n in module.graph.nodes if n.op not in ("placeholder", "output")]


def test_every_operator_is_recorded():
    def f(a, b):
        return [
            a + b, a - b, a * b, a / b, a // b, a % b, a**2, a @ b, -a, +a, abs(a), a < b, a <= b, a > b, a >= b, a == b,
            a != b, 1 + a, 1 - a, 2 * a, 1 / a, 2**a, a[0], a[1:], a[..., None],
        ]  # fmt: skip

    module = fx.symbolic_trace(f)
    module.graph.lint()
    a, b = fl.rand(3) + 1, fl.rand(3) + 1
    for got, expected in zip(module(a, b), f(a, b)):
        assert fl.equal(got, expected)

    def bits(a, b):
        return [a & b, a | b, a ^ b, ~a, a << 1, a >> 1, 3 & a, 3 | a, 3 ^ a]

    a, b = fl.tensor([1, 2, 3]), fl.tensor([5, 6, 7])
    for got, expected in zip(fx.symbolic_trace(bits)(a, b), bits(a, b)):
        assert fl.equal(got, expected)


def branch(x):
    if x.sum() > 0:
        return x
    return -x


def loop(x):
    return [row + 1 for row in x]


def length(x):
    from builtins import len as count

    return x * count(x)


def turns(x):
    return [x for _ in range(x.shape[0])]


@pytest.mark.parametrize(
    "function, words", [(branch, "torch.where"), (loop, "iteration"), (length, "x.shape"), (turns, "concrete_args")]
)
def test_untraceable_code_names_line_and_cure(function, words):
    with pytest.raises(fx.TraceError) as caught:
        fx.symbolic_trace(function)
    text = str(caught.value)
    assert words in text
    assert __file__ in text
    assert f"in {function.__name__}" in text or "listcomp" in text


def test_wrap_records_one_call():
    module = fx.symbolic_trace(lambda x: wrapped_helper(x, 1) + len(x))
    assert [getattr(t, "__name__", t) for t in targets(module)] == ["wrapped_helper", "len", "add"]
    assert module(fl.ones(3)).tolist() == [6, 6, 6]
    assert not hasattr(wrapped_helper, "__fx_wraps__")


def test_math_functions_are_recorded():
    module = fx.symbolic_trace(lambda n: math.sqrt(n) + math.floor(n))
    assert module(9.5) == math.sqrt(9.5) + 9
    assert math.sqrt(4) == 2


def test_concrete_args_decide_branches():
    def f(x, flag, pair):
        if flag:
            return x + pair[0]
        return x - pair[1]

    module = fx.symbolic_trace(f, concrete_args={"flag": True})
    assert module(fl.ones(1), True, (2, 3)).tolist() == [3]
    with pytest.raises(AssertionError, match="flag has been specialized"):
        module(fl.ones(1), False, (2, 3))


def test_concrete_args_with_containers_of_inputs():
    def f(inputs):
        return {"sum": inputs["a"] + inputs["b"], "a": inputs["a"]}

    module = fx.symbolic_trace(f, concrete_args={"inputs": {"a": fx.PH, "b": fx.PH}})
    out = module({"a": fl.ones(2), "b": fl.ones(2)})
    assert out["sum"].tolist() == [2, 2]
    module.graph.lint()


def test_star_arguments():
    def f(x, *rest, scale, **named):
        return x * scale + rest[0] + named["y"]

    module = fx.symbolic_trace(f)
    assert [str(n.target) for n in module.graph.nodes if n.op == "placeholder"] == ["x", "scale", "*rest", "**named"]


class Inner(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = fl.nn.Parameter(fl.ones(2))

    def forward(self, x):
        return x * self.p + fl.tensor([1.0, 2.0])


class Outer(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.layers = fl.nn.Sequential(Inner(), Inner())

    def forward(self, x):
        return self.layers(self.inner(self.inner(x)))


def test_submodules_are_traced_through_and_leaves_are_not():
    model = Outer()
    module = fx.symbolic_trace(model)
    x = fl.randn(2)
    assert fl.equal(module(x), model(x))
    assert "inner.p" in targets(module)
    assert "layers.0.p" in targets(module)

    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, Inner)

    tracer = Leaves()
    leaf_module = fx.GraphModule(model, tracer.trace(model))
    assert targets(leaf_module) == ["inner", "inner", "layers.0", "layers.1"]
    assert fl.equal(leaf_module(x), model(x))


def test_nodes_know_the_modules_they_come_from():
    module = fx.symbolic_trace(Outer())
    stacks = [list(n.meta.get("nn_module_stack", {})) for n in module.graph.nodes if n.op == "call_function"]
    assert stacks[0] == ["inner"]
    assert stacks[-1] == ["layers", "layers.1"]


def test_other_threads_do_not_notice_a_trace():
    model = Inner()
    seen = []

    class Slow(fl.nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=lambda: seen.append(model(fl.ones(2)).tolist()))
            thread.start()
            thread.join()
            return x + 1

    fx.symbolic_trace(Slow())
    assert seen == [[2, 3]]
    assert "__call__" not in fl.nn.Module.__dict__


def test_writes_are_kept_where_they_can_be_told():
    def residual(x, w):
        y = x @ w
        y += x
        return y

    def alias(x):
        row = x[0]
        row += 1
        return x

    def both(x):
        y = x * 2
        z = y
        y += 1
        return y + z

    assert targets(fx.symbolic_trace(residual))[-1] is operator.add
    for function in (alias, both):
        x = fl.ones(2, 2)
        assert fl.equal(fx.symbolic_trace(function)(x.clone()), function(x.clone()))


def test_is_fx_tracing():
    seen = []

    def f(x):
        seen.append(fx.is_fx_tracing())
        return x

    fx.symbolic_trace(f)
    assert seen == [True]
    assert not fx.is_fx_tracing()


def test_retracing_a_traced_module():
    module = fx.symbolic_trace(Outer())
    again = fx.symbolic_trace(module)
    x = fl.randn(2)
    assert fl.equal(module(x), again(x))


def test_a_tracer_need_not_know_how_parameters_become_proxies():
    class Named(fx.Tracer):
        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None):
            return super().create_proxy(kind, target, args, kwargs, name, type_expr)

    class Scaled(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = fl.nn.Parameter(fl.ones(2))

        def forward(self, x):
            return self.scale * x

    assert "get_attr" in {node.op for node in Named().trace(Scaled()).nodes}


def test_operands_of_einsum_are_arguments_one_by_one():
    for program in (lambda x, y: fl.einsum("ij,jk->ik", x, y), lambda x, y: fl.einsum("ij,jk->ik", [x, y])):
        traced = fx.symbolic_trace(program)
        node = next(node for node in traced.graph.nodes if node.op == "call_function")
        assert len(node.args) == 3
        fl.testing.assert_close(traced(x := fl.rand(2, 3), y := fl.rand(3, 4)), x @ y)
