"""Numbers and sizes that depend on data, inside one graph: items, lists, nonzero, masks, and what is checked of them."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest

import flambeau as fl
from flambeau._dynamo import config
from flambeau._dynamo.breaks import GraphBreakError
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.ops.symbolic import DataDependentOutput
from flambeau.utils import _pytree as pytree

BACKENDS = ["eager", "aot_eager", "inductor"]


def tensor(*values: Any) -> fl.Tensor:
    return fl.tensor(*values)


def zeros(n: Any) -> Any:
    return fl.zeros(n.item())


def positions(x: Any) -> Any:
    found = x.nonzero()
    return found * 2, found.size(0)


def masked(x: Any) -> Any:
    return (x[x > 0] + 1).sum(), x[x > 0].sin(), fl.masked_select(x, x > 0) * 2


def parts(x: Any, lengths: Any) -> Any:
    a, b = lengths.tolist()
    fl._check(a >= 0)
    return [part + 1 for part in x.split([a, b])]


def product(n: Any) -> Any:
    k = n.item()
    fl._check(k >= 2, lambda: "too small")
    return fl.ones(k, k) @ fl.ones(k, 1)


def counted(x: Any) -> Any:
    return fl.unique(x), fl.unique(x, return_counts=True), fl.bincount(x), fl.unique_consecutive(x)


def scaled(x: Any) -> Any:
    return x * x.sum().item()


def indexed(x: Any, i: Any) -> Any:
    return x[i.item()] * 2, x[: i.item()], x[i]


def returned(n: Any) -> Any:
    return n.item() + 1, int(n)


def repeated(x: Any, n: Any) -> Any:
    return fl.repeat_interleave(x, n).cos()


def added(x: Any, y: Any) -> Any:
    return x[y > 0] + y[y > 0]


def written(x: Any) -> Any:
    x = x.clone()
    x[x > 0] = 3
    return x


def narrowed(x: Any, n: Any) -> Any:
    k = n.item()
    return (x[:k] @ x[:k].t()).relu().sum(), x.narrow(0, 0, k)


CALLS: list[tuple[Any, list[Any]]] = [
    (zeros, [(tensor(3),), (tensor(5),), (tensor(0),), (tensor(1),)]),
    (positions, [(tensor([1, 0, 2]),), (tensor([0, 0]),), (fl.ones(2, 3),)]),
    (masked, [(tensor([1.0, -1.0, 2.0]),), (tensor([-1.0, -2.0]),), (tensor([3.0]),)]),
    (parts, [(fl.arange(5.0), tensor([2, 3])), (fl.arange(5.0), tensor([5, 0]))]),
    (product, [(tensor(3),), (tensor(5),)]),
    (counted, [(tensor([1, 2, 2, 1]),), (tensor([5]),)]),
    (scaled, [(fl.ones(3),), (fl.ones(4),)]),
    (indexed, [(fl.arange(5.0), tensor(3)), (fl.arange(5.0), tensor(-1)), (fl.arange(5.0), tensor(0))]),
    (returned, [(tensor(3),), (tensor(4),)]),
    (repeated, [(fl.arange(2.0), tensor([2, 3])), (fl.arange(2.0), tensor([0, 1]))]),
    (added, [(fl.arange(3.0), tensor([1.0, -1.0, 2.0]))]),
    (written, [(tensor([1.0, -1.0]),)]),
    (narrowed, [(fl.ones(5, 3), tensor(2)), (fl.ones(5, 3), tensor(4)), (fl.ones(7, 3), tensor(6))]),
]


def same(a: Any, b: Any) -> bool:
    left, right = pytree.tree_leaves(a), pytree.tree_leaves(b)

    def agree(x: Any, y: Any) -> bool:
        if isinstance(x, fl.Tensor):
            return x.dtype == y.dtype and x.shape == y.shape and fl.allclose(x, y, rtol=1e-6, atol=1e-6)
        return type(x) is type(y) and x == y

    return len(left) == len(right) and all(agree(x, y) for x, y in zip(left, right))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "calls"), CALLS, ids=lambda value: getattr(value, "__name__", ""))
def test_one_graph_serves_all_data(function: Any, calls: list[Any], backend: str) -> None:
    compiled = fl.compile(function, fullgraph=True, backend=backend)
    for args in calls:
        assert same(function(*args), compiled(*args))


def test_segments_run_under_the_alias() -> None:
    program = (
        "import flambeau.as_torch, torch\n"
        "f = torch.compile(lambda x: (x + 1)[x > 0].sin() * 2, fullgraph=True)\n"
        "print(f(torch.tensor([1.0, -1.0, 2.0])).shape)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "torch.Size([2])", done.stderr


def test_the_graph_is_captured_once_for_all_numbers() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = fl.compile(lambda n: fl.ones(n.item()).sum(), fullgraph=True, backend=backend)
    assert [compiled(tensor(n)).item() for n in (0, 1, 2, 7)] == [0, 1, 2, 7]
    assert len(graphs) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_flow_through_segments(backend: str) -> None:
    def loss(x: Any, n: Any) -> Any:
        y = x.exp()
        return (y[: n.item()] * y[y > 1].sum()).sum()

    compiled = fl.compile(loss, fullgraph=True, backend=backend)
    for k in (2, 3):
        x = fl.tensor([0.5, -1.0, 2.0, 0.25], requires_grad=True)
        (wanted,) = fl.autograd.grad(loss(x, tensor(k)), x)
        (got,) = fl.autograd.grad(compiled(x, tensor(k)), x)
        fl.testing.assert_close(got, wanted)


def test_what_was_assumed_is_checked_when_the_graph_runs() -> None:
    compiled = fl.compile(product, fullgraph=True, backend="eager")
    compiled(tensor(3))
    with pytest.raises(RuntimeError, match="too small"):
        compiled(tensor(1))
    lengths = fl.compile(parts, fullgraph=True, backend="eager")
    lengths(fl.ones(5), tensor([2, 3]))
    with pytest.raises(RuntimeError, match="split"):
        lengths(fl.ones(5), tensor([4, 2]))


def branch(n: Any) -> Any:
    k = n.item()
    return fl.ones(k) if k > 2 else fl.zeros(k)


def test_a_branch_on_data_is_refused_in_one_graph_and_breaks_it_otherwise() -> None:
    with pytest.raises(GraphBreakError, match="depends on data"):
        fl.compile(branch, fullgraph=True, backend="eager")(tensor(3))
    with config.patch(capture_scalar_outputs=True):
        compiled = fl.compile(branch, backend="eager")
        assert all(same(branch(tensor(k)), compiled(tensor(k))) for k in (1, 3, 2, 5))


def test_settings_keep_data_in_the_graph_without_fullgraph() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def program(x: Any) -> Any:
        return x.nonzero() + 1

    assert fl.compile(program, backend=backend)(tensor([1, 0, 2])).tolist() == [[1], [3]]
    assert not graphs or all(node.target != "nonzero" for node in graphs[0].graph.nodes)
    graphs.clear()
    with config.patch(capture_dynamic_output_shape_ops=True):
        assert fl.compile(program, backend=backend)(tensor([1, 0, 2])).tolist() == [[1], [3]]
    assert len(graphs) == 1
    assert any(node.target == "nonzero" for node in graphs[0].graph.nodes)


class Sizes(fl.nn.Module):
    def forward(self, x: Any, n: Any) -> Any:
        k = n.item()
        fl._check(k >= 2)
        fl._check(k <= 10)
        chosen = x[x > 0]
        return fl.zeros(k) + 1, chosen * x.sum().item(), x.nonzero(), k + 1, chosen.size(0)


def test_export_keeps_data_and_checks_it() -> None:
    module = Sizes()
    program = fl.export.export(module, (tensor([1.0, -1.0, 2.0]), tensor(3)))
    file = io.BytesIO()
    fl.export.save(program, file)
    file.seek(0)
    x = tensor([-1.0, 4.0, 5.0])
    for known in (program, fl.export.load(file), program.run_decompositions()):
        run = known.module()
        assert all(same(module(x, tensor(k)), run(x, tensor(k))) for k in (2, 7))
        with pytest.raises(RuntimeError, match="u0 >= 2"):
            run(x, tensor(1))
    spans = {str(name): (span.lower, span.upper) for name, span in program.range_constraints.items()}
    assert spans["u0"] == (2, 10)


def test_make_fx_records_data_as_symbols() -> None:
    def program(x: Any, n: Any) -> Any:
        return fl.ones(n.item()) * 2, x[x > 0], x.nonzero()

    graph = make_fx(program, tracing_mode="symbolic")(tensor([1.0, -1.0]), tensor(3))
    x = tensor([1.0, 2.0, -1.0])
    assert same(graph(x, tensor(5)), program(x, tensor(5)))
    with pytest.raises(DataDependentOutput, match="depends on data"):
        make_fx(branch, tracing_mode="symbolic")(tensor(3))
