"""The language of scripts: what compiles means what it means in Python, and what does not says where."""

import enum
import importlib.util
import linecache
from typing import Final, NamedTuple, Union

import pytest

import flambeau as torch
from flambeau import Tensor, nn


def early_returns(x: Tensor, n: int):
    for i in range(n):
        if i == 3:
            return x
        x = x + 1
    return x * 2


def loops(values: list[int], stop: int) -> tuple[int, int]:
    total = 0
    seen = 0
    for i, value in enumerate(values):
        if value < 0:
            continue
        if value > stop:
            break
        total += value * i
        seen = i
    while seen < 10:
        seen += 4
    return total, seen


def refined(x: int | None, y: Union[int, str]) -> int:
    if x is None:
        x = 3
    if isinstance(y, str):
        return x + len(y)
    return x * y


def containers(n: int) -> tuple[list[int], dict[str, int], str]:
    squares = [i * i for i in range(n)]
    table = {k: v + 0 for k, v in [("a", 1), ("b", n)]}
    squares[0] = 7
    del squares[1]
    a, (b, c) = 1, (2, 3)
    table["sum"] = a + b + c
    return squares[::-1], table, f"{n} of {len(table)}" + "!".upper()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: Tensor
    y: int = 2


@torch.jit.script
class Counter:
    def __init__(self, start: int):
        self.value = start

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    @property
    def twice(self) -> int:
        return self.value * 2


def objects(x: Tensor, color: Color) -> tuple[Tensor, int, str]:
    point = Point(x, 5)
    counter = Counter(point.y)
    counter.add(2)
    return point.x + counter.value, counter.twice, color.name if color == Color.RED else "other"


def indexing(x: Tensor, i: int):
    y = x.clone()
    y[0] = 1.0
    y[1:, 0] += 2
    y[y > 8] = 0.0
    return y, y[i], y[..., None], y[:, ::2], y[torch.tensor([0, 1])]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (early_returns, (torch.ones(2), 2)),
        (early_returns, (torch.ones(2), 9)),
        (loops, ([1, -2, 3, 50, 4], 20)),
        (refined, (None, "abc")),
        (refined, (5, 6)),
        (containers, (4,)),
        (objects, (torch.ones(2), Color.RED)),
        (indexing, (torch.arange(12.0).reshape(3, 4), 1)),
    ],
)
def test_a_script_computes_what_python_computes(function, arguments):
    expected, actual = function(*arguments), torch.jit.script(function)(*arguments)
    flat = lambda value: list(value) if isinstance(value, tuple) else [value]  # noqa: E731
    for a, b in zip(flat(expected), flat(actual), strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


class Inner(nn.Module):
    scale: Final[float]

    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.weight * self.scale


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Inner(1.0), Inner(2.0)])
        self.named = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()})
        self.calls = 0
        self.register_buffer("offset", torch.zeros(3))

    def forward(self, x, flag: bool = True):
        for layer in self.layers:
            x = layer(x)
        for name, layer in self.named.items():
            x = layer(x) if flag or name == "a" else x
        self.calls += 1
        return x + self.offset

    @torch.jit.export
    def count(self) -> int:
        return self.calls

    @torch.jit.ignore
    def in_python(self, x: Tensor) -> Tensor:
        return x


def test_modules_share_tensors_and_have_attributes_of_their_own():
    model = Outer()
    scripted = torch.jit.script(model)
    x = torch.randn(2, 3, requires_grad=True)
    assert torch.allclose(scripted(x), model(x))
    scripted(x).sum().backward()
    assert x.grad is not None and model.layers[0].weight.grad is not None
    assert scripted.count() == 2 and model.calls == 1
    assert list(scripted.state_dict()) == list(model.state_dict())
    assert scripted.layers[1](x).shape == (2, 3) and len(scripted.layers) == 2
    with pytest.raises(RuntimeError, match="calls"):
        scripted.calls = "many"
    assert scripted.to(torch.float64)(x.double()).dtype is torch.float64
    assert not scripted.eval().layers[0].training


def test_graphs_can_be_walked():
    graph = torch.jit.script(early_returns).graph
    assert [v.debugName() for v in graph.inputs()] == ["x.1", "n.1"]
    loop = graph.findNode("prim::Loop")
    assert loop is not None and loop.findNode("prim::If") is not None
    assert str(next(graph.outputs()).type()) == "Tensor" and "aten::add" in str(graph)
    assert {n.kind() for n in graph.nodes()} >= {"prim::Loop", "prim::If", "prim::Constant"}


def undefined(x):
    return x + absent  # noqa: F821


def mismatched(x: Tensor) -> str:
    return x


def branches(x: Tensor, flag: bool):
    if flag:
        y = 1
    return x + y


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (undefined, "undefined value absent"),
        (mismatched, "annotated as having type str"),
        (branches, "not defined in the false branch"),
    ],
)
def test_errors_point_at_the_source(function, said):
    with pytest.raises(RuntimeError, match=said) as raised:
        torch.jit.script(function)
    assert "<--- HERE" in str(raised.value) and __file__ in str(raised.value)


def failing(x: Tensor, n: int):
    if n > 1:
        raise ValueError("too large")
    return x.view(7)


def test_errors_at_run_time_have_a_traceback():
    scripted = torch.jit.script(failing)
    with pytest.raises(torch.jit.Error, match="too large"):
        scripted(torch.ones(2), 3)
    with pytest.raises(RuntimeError, match=r"in failing[\s\S]*x.view\(7\)[\s\S]*<--- HERE"):
        scripted(torch.ones(2), 0)
    with pytest.raises(RuntimeError, match="Expected a value of type 'int' for argument 'n'"):
        scripted(torch.ones(2), "a")


def test_rows_of_a_scripted_embedding_are_renormalized():
    embedding = nn.Embedding(2, 2, max_norm=1.0)
    with torch.no_grad():
        embedding.weight.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
    rows = torch.jit.script(embedding)(torch.tensor([0, 1]))
    assert torch.allclose(rows, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))


def number_first(x):
    return 2 * x + (1 - x) / (3.0 + x) + 2**x + 1 / x + (2 < x) + (2 == x) + 5 % x + torch.sigmoid(1.5 * x)  # noqa: SIM300


def test_operators_of_a_number_and_a_tensor():
    scripted = torch.jit.script(number_first)
    x = torch.tensor([0.5, 2.0, 3.0])
    assert torch.allclose(scripted(x), number_first(x))
    assert "torch.mul(x, 2)" in scripted.code and "torch.gt(x, 2)" in scripted.code


def test_forks_run_at_the_same_time():
    """Two tasks that wait for each other end only if both run."""
    import threading

    barrier = threading.Barrier(2, timeout=30)

    @torch.jit.ignore
    def meet(x: Tensor) -> Tensor:
        barrier.wait()
        return x + 1

    def task(x: Tensor) -> Tensor:
        return meet(x) * 2

    def both(x: Tensor) -> Tensor:
        first = torch.jit.fork(task, x)
        second = torch.jit.fork(task, x)
        return torch.jit.wait(first) + torch.jit.wait(second)

    with torch.no_grad():
        result = torch.jit.script(both)(torch.ones(2, requires_grad=True))
    assert result.tolist() == [8, 8]
    assert not result.requires_grad


def test_errors_of_forks_are_raised_where_they_are_waited_for():
    def fails(x: Tensor) -> Tensor:
        if x.size(0) == 2:
            raise ValueError("two rows")
        return x

    def waits(x: Tensor) -> Tensor:
        return torch.jit.wait(torch.jit.fork(fails, x))

    program = torch.jit.script(waits)
    assert program(torch.ones(3)).shape == (3,)
    with pytest.raises(torch.jit.Error, match="two rows"):
        program(torch.ones(2))


def test_numbers_of_tensors_become_what_the_result_is_declared_as():
    def corner(x: Tensor) -> tuple[int, tuple[int, float]]:
        return x.item(), (x, x.item())

    def perhaps(x: Tensor) -> int | None:
        return torch.jit.annotate(int, x.item())

    assert torch.jit.script(corner)(torch.tensor(3)) == (3, (3, 3.0))
    assert torch.jit.script(perhaps)(torch.tensor(3)) == 3


def test_functions_that_differ_in_annotations_alone(tmp_path):
    results = []
    for kind in ("int", "float"):
        path = tmp_path / "program.py"
        path.write_text(f"def f(x) -> {kind}:\n    return x.item()\n")
        spec = importlib.util.spec_from_file_location("program", path)
        module = importlib.util.module_from_spec(spec)
        linecache.clearcache()
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
        results.append(torch.jit.script(module.f)(torch.tensor(2)))
    assert [type(r) for r in results] == [int, float]


class Variadic(nn.Module):
    def forward(self, *inputs):
        return inputs[0] + 1

    def __prepare_scriptable__(self):
        return Single()


class Single(nn.Module):
    def forward(self, x):
        return x + 1


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = Variadic()
        self.several = nn.ModuleList([self.shared, Single()])
        self.nested = nn.Sequential(nn.Sequential(Variadic()))

    def forward(self, x):
        for module in self.several:
            x = module(x)
        return self.nested(self.shared(x))


def test_modules_within_are_prepared_too():
    model = Holder()
    assert torch.jit.script(model)(torch.ones(1)).item() == 5
    assert type(model.several[0]) is Variadic and model.several[0] is model.shared


def test_operators_without_results_are_called():
    calls = []
    library = torch.library.Library("scripted_notes", "DEF")
    library.define("note(Tensor x, str text) -> ()")
    library.impl("note", lambda x, text: calls.append(text), "CompositeImplicitAutograd")

    def program(x: Tensor, text: str):
        torch.ops.scripted_notes.note(x, text)
        torch.ops.scripted_notes.note(x + 1, text)
        return x

    scripted = torch.jit.script(program)
    for _ in range(3):
        scripted(torch.ones(1), "here")
    assert calls == ["here"] * 6


def test_results_are_written_to_out():
    def program(x: Tensor, total: Tensor, n: int):
        scaled = torch.addcmul(total, x, x, value=2, out=total)
        torch.sum(x, dim=[n], out=torch.empty(0))
        return scaled, torch.matmul(x, x, out=torch.empty(0)), torch.cumsum(x, 0, out=None)

    x, total = torch.full((2, 2), 3.0), torch.ones(2, 2)
    scaled, product, sums = torch.jit.script(program)(x, total, 1)
    assert torch.equal(scaled, torch.full((2, 2), 19.0)) and torch.equal(total, scaled)
    assert torch.equal(product, x @ x) and torch.equal(sums, x.cumsum(0))


def test_context_managers_and_generators():
    def fn(x: torch.Tensor, n: int):
        generator = torch.Generator(device="cpu")
        generator.manual_seed(3)
        with torch.autograd.profiler.record_function("part"), torch.set_grad_enabled(False), torch.jit.strict_fusion():
            y = x * 2
        return y, torch.rand([n], generator=generator)

    y, drawn = torch.jit.script(fn)(torch.ones(2, requires_grad=True), 4)
    assert not y.requires_grad and torch.equal(drawn, torch.rand(4, generator=torch.Generator().manual_seed(3)))


def test_dictionaries_give_their_first_pair():
    def fn(d: dict[str, int]) -> tuple[str, int]:
        return d.popitem()

    assert torch.jit.script(fn)({"a": 1, "b": 2}) == ("a", 1)


def numbers_of_booleans(x: bool, t: Tensor):
    return x + 1, x * 2.0, -x, x > 0, t + x


def test_booleans_are_numbers_in_arithmetic():
    *numbers, total = torch.jit.script(numbers_of_booleans)(True, torch.ones(1))
    assert numbers == [2, 2.0, -1, True]
    assert total.tolist() == [2]


def mixed(x: int):
    return [x, 2.5, "s"]


def test_lists_of_several_types_are_lists_of_a_union():
    with pytest.warns(UserWarning, match="heterogeneous"):
        script = torch.jit.script(mixed)
    assert script(1) == [1, 2.5, "s"]


def norms(x):
    return [
        torch.norm(x), torch.norm(x, dim=0), torch.norm(x, p="fro"), torch.norm(x, 2, 1), torch.norm(x, 1.0, [0, 1]),
        torch.norm(x, p="nuc"), torch.norm(x, "fro", [0], dtype=torch.float64), torch.norm(x, keepdim=True),
    ]  # fmt: skip


def test_norms_take_what_they_take_in_python():
    x = torch.arange(6.0).view(2, 3)
    for mine, python in zip(torch.jit.script(norms)(x), norms(x)):
        assert mine.dtype == python.dtype and torch.allclose(mine, python)


def of_a_type(x):
    return type(x)


def of_a_set(x):
    return frozenset(x)


def of_a_file(x):
    return open("f")


@pytest.mark.parametrize("function", [of_a_type, of_a_set, of_a_file])
def test_builtins_that_scripts_lack_are_named_at_their_place(function):
    with pytest.raises(RuntimeError, match=r"Python builtin .* is currently not supported(.|\n)*<--- HERE"):
        torch.jit.script(function)
