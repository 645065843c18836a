"""Calls that transformations of functions refuse, and older names of theirs that warn."""

from __future__ import annotations

import warnings

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.func import jacrev, jvp, replace_all_batch_norm_modules_, stack_module_state, vmap
from flambeau.func._stateless import combine_state_for_ensemble, make_functional


def test_operators_whose_sizes_depend_on_values_are_not_batched():
    with pytest.raises(RuntimeError, match="dynamic shape"):
        vmap(fl.nonzero)(fl.ones(2, 3))


def test_a_write_of_fewer_dimensions_than_its_target_is_batched():
    def write(x, y):
        target = x.clone()
        return target.add_(y)

    x, y = fl.zeros(4, 1, 2), fl.arange(8.0).view(4, 2)
    assert fl.equal(vmap(write)(x, y), fl.stack([write(a, b) for a, b in zip(x, y)]))


def test_models_of_an_ensemble_must_be_alike():
    models = [nn.Linear(2, 2) for _ in range(3)]
    models[1].eval()
    with pytest.raises(RuntimeError, match="same training/eval mode"):
        stack_module_state(models)
    models[1].train().weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"same \.requires_grad"):
        stack_module_state(models)
    with pytest.raises(RuntimeError, match="at least one model"):
        combine_state_for_ensemble([])


def test_strict_forward_mode_and_chunks():
    y = fl.ones(2)
    with pytest.raises(RuntimeError, match="strict"):
        jvp(lambda x: (x, y), (fl.ones(2),), (fl.ones(2),), strict=True)
    with pytest.raises(ValueError, match="chunk_size"):
        jacrev(fl.sin, chunk_size=0)(y)


@pytest.mark.parametrize("save", ["save_for_backward", "save_for_forward"])
def test_an_input_that_is_returned_as_it_is_cannot_be_saved(save):
    class Same(fl.autograd.Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            getattr(ctx, save)(output)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    with pytest.raises(RuntimeError, match="returned as-is"):
        Same.apply(fl.ones(2, requires_grad=True))


def test_shared_parameters_stay_shared_in_functions_of_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(fl.ones(3))
            self.linear = nn.Linear(3, 3)
            self.linear.bias = self.bias
            self.again = self.linear

        def forward(self, x):
            return self.again(self.linear(x)) + self.bias

    model = Tied()
    function, parameters = make_functional(model)
    assert len(parameters) == 2
    x = fl.ones(2, 3)
    assert fl.allclose(function(parameters, x), model(x))


def test_hooks_that_unpacking_enters_end_with_the_backward():
    entered = []

    def unpack(x):
        entered.append(hooks.__enter__())
        return x

    hooks = fl.autograd.graph.saved_tensors_hooks(lambda x: x, unpack)
    with hooks:
        fl.ones(2, requires_grad=True).sin().sum().backward()
    assert entered and fl._C._saved_tensors_hooks_depth() == 0
    with fl.autograd.graph.disable_saved_tensors_hooks("none"):
        pass


def test_functorch_warns_of_names_that_moved():
    import flambeau._compat.torch.functorch.experimental as experimental
    from flambeau._compat.torch import functorch

    with pytest.warns(FutureWarning, match=r"Please use `torch.func.grad`"):
        functorch.grad(fl.sin)
    with pytest.warns(FutureWarning, match=r"Please use `torch.vmap`"):
        functorch.vmap(fl.sin)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vmap(fl.sin)
    assert experimental.replace_all_batch_norm_modules_ is replace_all_batch_norm_modules_
