"""Traces: sizes stay dynamic, values that Python sees are constants with a warning, scripts inside stay calls."""

import io
import warnings

import pytest

import flambeau as torch
from flambeau import nn


class Reshaping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x):
        batch, count = x.size(0), x.shape[1]
        y = self.layer(x).view(batch, count * 2, 3).transpose(1, 2)
        return y[:, :, 1:].relu() + 1


def test_sizes_are_not_frozen():
    model = Reshaping()
    traced = torch.jit.trace(model, torch.randn(2, 5, 4))
    other = torch.randn(3, 7, 4)
    assert torch.allclose(traced(other), model(other))
    assert "aten::linear" in str(traced.inlined_graph)


def test_values_of_python_are_frozen_with_a_warning():
    def function(x):
        return x * 2 if x.sum() > 0 else x

    with pytest.warns(torch.jit.TracerWarning, match="Python boolean"):
        traced = torch.jit.trace(function, torch.ones(3))
    assert torch.equal(traced(-torch.ones(3)), -2 * torch.ones(3))


@torch.jit.script
def repeated(x, n: int):
    for _ in range(n):
        x = x + 1
    return x


def test_scripts_in_traces_keep_their_control_flow():
    traced = torch.jit.trace(lambda x: repeated(x, x.size(0)), torch.zeros(2))
    assert traced(torch.zeros(5))[0] == 5
    assert "prim::CallFunction" in str(traced.graph)


@torch.jit.script_if_tracing
def total(values: list[torch.Tensor]):
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


def test_containers_as_inputs_and_outputs():
    def function(pair, table):
        return pair[0] + pair[1], table["a"] * 2

    inputs = ((torch.ones(2), torch.ones(2)), {"a": torch.ones(2)})
    traced = torch.jit.trace(function, inputs)
    assert torch.equal(traced(*inputs)[1], 2 * torch.ones(2))
    assert torch.equal(torch.jit.trace(lambda x: total([x, x, x]), torch.ones(2))(torch.ones(2)), 3 * torch.ones(2))


def test_a_trace_that_differs_is_reported():
    state = [0]

    def function(x):
        state[0] += 1
        return x + state[0]

    with pytest.warns(torch.jit.TracerWarning, match="does not match"):
        torch.jit.trace(function, torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.jit.trace(function, torch.ones(2), check_trace=False)


def test_freezing_folds_attributes_and_batch_normalisation():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.ReLU()).eval()
    with torch.no_grad():
        model[1].running_mean.fill_(0.5)
    scripted = torch.jit.script(model)
    frozen = torch.jit.freeze(scripted)
    x = torch.randn(1, 1, 6, 6)
    assert torch.allclose(frozen(x), model(x), atol=1e-6) and not list(frozen.parameters())
    kinds = {node.kind() for node in frozen.graph.nodes()}
    assert "aten::batch_norm" not in kinds and "prim::GetAttr" not in kinds and "aten::dropout" not in kinds
    assert torch.allclose(torch.jit.optimize_for_inference(scripted)(x), model(x), atol=1e-6)
    with pytest.raises(RuntimeError, match="eval"):
        torch.jit.freeze(torch.jit.script(nn.Dropout()))


class _Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((1,), 2.0))

    def forward(self, x):
        return self.layer(x).relu() * self.scale, x.shape[0]


class _Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = _Inner(), nn.Linear(4, 2)

    def forward(self, x):
        once, rows = self.inner(x)
        twice, _ = self.inner(once)
        return self.last(twice).reshape(rows, 2)


def test_traces_call_their_submodules():
    model = _Outer()
    traced = torch.jit.trace(model, torch.ones(3, 4))
    kinds = [node.kind() for node in traced.graph.nodes()]
    assert kinds.count("prim::CallMethod") == 3
    assert "aten::linear" not in kinds
    inlined = [node.kind() for node in traced.inlined_graph.nodes()]
    assert inlined.count("aten::linear") == 3
    assert "prim::CallMethod" not in inlined
    assert "self.layer" in traced.inner.code and "forward1" in traced.code
    x = torch.randn(5, 4)
    torch.testing.assert_close(traced(x), model(x))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    torch.testing.assert_close(torch.jit.load(file)(x), model(x))


def test_traces_of_random_operators_are_warned_about():
    with pytest.warns(torch.jit.TracerWarning, match="nondeterministic"):
        torch.jit.trace(lambda x: x + torch.rand(2), torch.ones(2))


class Reflected(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 3) + 1)

    def forward(self, x):
        w = self.weight
        return x @ w, x - w, x / w, x**w, x // w, x % w, 2 - w, 2 / w, 2**w


def test_operators_that_python_asks_of_the_right_operand():
    model, x = Reflected(), torch.rand(3, 3) + 2
    traced = torch.jit.trace(model, x)
    y = torch.rand(3, 3) + 2
    for expected, actual in zip(model(y), traced(y), strict=True):
        torch.testing.assert_close(actual, expected)


def test_graphs_of_calls_have_the_state_among_their_inputs():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2, bias=False))
    graph, result = torch.jit._get_trace_graph(model, torch.randn(3, 8))
    shapes = [value.type().sizes() for value in graph.inputs()]
    assert shapes == [[3, 8], [4, 8], [4], [2, 4]] and result.shape == (3, 2)
    linear = graph.findAllNodes("aten::linear")
    assert all(value.isCompleteTensor() for node in linear for value in list(node.inputs())[:2])
    assert not graph.findAllNodes("prim::GetAttr")


class Exported(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
        self.count = 3

    def forward(self, x):
        return self.layer(x)

    @torch.jit.export
    def times(self, x, k: int = 2):
        return self.layer(x) * k * self.count


def test_a_trace_has_exported_methods_and_calls_all_submodules():
    model = Exported().eval()
    traced = torch.jit.trace(model, torch.ones(1, 2))
    assert torch.allclose(traced.times(torch.ones(3, 2), 5), model.times(torch.ones(3, 2), 5))
    kinds = [node.kind() for node in traced.layer.graph.nodes()]
    assert kinds == ["prim::GetAttr", "prim::GetAttr", "prim::CallMethod", "prim::CallMethod"]


def test_check_inputs_find_other_branches():
    def fn(x):
        return x * 2 if x.shape[0] > 2 else x

    with pytest.raises(torch.jit.TracingCheckError), pytest.warns(torch.jit.TracerWarning):
        torch.jit.trace(fn, torch.ones(2), check_inputs=[torch.ones(3)])


@pytest.mark.parametrize(
    "inputs", [(torch.ones(1), 3), (torch.ones(1), "a"), (torch.ones(1), None), (torch.ones(1), [1, 2])]
)
def test_traces_take_tensors_only(inputs):
    with pytest.raises(RuntimeError, match="cannot be traced"):
        torch.jit.trace(lambda x, y: x, inputs)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("values", "keys", "items"):
            self.register_buffer(name, torch.ones(3))

    def forward(self, x):
        return x + self.values + self.keys * self.items


@pytest.mark.parametrize(
    "compiled", [lambda: torch.jit.script(Named()), lambda: torch.jit.trace(Named(), torch.ones(3))]
)
def test_buffers_may_be_called_as_methods_of_containers_are(compiled):
    module = compiled()
    assert torch.equal(module(torch.ones(3)), torch.full((3,), 3.0)) and torch.equal(module.values, torch.ones(3))


def test_scripted_containers_keep_their_methods():
    module = torch.jit.script(nn.ModuleDict({"a": nn.ReLU()}))
    assert list(module.keys()) == ["a"] and len(list(module.values())) == len(list(module.items())) == 1


def rows(x):
    total = torch.zeros(x.shape[1])
    for row in x:
        total = total + row
    return total + torch.tensor(1.0)


def test_loops_over_tensors_and_constants_are_warned_of():
    with pytest.warns(torch.jit.TracerWarning) as found:
        trace = torch.jit.trace(rows, torch.ones(2, 3))
    messages = [str(warning.message) for warning in found]
    assert any(message.startswith("Iterating over a tensor") for message in messages)
    assert any(message.startswith("torch.tensor results are registered as constants") for message in messages)
    assert trace(torch.ones(2, 3)).tolist() == [3, 3, 3]


def test_dicts_of_several_types_are_refused():
    with pytest.raises(RuntimeError, match=r"must have consistent type. Found Tensor and Tuple"):
        torch.jit.trace(lambda x: {"a": x, "b": (x, x)}, torch.ones(2), strict=False)
