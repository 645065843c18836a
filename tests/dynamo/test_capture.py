"""compile(): the first things a user tries."""

import pytest

import flambeau as fl


def compiled(function, **options):
    return fl.compile(function, backend="eager", **options)


def test_a_function_of_tensors():
    def f(x, y):
        return fl.relu(x + 1) * y

    x, y = fl.randn(3, 4), fl.randn(3, 4)
    assert fl.equal(compiled(f, fullgraph=True)(x, y), f(x, y))


def test_a_module_keeps_its_state_dict_keys():
    model = fl.nn.Sequential(fl.nn.Linear(4, 5), fl.nn.ReLU(), fl.nn.Linear(5, 2))
    fast = compiled(model, fullgraph=True)
    x = fl.randn(3, 4)
    assert fl.equal(fast(x), model(x))
    assert list(fast.state_dict()) == list(model.state_dict())
    assert isinstance(fast, fl.nn.Sequential)
    # Checkpoints of PyTorch's compiled modules have their own names.
    fast.load_state_dict({"_orig_mod." + key: value * 0 + 1 for key, value in model.state_dict().items()})
    assert model[0].weight.min() == model[0].weight.max() == 1


def test_a_branch_on_a_tensor_breaks_the_graph():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y.sin()
        return y.cos()

    fast = compiled(f)
    for x in (fl.ones(3), -fl.ones(3)):
        assert fl.equal(fast(x), f(x))
    with pytest.raises(fl._dynamo.breaks.GraphBreakError, match="GB0001"):
        compiled(f, fullgraph=True)(fl.ones(3))


def test_explain_counts():
    def f(x):
        y = x + 1
        fl._dynamo.graph_break()
        return y * 2

    told = fl._dynamo.explain(f)(fl.ones(2))
    assert (told.graph_count, told.graph_break_count, told.op_count) == (2, 1, 2)


def test_custom_operators_are_captured_with_their_derivative():
    @fl.library.custom_op("test_capture::cube", mutates_args=())
    def cube(x: fl.Tensor) -> fl.Tensor:
        return x * x * x

    cube.register_fake(fl.empty_like)
    cube.register_autograd(
        lambda ctx, g: 3 * g * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    compiled = fl.compile(lambda x: (cube(x * 2) + 1).sum(), fullgraph=True)
    x = fl.tensor([1.0, -2.0], requires_grad=True)
    loss = compiled(x)
    loss.backward()
    assert loss.item() == 8 - 64 + 2
    assert x.grad.tolist() == [24, 96]


@pytest.mark.host  # devices report indices later
def test_errors_of_the_graph_are_the_programs_own():
    def f(x, i):
        y = x * 2
        return y[i]

    fast = compiled(f)
    fast(fl.ones(3), fl.tensor(1))
    with pytest.raises(IndexError) as caught:
        fast(fl.ones(3), fl.tensor(7))
    assert caught.value.__context__ is None
    lines = [entry.lineno for entry in caught.traceback if entry.name == "f"]
    assert lines[-1] + 1 == f.__code__.co_firstlineno + 2


def test_slices_of_module_lists_are_walked_in_one_graph():
    class Layers(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = fl.nn.ModuleList([fl.nn.Linear(3, 3) for _ in range(4)])

        def forward(self, x):
            for layer in self.layers[:3]:
                x = layer(x)
            return x

    model, x = Layers(), fl.randn(2, 3)
    fl.testing.assert_close(fl.compile(model, backend="eager", fullgraph=True)(x), model(x))


@pytest.mark.parametrize("name", ["relu", "relu6", "elu", "silu", "dropout"])
def test_functions_that_are_asked_to_write_in_place(name):
    function = getattr(fl.nn.functional, name)
    options = {"p": 0.0} if name == "dropout" else {}

    def f(x):
        y = x * 2
        function(y, inplace=True, **options)
        return y, function(x + 1, inplace=True, **options)

    x = fl.randn(3, 4)
    for got, expected in zip(compiled(f, fullgraph=True)(x), f(x)):
        assert fl.equal(got, expected)
    written = x.clone()
    compiled(lambda t: function(t, inplace=True, **options))(written)
    assert fl.equal(written, f(x / 2)[0])


def test_functions_that_raise_because_they_are_compiled_run_in_plain_python():
    def compiling():
        return fl.compiler.is_compiling()

    def first_row(mask):
        return mask[0] * 2

    def encode(x, mask):
        if mask is None and not compiling():
            mask = fl.ones(2, 3)
        return first_row(mask) + x

    def model(x, mask=None):
        return encode(x + 1, mask).sin()

    fast = fl.compile(model, backend="eager")
    x = fl.ones(3)
    assert fl.equal(fast(x), model(x)) and fl.equal(fast(x), model(x))
    assert fl.equal(fast(x, fl.ones(1, 3)), model(x, fl.ones(1, 3)))

    def fails(x):
        if compiling():
            return x + 1
        raise ValueError("not compiled")

    assert fl.equal(fl.compile(fails, backend="eager")(x), x + 1)

    def always(x):
        raise ValueError(f"compiled: {compiling()}")

    with pytest.raises(ValueError, match="compiled"):
        fl.compile(always, backend="eager")(x)


def test_dict_subclasses_compare_merge_and_print():
    class Settings(dict):
        pass

    outside = Settings(a=1)

    def f(x):
        own = Settings(a=1)
        merged = own.__or__({"b": 2})
        facts = [own == {"a": 1}, own != Settings(a=2), own == {"a": 1}, outside == own, Settings(a=x) == {"a": x}]
        return x + 1, facts, f"{own}", merged["b"]

    x = fl.rand(3)
    compiled = fl.compile(f, backend="eager", fullgraph=True)
    assert compiled(x)[1:] == f(x)[1:]
    outside["a"] = 2
    assert compiled(x)[1:] == f(x)[1:]


def test_dynamo_export_has_the_arguments_of_the_function():
    constant = fl.tensor([1.0, 2.0, 3.0])

    def f(a, held, *, factor=2):
        return {"result": a * constant + held["z"] * factor}, a.shape[0]

    x, z = fl.rand(2, 3), fl.rand(2, 3)
    graph_module, guards = fl._dynamo.export(f)(x, {"z": z}, factor=3)
    result, rows = graph_module(2 * x, {"z": x}, factor=3)
    assert fl.equal(result["result"], f(2 * x, {"z": x}, factor=3)[0]["result"]) and rows == 2 and guards == []
    model = fl.nn.Sequential(fl.nn.Linear(3, 3), fl.nn.ReLU())
    for aten_graph in (False, True):
        graph_module, _ = fl._dynamo.export(model, aten_graph=aten_graph)(x)
        assert fl.equal(graph_module(z), model(z))
