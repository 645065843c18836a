"""A gradient that is differentiated again has the values of one that is not, for every pointwise record of complex numbers."""

import pytest

import flambeau as fl
from flambeau.ops import record

POINTS = [0.25 + 0.5j, 1 - 0.5j, -1.5 + 2j, 0.5j]


def _functions():
    for name, entry in record.load().items():
        tensors = [a for a in entry.schema.args if a.is_tensor]
        required = [a for a in entry.schema.args if a.default is None]
        known = entry.kind == "pointwise" and entry.vjp is not None and entry.function and not entry.alias_of
        if known and "c" in entry.details["dtypes"] and len(tensors) == len(required) <= 2 and entry.module != "_ops":
            found = fl
            for part in filter(None, [*(entry.module or "").split("."), entry.public or entry.schema.name]):
                found = getattr(found, part, None)
            if found is not None:
                yield pytest.param(found, len(tensors), id=name)


@pytest.mark.parametrize("function, operands", _functions())
@pytest.mark.parametrize("real", [False, True])
def test_gradients_agree_whether_recorded_or_not(function, operands, real):
    inputs = [fl.tensor(POINTS, dtype=fl.complex128, requires_grad=True)]
    if operands == 2:
        values = [0.5, -1.25, 2.0, -3.0] if real else [1 + 1j, 2 - 1j, -0.5j, 0.75 + 0j]
        inputs.insert(0, fl.tensor(values, dtype=fl.float64 if real else fl.complex128, requires_grad=True))
    try:
        out = function(*inputs)
    except RuntimeError:
        pytest.skip("of tensors of one dtype")
    if not out.requires_grad:
        pytest.skip("no derivative")
    top = fl.ones_like(out) * (0.5 - 0.25j if out.is_complex() else 0.5)
    plain = fl.autograd.grad(out, inputs, top, retain_graph=True, materialize_grads=True)
    recorded = fl.autograd.grad(out, inputs, top, create_graph=True, materialize_grads=True)
    for a, b in zip(plain, recorded):
        assert a.dtype == b.dtype and fl.allclose(a, b.detach())


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_slopes_that_jump_at_zero_have_no_slope_there(name):
    x = fl.tensor([-1.0, 0.0, 1.0], dtype=fl.float64, requires_grad=True)
    (slope,) = fl.autograd.grad(getattr(fl.nn.functional, name)(x).sum(), x, create_graph=True)
    second = fl.autograd.grad(slope.sum(), x)[0].tolist()
    assert second[0] > 0 and second[1:] == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16, fl.float32])
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_quotients_have_a_derivative_of_zero_even_of_nan(dtype, mode):
    x = fl.tensor([0.0, 3.0], dtype=dtype, requires_grad=True)
    out = fl.div(x, x, rounding_mode=mode)
    assert out.requires_grad
    assert fl.autograd.grad((out * 0.5).sin().sum(), x)[0].tolist() == [0.0, 0.0]


def test_distances_of_nothing_have_a_history():
    x = fl.ones(3, 0, requires_grad=True)
    distances = fl.nn.functional.pdist(x)
    assert distances.tolist() == [0.0] * 3 and distances.requires_grad
    distances.sum().backward()
    assert x.grad.shape == (3, 0)
