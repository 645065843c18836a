"""Exported programs compute what the module computes, for the sizes that were promised, and say so when they cannot."""

import contextlib
import copy
import io
import json
import random
import zipfile

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._dynamo.exc import Unsupported, UserError
from flambeau.export import Dim, dims, export, load, save
from flambeau.export.graph_signature import InputKind, OutputKind


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)
        self.register_buffer("count", fl.zeros(3))
        self.register_buffer("scale", fl.ones(3), persistent=False)

    def forward(self, x, data, *, flag=True):
        y = fl.relu(self.norm(self.layer(x))) + self.count * self.scale
        self.count.add_(1)
        if flag:
            y = y.view(y.shape[0], -1)
        return {"y": y, "z": [y.sum(), data["a"] * 2], "n": x.shape[0], "flag": flag}


def example(count):
    generator = fl.Generator().manual_seed(count)
    return fl.randn(count, 4, generator=generator), {"a": fl.randn(count, generator=generator)}


def program(model):
    batch = Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}, "data": {"a": {0: batch}}, "flag": None}
    return export(model, example(5), {"flag": True}, dynamic_shapes=shapes)


def check_equal(a, b):
    a, b = fl.utils._pytree.tree_leaves(a), fl.utils._pytree.tree_leaves(b)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert fl.allclose(x, y, atol=1e-5) if isinstance(x, fl.Tensor) else x == y


@pytest.mark.parametrize("how", ["exported", "loaded", "decomposed", "loaded and decomposed"])
def test_the_program_follows_the_module(how):
    model = Model()
    made, twin = program(model), copy.deepcopy(model)
    if "loaded" in how:
        made = through_file(made)
    if "decomposed" in how:
        made = made.run_decompositions()
    run = made.module()
    for count in (2, 7, 64):
        args, kwargs = example(count), {"flag": True}
        check_equal(run(*args, **kwargs), twin(*args, **kwargs))
    for name, value in twin.state_dict().items():
        assert fl.allclose(run.state_dict()[name], value, atol=1e-5), name


def through_file(made):
    file = io.BytesIO()
    save(made, file)
    file.seek(0)
    return load(file)


def test_the_signature():
    signature = program(Model()).graph_signature
    assert signature.parameters == ("layer.weight", "layer.bias", "norm.weight", "norm.bias")
    assert signature.inputs_to_parameters["p_norm_weight"] == "norm.weight"
    assert signature.non_persistent_buffers == ("scale",) and "count" in signature.buffers
    assert signature.user_inputs == ("x", "data_a", True)
    assert all(spec.kind is OutputKind.USER_OUTPUT for spec in signature.output_specs)


def test_the_graph_is_made_of_operators():
    made = program(Model())
    targets = {str(node.target) for node in made.graph.nodes if node.op == "call_function"}
    assert {"aten.linear.default", "aten.batch_norm.default", "aten.relu.default"} <= targets
    assert {node.op for node in made.graph.nodes} == {"placeholder", "call_function", "output"}
    with pytest.raises(RuntimeError, match=r"module\(\)"):
        made(*example(5))


def test_state_is_shared_and_trained():
    model = Model()
    run = program(model).module()
    assert run.layer.weight is model.layer.weight and list(run.state_dict()) == list(model.state_dict())
    run(*example(6), flag=True)["y"].sum().backward()
    assert model.layer.weight.grad is not None


@pytest.mark.parametrize(
    "count, flag, message",
    [(100, True, r"x.size\(\)\[0\] <= 64"), (1, True, r"x.size\(\)\[0\] >= 2"), (5, False, "flag == True")],
)
def test_calls_are_held_to_the_promises(count, flag, message):
    run = program(Model()).module()
    with pytest.raises(AssertionError, match=f"Guard failed: {message}"):
        run(*example(count), flag=flag)


def test_sizes_that_must_be_equal_or_fixed():
    run = program(Model()).module()
    (x, _), (_, data) = example(5), example(6)
    with pytest.raises(AssertionError, match=r"data_a.size\(\)\[0\] == x.size\(\)\[0\]"):
        run(x, data, flag=True)
    with pytest.raises(AssertionError, match=r"x.size\(\)\[1\] == 4"):
        run(fl.ones(5, 3), example(5)[1], flag=True)
    with pytest.raises(AssertionError, match="dtype"):
        run(x.double(), example(5)[1], flag=True)
    with pytest.raises(ValueError, match="Trying to flatten user inputs"):
        run(x)
    with pytest.raises(ValueError, match="structure"):
        run(x, {"b": data["a"]}, flag=True)


def test_the_module_of_a_program_is_a_graph_module_that_is_exported_again():
    run = program(Model()).module()
    assert isinstance(run, fl.fx.GraphModule)
    assert [n.op for n in run.graph.nodes].count("placeholder") == 3
    x, data = example(5)
    again = fl.export.export(run, (x, data), {"flag": True})
    assert set(again.graph_signature.parameters) == {name for name, _ in run.named_parameters()}
    expected = run(x, data, flag=True)
    run.count.zero_()
    check_equal(again.module()(x, data, flag=True), expected)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None):
        return self.function(x) if y is None else self.function(x, y)


def of(function, *args, **options):
    return export(Function(function), args, **options)


def test_a_size_that_the_program_fixes_is_an_error():
    with pytest.raises(UserError, match=r"Constraints violated \(batch\)(.|\n)*constant \(5\)(.|\n)*test_export.py"):
        of(lambda x: x + fl.ones(5, 1), fl.ones(5, 4), dynamic_shapes=({0: Dim("batch")},))
    with pytest.raises(UserError, match="dynamic"):
        of(lambda x: x + fl.ones(5, 1), fl.ones(5, 4), dynamic_shapes=({0: Dim.DYNAMIC},))
    made = of(lambda x: x + fl.ones(5, 1), fl.ones(5, 4), dynamic_shapes=({0: Dim.AUTO},))
    assert made.range_constraints == {}
    with pytest.raises(AssertionError):
        made.module()(fl.ones(4, 4))


def test_a_promise_that_is_too_wide_is_an_error():
    halve = lambda x: x.view(-1, 2, x.shape[1]) if x.shape[0] > 3 else x  # noqa: E731
    with pytest.raises(UserError, match="% 2"):
        of(halve, fl.ones(6, 4), dynamic_shapes=({0: Dim("batch")},))
    made = of(halve, fl.ones(6, 4), dynamic_shapes=({0: 2 * Dim("half", min=2)},))
    assert made.module()(fl.ones(10, 4)).shape == (5, 2, 4)


def test_sizes_with_names_of_their_own_must_not_be_equal():
    a, b = dims("a", "b")
    with pytest.raises(UserError, match=r"b = y.* and a = x.* must always be equal"):
        of(lambda x, y: x + y, fl.ones(3), fl.ones(3), dynamic_shapes=({0: a}, {0: b}))
    with pytest.raises(UserError, match="which is not a"):
        of(lambda x, y: x.sum() + y.sum(), fl.ones(3), fl.ones(4), dynamic_shapes=({0: a}, {0: a}))


def test_derived_sizes():
    half = Dim("half")
    made = of(lambda x, y: fl.cat([x, x]) + y, fl.ones(3), fl.ones(6), dynamic_shapes=({0: half}, {0: 2 * half}))
    assert through_file(made).module()(fl.ones(5), fl.ones(10)).tolist() == [2.0] * 10
    with pytest.raises(AssertionError, match=r"2 \* x.size"):
        made.module()(fl.ones(5), fl.ones(9))


@pytest.mark.parametrize(
    "shapes",
    [{"x": {0: Dim("a")}, "z": None}, ({5: Dim("a")},), ({0: "a"},), ({0: 4},), ({0: Dim("a", min=4)},), ((), ())],
)
def test_mistakes_in_dynamic_shapes(shapes):
    with pytest.raises(UserError):
        of(lambda x: x, fl.ones(3), dynamic_shapes=shapes)


def test_programs_that_are_no_graph():
    with pytest.raises(Unsupported, match="branch on a tensor"):
        of(lambda x: x if x.sum() > 0 else -x, fl.ones(3))
    with pytest.raises(ValueError, match="Module"):
        export(lambda x: x, (fl.ones(3),))
    with pytest.raises(ZeroDivisionError):
        of(lambda x: x * (1 // 0), fl.ones(3))

    class Stores(nn.Module):
        def forward(self, x):
            self.seen = x
            return x

    with pytest.raises(RuntimeError, match="'seen' of Stores"):
        export(Stores(), (fl.ones(3),))


def test_constants_become_inputs():
    table = fl.tensor([1.0, 2.0])
    made = of(lambda x: x * fl.tensor([3.0, 4.0]) + table, fl.ones(2))
    kinds = [spec.kind for spec in made.graph_signature.input_specs]
    assert kinds == [InputKind.CONSTANT_TENSOR] * 2 + [InputKind.USER_INPUT] and len(made.constants) == 2
    for again in (made, through_file(made), made.run_decompositions()):
        assert again.module()(fl.ones(2)).tolist() == [4.0, 6.0]


def test_modes_inside_hold():
    layer = nn.Linear(2, 2)

    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            with fl.no_grad():
                y = self.layer(x)
            with fl.autocast("cpu"):
                z = self.layer(x)
            return y + self.layer(x), z

    run = through_file(export(Partly(), (fl.ones(1, 2),))).module()
    made, low = run(fl.ones(1, 2))
    made.sum().backward()
    assert low.dtype == fl.bfloat16 and fl.is_grad_enabled()
    assert run.layer.bias.grad.tolist() == [1.0, 1.0]


def test_writes_to_inputs():
    def double(x):
        x.add_(1)
        return x * 2

    made = of(double, fl.zeros(2))
    functional = made.run_decompositions()
    assert list(functional.graph_signature.user_inputs_to_mutate.values()) == ["x"]
    assert not any(str(node.target).endswith("_.Tensor") for node in functional.graph.nodes)
    for program in (made, functional):
        x = fl.zeros(2)
        assert program.module()(x).tolist() == [2.0, 2.0] and x.tolist() == [1.0, 1.0]


def test_a_decomposition_is_used():
    made = of(lambda x: x.relu() + 1, fl.tensor([-1.0, 2.0]))
    table = {fl.ops.aten.relu.default: lambda x: fl.clamp(x, min=0)}
    found = made.run_decompositions(table)
    targets = [str(node.target) for node in found.graph.nodes if node.op == "call_function"]
    assert any("clamp" in target for target in targets) and not any("relu" in target for target in targets)
    assert found.module()(fl.tensor([-1.0, 2.0])).tolist() == [1.0, 3.0]


def test_files_hold_more_and_are_checked():
    file, made = io.BytesIO(), of(lambda x: x.to(fl.float64), fl.ones(2))
    save(made, file, extra_files={"note.txt": "hello"})
    extra = {"note.txt": ""}
    assert load(file, extra_files=extra).module()(fl.ones(2)).dtype == fl.float64 and extra["note.txt"] == "hello"
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("something", "else")
    with pytest.raises(RuntimeError, match="zip format"):
        load(other)
    checkpoint = io.BytesIO()
    fl.save({"a": fl.ones(1)}, checkpoint)
    with pytest.raises(RuntimeError, match=r"exported program \(\.pt2\)"):
        load(checkpoint)


def test_a_tensor_given_twice_is_two_inputs():
    x = fl.ones(2)
    made = of(lambda x, y: x + 2 * y, x, x)
    assert made.module()(fl.ones(2), fl.zeros(2)).tolist() == [1.0, 1.0]


def test_tied_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = self.a

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    run = export(model, (fl.ones(1, 2),)).module()
    assert list(run.state_dict()) == list(model.state_dict()) and fl.equal(run(fl.ones(1, 2)), model(fl.ones(1, 2)))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        made = fl.cond(x.sum() > 0, lambda x: self.layer(x).sin(), lambda x: x.cos() + x.shape[1], (x,))
        return made * 2


@pytest.mark.parametrize("how", ["exported", "loaded", "decomposed"])
def test_branches_on_values(how):
    model = Branching()
    made = export(model, (fl.ones(2, 3),), dynamic_shapes=({0: Dim("rows")},))
    if how != "exported":
        made = through_file(made) if how == "loaded" else made.run_decompositions()
    run = made.module()
    for x in (fl.ones(4, 3), -fl.ones(5, 3)):
        assert fl.allclose(run(x), model(x), atol=1e-5)
    run(fl.ones(4, 3)).sum().backward()
    assert run.layer.weight.grad is not None


def test_slices_of_shapes_stay_symbolic():
    made = of(
        lambda x: x.view(*x.shape[:-1], 2, 4) + x.reshape(x.shape[:1] + (-1,)).sum(), fl.ones(2, 3, 8),
        dynamic_shapes=({0: Dim("b", min=2, max=9), 1: Dim("t", min=2, max=9)},),
    )  # fmt: skip
    assert made.module()(fl.ones(5, 4, 8)).shape == (5, 4, 2, 4)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return fl.relu(self.lin(x)), x + 1


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()
        self.register_buffer("count", fl.zeros(4))

    def forward(self, x):
        y, z = self.first(x)
        self.count.add_(1)
        return self.second(self.second(y)[0])[0] + z + self.count


@pytest.mark.parametrize("core", [False, True])
def test_unflatten_has_the_modules(core):
    model, x = Nested(), fl.randn(2, 4)
    made = export(model, (x,))
    made = made.run_decompositions() if core else made
    again = fl.export.unflatten(made)
    wanted = copy.deepcopy(model)
    check_equal(again(x), wanted(x))
    check_equal(again(x), wanted(x))  # which counts
    assert set(again.state_dict()) >= set(model.state_dict()) and hasattr(again.first, "lin")
    calls = [node.target for node in again.graph.nodes if node.op == "call_module"]
    assert calls == ["first", "second", "second"]  # both calls do the same

    class Zero(nn.Module):
        def forward(self, *inputs):
            return fl.zeros(2, 4), fl.zeros(2, 4)

    again.first = Zero()
    assert not fl.equal(again(x), wanted(x))


def test_nodes_say_where_they_come_from():
    made = export(Nested(), (fl.randn(2, 4),))
    node = next(n for n in made.graph.nodes if n.name == "linear")
    assert [path for path, _ in node.meta["nn_module_stack"].values()] == ["", "first", "first.lin"]
    assert "test_export.py" in node.meta["stack_trace"] and "self.lin(x)" in node.meta["stack_trace"]
    assert [entry.fqn for entry in made.module_call_graph][:3] == ["", "first", "first.lin"]
    made.validate()


def test_draft_export_goes_on():
    def fixed(x):
        return x + fl.ones(5, 1)

    made = fl.export.draft_export(Function(fixed), (fl.ones(5, 4),), dynamic_shapes=({0: Dim("batch")},))
    assert not made._report.successful() and "batch" in str(made._report)
    sound = fl.export.draft_export(Function(lambda x: x + 1), (fl.ones(5, 4),))
    assert sound._report.successful()


def test_shapes_from_tensors_and_from_examples():
    x, y = fl.ones(3, 2), fl.ones(3, 2)
    shapes = fl.export.ShapesCollection()
    shapes[x] = {0: Dim("n", min=2, max=9)}
    made = of(lambda x, y: x.sum() + y, x, y, dynamic_shapes=shapes)
    assert made.module()(fl.ones(5, 2), y).shape == (3, 2)
    examples = fl.export.AdditionalInputs()
    examples.add((fl.ones(4, 2), y))
    made = of(lambda x, y: x.sum() + y, x, y, dynamic_shapes=examples)
    examples.verify(made)


def test_a_violated_constraint_suggests_a_fix():
    with pytest.raises(UserError, match="Suggested fixes"):
        of(lambda x: x + fl.ones(5, 1), fl.ones(5, 4), dynamic_shapes=({0: Dim("batch")},))


@pytest.mark.parametrize(
    ("function", "sizes", "fix"),
    [
        (lambda x, y: x @ y.t(), ("a", "b"), r"b = a$"),
        (lambda x, y: x[:, 1:] * y[:, :-1].sum() + y[:1, 1:], ("a", "b"), r"b = a$"),
        (lambda x, y: x.sum() + y if x.shape[1] <= 15 else y, ("a", None), r"a = Dim\('a', max=15\)"),
        (lambda x, y: x.sum() + y if x.shape[1] % 3 == 0 else y, ("a", None), r"a = 3\*_a"),
        (lambda x, y: x + y, ("a", None), r"a = 9$"),
        (
            lambda x, y: x[:, 2:] + y[:, : x.shape[1] - 2] if x.shape[1] == y.shape[1] + 1 - 1 else y,
            ("a", "b"),
            r"b = a",
        ),
    ],
)
def test_violations_say_what_to_write_instead(function, sizes, fix):
    first, second = (None if name is None else {1: Dim(name)} for name in sizes)
    with pytest.raises(UserError, match=rf"(?s)Suggested fixes:.*\n  {fix}"):
        of(function, fl.ones(1, 9), fl.ones(1, 9), dynamic_shapes=(first, second))


def test_a_name_has_one_definition():
    with pytest.raises(UserError, match="Found different definitions"):
        of(lambda x, y: x, fl.ones(4), fl.ones(4), dynamic_shapes=({0: Dim("n", min=3)}, {0: Dim("n", max=12)}))


def test_programs_move_to_a_device():
    from flambeau.export.passes import move_to_device_pass

    made = move_to_device_pass(export(Nested(), (fl.randn(2, 4),)), "meta")
    assert {value.device.type for value in made.state_dict.values()} == {"meta"}


def test_loops_and_maps():
    def loop(x):
        return fl.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (fl.zeros((), dtype=fl.int64), x))[1]

    made = of(loop, fl.ones(2))
    assert "while_loop" in [str(n.target) for n in made.graph.nodes] and made.module()(fl.ones(2)).tolist() == [
        8.0,
        8.0,
    ]
    assert through_file(made).module()(fl.ones(2)).tolist() == [8.0, 8.0]
    assert made.run_decompositions().module()(fl.ones(2)).tolist() == [8.0, 8.0]
    mapped = of(lambda xs, y: fl._higher_order_ops.map(lambda x, y: x * y + 1, xs, y), fl.ones(3, 2), fl.ones(2))
    assert mapped.module()(fl.ones(3, 2), fl.full((2,), 2.0)).tolist() == [[3.0, 3.0]] * 3


def changed(data, random):
    """A document with one thing in it replaced or removed."""
    others = [None, -1, "x", [], {}, 2**70, "Symbol('s0')", "__import__('os').abort()"]
    if not isinstance(data, (dict, list)) or not data:
        return random.choice(others)
    key = random.choice(list(data)) if isinstance(data, dict) else random.randrange(len(data))
    kind = random.random()
    if kind < 0.15:
        data.pop(key)
    else:
        data[key] = random.choice(others) if kind < 0.3 else changed(data[key], random)
    return data


def test_crafted_files_raise_and_run_nothing():
    file, numbers = io.BytesIO(), random.Random(0)
    save(export(Nested(), (fl.randn(2, 4),), dynamic_shapes=({0: Dim("b")},)), file)
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    documents = [name for name in members if name.endswith(".json")]
    for _ in range(150):
        other, name = io.BytesIO(), numbers.choice(documents)
        text = json.dumps(changed(json.loads(members[name]), numbers)).encode()
        with zipfile.ZipFile(other, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, text if member == name else data)
        with contextlib.suppress(RuntimeError):  # of whatever kind; nothing else, and no crash
            load(other)


def test_a_module_that_returns_constants_only():
    class Constants(fl.nn.Module):
        def forward(self):
            return fl.tensor([1, 2, 3]), fl.tensor([4, 5])

    first, second = fl.export.export(Constants(), ()).module()()
    assert first.tolist() == [1, 2, 3] and second.tolist() == [4, 5]


def test_notes_survive_decomposition():
    class Scaled(fl.nn.Module):
        def forward(self, x):
            return fl.nn.functional.gelu(x) * fl.tensor([1.0, 2.0])

    program = fl.export.export(Scaled(), (fl.rand(3, 2),))
    for node in program.graph.nodes:
        node.meta["custom"] = {"owner": "me"}
    assert all(node.meta["custom"] == {"owner": "me"} for node in program.run_decompositions().graph.nodes)


def test_unflattened_modules_write_to_buffers_of_their_own():
    class Counter(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", fl.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    program = fl.export.export(Counter(), (fl.ones(1),))
    unflattened = fl.export.unflatten(program)
    assert program.module()(fl.ones(1)) == 2 and unflattened(fl.ones(1)) == 2


def test_example_inputs_are_checked():
    program = fl.export.export(fl.nn.Linear(2, 2), (fl.rand(1, 2),))
    program.example_inputs = ((fl.rand(1, 2),), {})
    for wrong in ((fl.rand(1, 2),), ((), {}), ((fl.rand(1, 2),), {"x": fl.rand(1, 2)})):
        with pytest.raises(ValueError, match="example_inputs"):
            program.example_inputs = wrong
