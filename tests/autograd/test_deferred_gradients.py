"""Gradients that are conjugated or negated when they are read, and derivatives where complex numbers are 0."""

import pytest

import flambeau as fl

VALUES = [[1 + 2j, 0.5 - 1j, -1 + 0.25j], [2 - 0.5j, -0.3 + 1j, 0.7 + 0.1j], [0.2 + 0.3j, 1.5 - 2j, -0.6 - 1j]]

# Of a view of complex numbers that is deferred, or of its parts; each has a derivative that receives a deferred gradient.
PROGRAMS = {
    "complex": lambda x: fl.complex(x.real, x.imag),
    "polar": lambda x: fl.polar(x.abs(), x.angle()),
    "view_as_complex": lambda x: fl.view_as_complex(fl.view_as_real(x.resolve_conj().resolve_neg())),
    "view_as_real": lambda x: fl.view_as_complex(fl.view_as_real(x.resolve_conj().resolve_neg()) * 2).imag,
    "corrcoef": lambda x: fl.corrcoef(x),
    "fft": lambda x: fl.fft.fft(x),
    "write_through_a_part": lambda x: _scaled_part(x),
    "product": lambda x: x @ x.mH,
}
VIEWS = {
    "conj": lambda z: z.conj(),
    "mH": lambda z: z.mH,
    "slice": lambda z: z.conj()[1:, ::2],
    "negative": lambda z: fl._neg_view(z.conj()),
}


def _scaled_part(x):
    y = x * 1
    y.imag.mul_(3)
    return y


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("view", VIEWS)
def test_gradients_of_views_that_are_deferred(program, view):
    function = lambda z: PROGRAMS[program](VIEWS[view](z)).conj()  # noqa: E731
    z = fl.tensor(VALUES, dtype=fl.complex128, requires_grad=True)
    assert fl.autograd.gradcheck(function, z)
    assert fl.autograd.gradgradcheck(function, z)


@pytest.mark.parametrize("view", VIEWS)
def test_gradcheck_takes_deferred_inputs(view):
    z = VIEWS[view](fl.tensor(VALUES, dtype=fl.complex128)).detach().requires_grad_()
    assert z.is_conj() or z.is_neg()
    assert fl.autograd.gradcheck(lambda z: z * z, z)


@pytest.mark.parametrize("function", [fl.abs, fl.sgn])
def test_second_derivatives_at_zero_are_zero(function):
    z = fl.tensor([0j, 1 + 1j, -2j], requires_grad=True)
    y = function(z)
    (g,) = fl.autograd.grad(y, z, fl.ones_like(y), create_graph=True)
    (second,) = fl.autograd.grad(g, z, fl.ones_like(g))
    assert second[0] == 0 and second.isfinite().all()


LEAST = float("-inf")


@pytest.mark.parametrize(
    "values",
    [[0.5, -1.0, 2.0], [100.0, -1000.0, 3.0, 2000.0, 7.0], [-1e4, 1e4, 0.0], [0.0, LEAST, 1.0], [3.0], list(range(37))],
)
@pytest.mark.parametrize("weights", [1.0, 0.0, -2.0])
def test_gradients_of_running_sums_of_exponentials_in_any_range(values, weights):
    """With and without a graph of the gradient they are the same, and finite."""
    x = fl.tensor(values, dtype=fl.float64, requires_grad=True)
    y = x.logcumsumexp(0)
    g = fl.full_like(y, weights)
    (plain,) = fl.autograd.grad(y, x, g, retain_graph=True)
    (graph,) = fl.autograd.grad(y, x, g, create_graph=True)
    fl.testing.assert_close(graph.detach(), plain, rtol=1e-9, atol=1e-12)
    assert graph.isfinite().all()
    (second,) = fl.autograd.grad(graph.sum(), x)
    assert second.isfinite().all()


@pytest.mark.parametrize("dtype", [fl.float64, fl.complex128])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_derivatives_of_running_sums_of_exponentials(dtype, n):
    x = fl.linspace(-2, 3, n, dtype=fl.float64).sin().to(dtype)
    if dtype.is_complex:
        x = x + 0.3j * fl.arange(n)
    x.requires_grad_()
    assert fl.autograd.gradcheck(lambda x: x.logcumsumexp(0), x)
    assert fl.autograd.gradgradcheck(lambda x: x.logcumsumexp(0), x)


def test_gradients_that_are_not_numbers_stay_so():
    x = fl.tensor([0.0, 1.0], requires_grad=True)
    (g,) = fl.autograd.grad(x.logcumsumexp(0), x, fl.tensor([1.0, float("nan")]))
    assert g.isnan().all()
