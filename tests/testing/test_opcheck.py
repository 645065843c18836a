"""opcheck finds what is wrong with an operator."""

import pytest

import flambeau as fl
from flambeau.library import custom_op, opcheck, wrap_triton


@custom_op("opcheck_tests::twice", mutates_args=())
def twice(x: fl.Tensor) -> fl.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return fl.empty_like(x)


twice.register_autograd(lambda ctx, grad: grad * 2)


@custom_op("opcheck_tests::wrong", mutates_args=())
def wrong(x: fl.Tensor) -> fl.Tensor:
    return x.sum()


@wrong.register_fake
def _(x):
    return fl.empty_like(x)


def test_a_good_operator_passes():
    assert set(opcheck(twice, (fl.randn(3, requires_grad=True),)).values()) == {"SUCCESS"}


def test_a_wrong_shape_is_found():
    with pytest.raises(Exception, match="test_faketensor"):
        opcheck(wrong, (fl.randn(3),), test_utils="test_faketensor")
    found = opcheck(wrong, (fl.randn(3),), raise_exception=False, test_utils=("test_schema", "test_faketensor"))
    assert found["test_schema"] == "SUCCESS" and "shape" in str(found["test_faketensor"])


def test_kernels_of_triton_are_left_alone():
    kernel = object()
    assert wrap_triton(kernel) is kernel
