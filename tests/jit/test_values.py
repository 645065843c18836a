"""What scripts take from Python and from operators: arguments that are converted, named results, names of the place where a text is compiled."""

import io
import math
import typing
import warnings

import pytest

import flambeau as torch
from flambeau import Tensor, nn


@torch.jit.script
def whole(a: int):
    return a + 1


@torch.jit.script
def real(a: float):
    return a + 1


@torch.jit.script
def truth(a: bool):
    return a


def test_numbers_are_taken_from_tensors_of_one_element():
    assert whole(torch.tensor(3)) == 4 and whole(torch.tensor([2.5])) == 3 and whole(True) == 2
    assert real(torch.tensor([3])) == 4.0 and truth(torch.tensor(True)) is True and truth(1) is True
    with pytest.raises(RuntimeError, match="type 'int' for argument 'a'"):
        whole(2.0)
    with pytest.raises(RuntimeError, match="type 'int' for argument 'a'"):
        whole(torch.ones(2))


def named_results(x: Tensor):
    return x.max(dim=1).indices + torch.sort(x, dim=1).values.sum(), torch.topk(x, 2)[0]


def test_results_of_operators_have_names():
    x = torch.randn(3, 4)
    ours, theirs = torch.jit.script(named_results)(x), named_results(x)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


class Pools(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.average = nn.AdaptiveAvgPool2d((None, 2))

    def forward(self, x: Tensor):
        found, places = self.pool(x)
        best, where = nn.functional.adaptive_max_pool2d(x, (2, None), return_indices=True)
        return found, places, best, where, self.average(x), nn.functional.max_pool1d(x[0], 2)


def test_pooling_gives_indices_and_takes_sizes_of_the_input():
    x, model = torch.randn(1, 3, 4, 4), Pools()
    for made in (torch.jit.script(model), torch.jit.trace(model, x)):
        assert all(torch.equal(a, b) for a, b in zip(made(x), model(x), strict=True))


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Proxy(nn.Module):
    step: Step

    def __init__(self):
        super().__init__()
        self.step = Twice()

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x)


def test_modules_behind_interfaces_are_called():
    assert torch.equal(torch.jit.script(Proxy())(torch.ones(2)), torch.full((2,), 2.0))


def warned(x: int) -> float:
    warnings.warn("a warning of the script", UserWarning, stacklevel=2)
    return x * math.inf


def test_warnings_and_infinity():
    with pytest.warns(UserWarning, match="a warning of the script"):
        assert torch.jit.script(warned)(1) == math.inf


def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_texts_see_the_names_of_the_place():
    local = torch.jit.script(doubled)
    unit = torch.jit.CompilationUnit("def f(x):\n    # type: (Tensor)\n    return local(doubled(x)) + x * inf\n")
    assert torch.equal(unit.f(torch.ones(1)), torch.full((1,), math.inf)) and local is not None


def mixed(x: int | str | None) -> str:
    return "text"


def test_unions_print_in_one_order():
    assert str(torch.jit.script(mixed).schema) == "mixed(Union(int, NoneType, str) x) -> str"
    assert "%x : Union" in str(torch.jit.script(mixed).graph)


def fails_without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
        assert bool(y.sum() > 0), "a sum above zero is expected"
        y = y + 1
    return x * y


def test_contexts_are_left_when_their_body_fails():
    scripted = torch.jit.script(fails_without_gradients)
    with pytest.raises(Exception, match="a sum above zero"):
        scripted(-torch.ones(2))
    assert torch.is_grad_enabled()
    x = torch.ones(2, requires_grad=True)
    assert torch.equal(torch.autograd.grad(scripted(x).sum(), x)[0], torch.full((2,), 3.0))


def containers(n: int):
    items: list[int] = list()  # noqa: C408
    names: dict[str, int] = dict(a=n)  # noqa: C408
    more = dict(names, b=2)
    cut = slice(1, None)
    return items, more, [1, 2, 3][cut], [4, 5, 6][slice(2)]


def corners(x: torch.LongTensor, generator: torch.Generator):
    return x[..., slice(0, 1)], torch.rand(2, generator=generator).size(0)


def test_slices_and_constructors_of_containers():
    assert torch.jit.script(containers)(1) == containers(1)
    x = torch.arange(6).view(2, 3)
    part, size = torch.jit.script(corners)(x, torch.Generator())
    assert torch.equal(part, x[..., :1]) and size == 2


class Stateful(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.register_buffer("value", torch.ones(2))

    @torch.jit.script_method
    def forward(self, x: Tensor) -> Tensor:
        return x + self.value

    @torch.jit.script_method
    def __getstate__(self):
        return (self.value, self.training)

    @torch.jit.script_method
    def __setstate__(self, state):
        self.value = state[0] + 10
        self.training = state[1]


def test_the_type_of_a_state_follows_from_getstate():
    assert torch.equal(reloaded(Stateful())(torch.ones(1)), torch.full((2,), 12.0))


def reloaded(scripted):
    return torch.jit.load(io.BytesIO(scripted.save_to_buffer()))


class Named(nn.Module):
    def forward(self, x: str) -> str:
        return x + "f"


def before(self, given: tuple[str]) -> tuple[str]:
    return (given[0] + "p",)


def after(self, given: tuple[str], result: str) -> str:
    return result + "h"


def test_hooks_of_archives_run():
    model = Named()
    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)
    scripted = torch.jit.script(model)
    assert scripted("a") == reloaded(scripted)("a") == reloaded(reloaded(scripted))("a") == "apfh"


@torch.jit.script
def negated(x: Tensor):
    return -x


class Multiplied(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 5))

    def forward(self, x: Tensor):
        return negated(x @ self.weight)


def test_scripts_are_called_in_traces_of_trained_modules():
    model, x = Multiplied(), torch.rand(3, 4)
    assert torch.equal(torch.jit.trace(model, x)(x), model(x))


def bare(x: typing.List):  # noqa: UP006
    return x


def test_annotations_say_what_containers_hold():
    with pytest.raises(RuntimeError, match="use List without a contained type"):
        torch.jit.script(bare)
