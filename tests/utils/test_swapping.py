"""utils.swap_tensors: two objects exchange everything but their identity."""

import weakref

import pytest

import flambeau as fl
from flambeau.utils import swap_tensors


def test_data_class_and_attributes_are_swapped():
    parameter = fl.nn.Parameter(fl.ones(2))
    parameter.mark = "p"
    tensor = fl.zeros(3, dtype=fl.int64)
    holders = [parameter, tensor]
    swap_tensors(parameter, tensor)
    assert holders[0] is parameter and parameter.shape == (3,) and type(parameter) is fl.Tensor
    assert isinstance(tensor, fl.nn.Parameter) and tensor.mark == "p" and not hasattr(parameter, "mark")
    assert tensor.requires_grad and not parameter.requires_grad
    (tensor * 2).sum().backward()
    assert tensor.grad.tolist() == [2, 2]


def test_tensors_that_others_hold_are_refused():
    tensor = fl.ones(2)
    reference = weakref.ref(tensor)
    with pytest.raises(RuntimeError, match="weak"):
        swap_tensors(tensor, fl.zeros(2))
    assert reference() is tensor
    leaf = fl.ones(2, requires_grad=True)
    result = leaf * 2
    with pytest.raises(RuntimeError, match="swap_tensors"):
        swap_tensors(leaf, fl.zeros(2))
    del result
