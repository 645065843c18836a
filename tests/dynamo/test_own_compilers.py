"""Backends made of a compiler of forward and one of backward, and the functions they are made with."""

import pytest

import flambeau as fl
from flambeau._dynamo.backends.common import aot_autograd
from flambeau._dynamo.backends.registry import lookup_backend, register_backend
from flambeau._functorch.aot_autograd import aot_function, aot_module, aot_module_simplified, make_boxed_func
from flambeau.functorch.compile import min_cut_rematerialization_partition, nop


def recorder(log, name, boxed):
    def compiler(gm, example_inputs):
        log.append((name, len(example_inputs), [n.target for n in gm.graph.nodes if n.op == "call_function"]))
        return make_boxed_func(gm.forward) if boxed else gm.forward

    return compiler


@pytest.mark.parametrize("boxed", [False, True])
def test_backend_of_two_compilers(boxed):
    log = []
    backend = aot_autograd(fw_compiler=recorder(log, "forward", boxed), bw_compiler=recorder(log, "backward", boxed))
    model = fl.nn.Sequential(fl.nn.Linear(3, 4), fl.nn.Tanh(), fl.nn.Linear(4, 2))
    fast = fl.compile(model, backend=backend)
    x = fl.randn(5, 3)
    want = fl.autograd.grad(model(x).square().sum(), list(model.parameters()))
    got = fast(x)
    fl.testing.assert_close(got, model(x))
    assert [entry[0] for entry in log] == ["forward"]
    got.square().sum().backward()
    assert [entry[0] for entry in log] == ["forward", "backward"]
    assert fl.ops.aten.tanh.default in log[0][2] and fl.ops.aten.mm.default in log[1][2]
    for parameter, gradient in zip(model.parameters(), want):
        fl.testing.assert_close(parameter.grad, gradient)
    fl.testing.assert_close(fast(fl.ones(2, 3)), model(fl.ones(2, 3)))
    with fl.no_grad():
        fl.testing.assert_close(fast(x), model(x))


def test_functions():
    log = []

    def function(a, b, scale=1.0):
        return {"y": (a * b).sin() * scale, "n": a.shape[0]}

    fast = aot_function(
        function, recorder(log, "f", False), recorder(log, "b", False), min_cut_rematerialization_partition
    )
    a, b = fl.randn(3, requires_grad=True), fl.randn(3, requires_grad=True)
    made = fast(a, b, scale=2.0)
    assert made["n"] == 3
    fl.testing.assert_close(made["y"], function(a, b, 2.0)["y"])
    found = fl.autograd.grad(made["y"].sum(), [a, b])
    wanted = fl.autograd.grad(function(a, b, 2.0)["y"].sum(), [a, b])
    fl.testing.assert_close(found, wanted)
    fast(a, b, scale=2.0)
    assert [entry[0] for entry in log] == ["f", "b"]


def test_modules_and_what_they_write():
    layer = fl.nn.BatchNorm1d(3)
    fast = aot_module(layer, fw_compiler=nop, bw_compiler=nop)
    x = fl.randn(8, 3, requires_grad=True)
    twin = fl.nn.BatchNorm1d(3)
    fl.testing.assert_close(fast(x), twin(x))
    fl.testing.assert_close(dict(layer.named_buffers()), dict(twin.named_buffers()))
    fast(x).square().sum().backward()
    twin(x.detach()).square().sum().backward()
    fl.testing.assert_close(layer.weight.grad, twin.weight.grad)
    flat = aot_module_simplified(lambda a, b: (a + b, a * b), [x, x], fw_compiler=nop)
    fl.testing.assert_close(flat(x, x), [x + x, x * x])


def test_registry_by_its_own_name():
    @register_backend(name="own_nop")
    def own(gm, example_inputs):
        return gm.forward

    assert lookup_backend("own_nop") is own and fl.compile(lambda x: x + 1, backend="own_nop")(fl.ones(1)).item() == 2
    with pytest.raises(TypeError):
        aot_autograd(bw_compiler=nop)


def test_former_names_of_control_flow():
    from flambeau._higher_order_ops.map import map
    from flambeau._higher_order_ops.while_loop import while_loop
    from flambeau.functorch.experimental import control_flow

    x = fl.arange(6.0).reshape(3, 2)
    assert control_flow.cond is fl.cond and control_flow.map is map and control_flow.while_loop is while_loop
    assert map(lambda row, by: row.sum() * by, x, fl.tensor(2.0)).tolist() == [2.0, 10.0, 18.0]
    assert while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * 2), (fl.tensor(0), fl.ones(1)))[1].item() == 8
    for bad in ([], [fl.ones(2), fl.ones(3)], 3):
        with pytest.raises(RuntimeError):
            map(lambda v: v, bad)
