"""Calls that wait until they are asked for, in Python, scripts and archives."""

import io

import flambeau as torch
from flambeau import Tensor, nn
from flambeau.jit._await import _Await as Await

calls: list[int] = []


def delayed(x: Tensor, n: int) -> Tensor:
    return x + n


class Later(nn.Module):
    def pair(self, x: Tensor) -> tuple[Tensor, int]:
        return x * 2, 3

    def use(self, value: Await[Tensor]) -> Tensor:
        return value.relu() + torch.jit._awaitable_wait(value)

    def forward(self, x):
        first = torch.jit._awaitable(delayed, x, 3)
        second = torch.jit._awaitable(self.pair, x)
        known = torch.jit._awaitable_nowait(x)
        return self.use(first) + torch.jit._awaitable_wait(second)[0] + torch.jit._awaitable_wait(known)


def unused(x: Tensor, ask: bool) -> Tensor:
    value = torch.jit._awaitable(delayed, x.view(2, 2), 1)
    if ask:
        x = torch.jit._awaitable_wait(value)
    return x


def test_an_await_runs_once_when_it_is_asked_for():
    def noted(x):
        calls.append(1)
        return x + 1

    value = torch.jit._awaitable(noted, torch.ones(2))
    assert not calls and not value.is_nowait()
    assert value.shape == (2,)
    assert torch.jit._awaitable_wait(value).tolist() == [2, 2]
    assert calls == [1]
    assert torch.jit._awaitable_nowait(3).wait() == 3


def test_scripts_wait_for_awaits_also_by_their_attributes():
    script = torch.jit.script(Later())
    for _ in range(8):  # compiled from the seventh call on
        assert script(torch.ones(2)).tolist() == [11, 11]
    file = io.BytesIO()
    torch.jit.save(script, file)
    file.seek(0)
    loaded = torch.jit.load(file)
    assert loaded(torch.ones(2)).tolist() == [11, 11]
    assert "awaitable(__awaitable_function)" in loaded.code


def test_what_nobody_waits_for_passes_its_arguments_only():
    script = torch.jit.script(unused)
    assert script(torch.ones(4), False).shape == (4,)
    assert script(torch.ones(4), True).tolist() == [[2, 2], [2, 2]]
