"""First and second derivatives of every record against finite differences, on its samples."""

import pathlib
import sys

import pytest

import flambeau as fl
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.ops import samples

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from sampled import NAMES, RECORDS, as_function, calls, operator, run, tensors


def test_every_record_has_samples():
    missing = []
    for name in NAMES:
        try:
            if not calls(name, fl.float64):
                missing.append(name)
        except LookupError:
            missing.append(name)
    assert not missing
    assert not set(samples.WITHOUT) - set(RECORDS)


# How much two backwards of the same may differ: an accelerator's libraries add in no fixed order.
ATOMIC = 0.0 if fl.get_default_device().type == "cpu" else 1e-10

# Results that are floating point and yet have no derivative: values without history, or of no dependence.
CONSTANT = set(
    "empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full new_empty_strided rand_like randn_like "
    "randint_like randint_like.low_dtype detach detach_copy bernoulli.p _quantized_dynamically".split()
)

# Products of integers: for inference only. Asked for a gradient, they say that they have none.
INTEGERS = set(
    "_int8_linear _int8_linear_dynamic _int8_convolution _weight_int8pack_mm _weight_int4pack_mm_for_cpu _quantized_linear "
    "_quantized_conv _quantized_linear_dynamic".split()
)

# Random numbers, of which the gradient is zero by agreement though they move with their parameters.
DRAWN = set("normal.float_Tensor normal.Tensor_float normal.Tensor_Tensor".split())

# Conversions to numbers of few digits need large steps; they are linear, so that these do no harm.
STEPS = {"float": 1e-2, "cfloat": 1e-2, "half": 0.25, "bfloat16": 1.0}


def check(name, dtype):
    op = operator(name)
    for call in calls(name, dtype):
        function, inputs = as_function(op, call)
        if not inputs:
            continue
        results = function(*inputs)
        if not any(r.requires_grad for r in results):
            assert not results or name in CONSTANT, f"{name} has no derivative"
            continue
        if name in INTEGERS:
            with pytest.raises(RuntimeError, match="derivative"):
                fl.autograd.grad(results[0].sum(), inputs, allow_unused=True)
            continue
        if name in DRAWN:
            assert all(not g.any() for g in fl.autograd.grad(results[0], inputs, fl.ones_like(results[0])))
            continue
        step = STEPS.get(name)
        options = {"eps": step, "atol": 0.02} if step else {"atol": 1e-5}
        assert gradcheck(function, inputs, fast_mode=True, nondet_tol=ATOMIC, **options)
        assert gradgradcheck(
            function, inputs, fast_mode=True, nondet_tol=ATOMIC, **(options if step else {"atol": 1e-4})
        )


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    check(name, fl.float64)


def takes_complex(name):
    try:
        call = calls(name, fl.complex128)[0]
        given = tensors(samples.plain([call.args, call.kwargs]))
        return any(t.is_complex() for t in given) and run(operator(name), call) is not None
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        return False


@pytest.mark.parametrize("name", NAMES)
def test_complex_derivatives(name):
    if not takes_complex(name):
        pytest.skip("not of complex numbers")
    check(name, fl.complex128)


@pytest.mark.parametrize("name", [n for n in NAMES if RECORDS[n].inplace])
def test_derivatives_in_place(name):
    schema = RECORDS[name].schema
    op = operator(f"{schema.name}_.{schema.overload}" if schema.overload else f"{schema.name}_")
    for call in calls(name, fl.float64)[:2]:
        result = run(operator(name), call)
        first = samples.plain(call.args[0])
        if not isinstance(first, fl.Tensor) or (result.shape, result.dtype) != (first.shape, first.dtype):
            continue
        function, inputs = as_function(op, call)
        if inputs and any(r.requires_grad for r in function(*inputs)):
            assert gradcheck(function, inputs, fast_mode=True, atol=1e-5)
            assert gradgradcheck(function, inputs, fast_mode=True, atol=1e-4)
