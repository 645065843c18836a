"""Scripts and traces as ONNX models: branches on tensors become If, loops become Loop."""

import io

import pytest

import flambeau as fl
from flambeau import Tensor, nn

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            y = self.first(x).relu()
        elif bool(x.mean() < -2):
            y = x * 2
        else:
            y = self.second(x)
        return y + 1


class Loops(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        total = 0
        for i in range(x.size(0)):
            x = self.layer(x).tanh() + i
            total += 2
            if bool(x.sum() > 8):
                x = x / 2
        while bool(x.abs().max() > 1):
            x = x * 0.5
        return x + total


def kinds(graph):
    found = set()
    for node in graph.node:
        found.add(node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= kinds(attribute.g)
    return found


def exported(module, example, **options):
    file = io.BytesIO()
    fl.onnx.export(module, (example,), file, dynamo=False, input_names=["x"], output_names=["y"], **options)
    session = ort.InferenceSession(file.getvalue())
    run = lambda x: fl.from_numpy(session.run(None, {"x": x.numpy()})[0])  # noqa: E731
    return onnx.load_from_string(file.getvalue()), run


def test_branches_on_tensors_become_if():
    module = fl.jit.script(Branches().eval())
    model, run = exported(module, fl.ones(3, 4))
    assert "If" in kinds(model.graph)
    for x in (fl.ones(3, 4), -fl.ones(3, 4), -3 * fl.ones(3, 4)):
        fl.testing.assert_close(run(x), module(x).detach())


def test_loops_become_loop():
    module = fl.jit.script(Loops().eval())
    model, run = exported(module, fl.ones(3, 4), dynamic_axes={"x": {0: "rows"}})
    assert {"Loop", "If"} <= kinds(model.graph)
    for rows in (3, 5):
        x = fl.randn(rows, 4)
        fl.testing.assert_close(run(x), module(x).detach())


@pytest.mark.parametrize("reload", [False, True])
def test_traces_and_archives_export(reload):
    original = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)).eval()
    module = fl.jit.trace(original, fl.ones(3, 4))
    if reload:
        file = io.BytesIO()
        fl.jit.save(module, file)
        file.seek(0)
        module = fl.jit.load(file)
    _, run = exported(module, fl.ones(3, 4))
    x = fl.randn(3, 4)
    fl.testing.assert_close(run(x), original(x).detach())


class CountedLoop(nn.Module):
    def forward(self, x, count):
        total = 0
        for i in range(int(count)):
            if i % 2 == 0:
                total = total + i * 2
            elif i > 3 and not i > 5:
                total = total - 1
            x = x * 1.5
        return x + total if int(count) > 3 else x - total


class Scaled(nn.Module):
    def forward(self, x):
        largest = float(x.max())
        if largest > 1.0:
            x = x / largest
        return x


class Rows(nn.Module):
    def forward(self, x):
        for i in range(x.size(0)):
            x = x + x[i]
        return x


class Declared(nn.Module):
    def forward(self, x, count: int):
        for i in range(count):
            x = x + i
        return x


@pytest.mark.parametrize(("kind", "counts"), [(CountedLoop, (2, 7)), (Scaled, None), (Rows, None), (Declared, (0, 4))])
def test_numbers_read_from_tensors_run_as_tensors(kind, counts):

    module, x = fl.jit.script(kind()), fl.arange(6.0).view(2, 3)
    others = [()] if counts is None else [(fl.tensor(count),) for count in counts]
    file = io.BytesIO()
    fl.onnx.export(module, (x, *others[0]), file, dynamo=False)
    session = ort.InferenceSession(file.getvalue())
    names = [i.name for i in session.get_inputs()]
    for more in others:
        (result,) = session.run(None, dict(zip(names, (t.numpy() for t in (x, *more)))))
        numbers = [int(t) for t in more] if kind is Declared else more
        assert fl.allclose(fl.from_numpy(result), module(x, *numbers))
