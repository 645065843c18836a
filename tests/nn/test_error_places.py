"""Errors inside of a model name the layer and what it was given; mistakes that pass silently elsewhere are warned of."""

from __future__ import annotations

import re

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn import functional as F


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 2)

    def forward(self, x):
        return self.fc(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, x):
        return self.head(x)


class Reaching(nn.Module):
    """Calls a layer of its child, past the child itself."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential()
        self.head.fc = nn.Linear(10, 2)

    def forward(self, x):
        return self.head.fc(x)


def message_of(call) -> str:
    with pytest.raises((RuntimeError, ValueError, IndexError, AssertionError)) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", [Model, Reaching])
def test_the_path_of_the_layer_and_its_input(kind, compiled):
    model = fl.compile(kind()) if compiled else kind()
    place = f"in {kind.__name__}.head.fc: Linear(in_features=10, out_features=2, bias=True) got input (4, 8)"
    assert message_of(lambda: model(fl.randn(4, 8))).endswith(place)


@pytest.mark.host  # an index out of bounds is an error there at once
def test_a_layer_alone():
    message = message_of(lambda: nn.Embedding(10, 3)(fl.tensor([11])))
    assert message == "[embedding] expected indices in [0, 9], got 11\n  in Embedding(10, 3) got input (1,)"


def test_hooks_leave_the_path():
    model = Model()
    model.head.register_forward_hook(lambda *args: None)
    assert "in Model.head.fc: Linear" in message_of(lambda: model(fl.randn(4, 8)))


def test_errors_of_the_program_itself_stay_as_they_are():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    assert message_of(lambda: nn.Sequential(Raises())(1)) == "mine"


@pytest.mark.host  # an index out of bounds is an error there at once
def test_the_exception_and_its_traceback_are_kept():
    with pytest.raises(IndexError) as caught:
        nn.Sequential(nn.Embedding(10, 3))(fl.tensor([11]))
    assert any(entry.name == "forward" for entry in caught.traceback)


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda: nn.BatchNorm2d(3)(fl.randn(1, 4, 2, 2)),
            r"expected an input of 3 channels .* got shape \(1, 4, 2, 2\)",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2)(fl.ones(3, 2, 4), fl.ones(4, 3, 4), fl.ones(4, 3, 4)),
            r"query and key .* of one batch, got \(3, 2, 4\) and \(4, 3, 4\)",
        ),
        (lambda: fl.linalg.inv(fl.zeros(2, 2)), "rows are not independent"),
        (lambda: fl.linalg.cholesky(-fl.eye(2)), "leading minor of order 1 is not positive"),
        (
            lambda: F.binary_cross_entropy_with_logits(fl.ones(2), fl.tensor([0, 1])),
            "expected a floating target, got torch.int64",
        ),
    ],
)
def test_what_an_error_explains(call, said):
    assert re.search(said, message_of(call))


def test_a_misspelt_function_is_suggested():
    with pytest.raises(AttributeError, match="Did you mean: 'cross_entropy'"):
        F.cros_entropy  # noqa: B018


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: (fl.ones(1, requires_grad=True) * 2).grad, r"retain_grad\(\)"),
        (lambda: fl.tensor(fl.ones(1)), r"clone\(\)"),
    ],
)
def test_warnings(call, said):
    with pytest.warns(UserWarning, match=said):
        call()


def test_gradients_that_are_kept_are_read_without_a_warning(recwarn):
    x = fl.ones(1, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.backward()
    assert y.grad.item() == 1 and x.grad.item() == 2 and x.detach().grad is None
    assert not recwarn.list
