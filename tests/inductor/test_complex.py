"""Complex numbers and memory that is read as another dtype in compiled functions: values, gradients, writes and aliases."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import compile_fx, config, plan
from flambeau._inductor.compile_fx import compile_tensor_function
from flambeau._inductor.ir import OperatorCall


@pytest.fixture
def planned(monkeypatch):
    """The operators that each planned program calls, and its kernels."""
    made = []

    class Noted(plan.Plan):
        def run(self, scheduled, outputs):
            program = super().run(scheduled, outputs)
            calls = [s.call.op._full_name for s in scheduled if isinstance(s, OperatorCall) and s.call is not None]
            made.append((calls, len(self.launches)))
            return program

    monkeypatch.setattr(compile_fx, "Plan", Noted)
    fl.manual_seed(0)
    return made


def leaf(*size, dtype=fl.float32, scale=1.0):
    return (fl.randn(size, dtype=dtype) * scale).requires_grad_()


def rotated(x, angles):
    """Rotary embeddings as Llama's code has them."""
    pairs = fl.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return fl.view_as_real(pairs * angles[: x.shape[1], None]).flatten(3).type_as(x)


def angles(length, width):
    t = fl.outer(fl.arange(length).float(), 1 / 10 ** (fl.arange(0, width, 2).float() / width))
    return fl.polar(fl.ones_like(t), t)


def attention(x, wq, wk, wv, turn):
    q, k, v = (F.linear(x, w).view(*x.shape[:2], 4, -1) for w in (wq, wk, wv))
    q, k, v = (t.transpose(1, 2) for t in (rotated(q, turn), rotated(k, turn), v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def agrees(function, *given):
    """Results, their looks, gradients, and what becomes of the arguments are those of eager mode."""
    for reuse in (True, False):
        with config.patch(allow_buffer_reuse=reuse):
            compiled = compile_tensor_function(function, len(given))
            for _ in range(2):
                _compare(compiled, function, given)


def _compare(compiled, function, given):
    ours, eager = ([t.detach().clone().requires_grad_(t.requires_grad) for t in given] for _ in range(2))
    got, expected = compiled(*ours), function(*eager)
    for a, b in zip([*got, *ours], [*expected, *eager]):
        assert (a.dtype, a.stride(), a.requires_grad) == (b.dtype, b.stride(), b.requires_grad)
        fl.testing.assert_close(a, b, equal_nan=True)
    roots = [k for k, t in enumerate(expected) if t.requires_grad]
    if roots:
        seeds = [fl.randn_like(expected[k]) for k in roots]
        mine, true = (
            fl.autograd.grad([r[k] for k in roots], [t for t in leaves if t.requires_grad], seeds, allow_unused=True)
            for r, leaves in ((got, ours), (expected, eager))
        )
        for a, b in zip(mine, true):
            assert (a is None) == (b is None)
            if a is not None:
                fl.testing.assert_close(a, b)


CASES = {
    "rotary embeddings": (rotated, [leaf(2, 5, 3, 8), angles(7, 8)]),
    "rotary embeddings of double precision": (
        lambda x, a: fl.view_as_real(fl.view_as_complex(x) * a),
        [leaf(4, 6, 2, dtype=fl.float64), fl.randn(6, dtype=fl.complex128)],
    ),
    "attention": (attention, [leaf(2, 6, 16), *(leaf(32, 16, scale=0.25) for _ in range(3)), angles(6, 8)]),
    "sums and products": (
        lambda a, b: (a + b * 2 - a.conj() * b) * (1 - 3j),
        [leaf(5, 7, dtype=fl.complex64), leaf(7, dtype=fl.complex64)],
    ),
    "complex and real": (lambda z, x: (z * x + x, (z * x).abs() + x), [leaf(4, 6, dtype=fl.complex64), leaf(6)]),
    "parts": (lambda z: (z.real * 2 + z.imag.exp(), z.imag), [leaf(4, 6, dtype=fl.complex64)]),
    "parts of results": (lambda z: ((z * z).real.relu(), (z + 1).imag), [leaf(4, 6, dtype=fl.complex64)]),
    "made of parts": (lambda x, y: fl.complex(x + 1, y * 2) * 1j, [leaf(4, 6), leaf(4, 6)]),
    "modulus and angle": (lambda z: (z.abs().sin(), z.angle() + 1), [leaf(4, 6, dtype=fl.complex64)]),
    "quotients and functions": (
        lambda a, b: (a / b + (a * 2).exp(), b.sigmoid() * 2),
        [leaf(4, 6, dtype=fl.complex64), leaf(4, 6, dtype=fl.complex64)],
    ),
    "folds": (lambda z: (z * 2).sum(0) + (z * z.conj()).mean(), [leaf(5, 7, dtype=fl.complex64)]),
    "transposed": (lambda z: (z.t().contiguous() * 2).real + z.t().imag, [leaf(5, 7, dtype=fl.complex64)]),
    "conversions": (
        lambda x, z: (x.to(fl.complex64) * 1j, z.to(fl.complex128) + 1),
        [leaf(4, 6), leaf(4, 6, dtype=fl.complex64)],
    ),
    "no dimensions": (lambda z: fl.view_as_real(z * 2) + 1, [leaf(dtype=fl.complex64)]),
    "no elements": (lambda z: fl.view_as_real(z * 2) + 1, [leaf(0, 3, dtype=fl.complex64)]),
    "transforms": (lambda x: fl.fft.fft2((x + 1).relu()).real * 2, [leaf(3, 8, 8)]),
    "transforms there and back": (
        lambda x, w: fl.fft.irfft(fl.fft.rfft(x * 2) * w).relu() + x,
        [leaf(3, 16), leaf(9, dtype=fl.complex64)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_eager_mode(name, planned):
    function, given = CASES[name]

    def listed(*args):
        made = function(*args)
        return list(made) if isinstance(made, tuple) else [made]

    agrees(listed, *given)
    assert planned  # it did not run operator by operator
    with fl.no_grad():
        agrees(listed, *(t.detach() for t in given))


@pytest.mark.host  # on a GPU products of complex numbers are calls
def test_rotary_embeddings_are_one_kernel(planned):
    compiled = compile_tensor_function(lambda x, a: [rotated(x, a)], 2)
    x = leaf(2, 5, 3, 8)
    compiled(x, angles(7, 8))[0].sum().backward()
    assert planned == [([], 1), ([], 1)]


def test_functions_of_complex_numbers_are_not_computed_again(planned):
    compiled = compile_tensor_function(lambda z: [(z.exp() * z.sin()).abs()], 1)
    compiled(leaf(4, 6, dtype=fl.complex64))[0].sum().backward()
    (forward, _), (backward, _) = planned
    assert {"exp", "sin"} <= set(forward)
    assert not {"exp", "sin"} & set(backward)


@pytest.mark.host
def test_a_model_compiles_once_for_all_lengths(planned):
    class Model(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = fl.nn.Linear(16, 16)
            self.register_buffer("angles", angles(32, 8))

        def forward(self, x):
            return rotated(self.inner(x).view(*x.shape[:2], 2, 8), self.angles).sum((0, 1))

    model = Model()
    compiled = fl.compile(model, fullgraph=True)
    for length in (5, 9, 32, 1):
        x = fl.randn(2, length, 16)
        grads = []
        for run in (compiled, model):
            model.zero_grad()
            made = run(x)
            made.pow(2).sum().backward()
            grads.append((made.detach(), *(p.grad.clone() for p in model.parameters())))
        for a, b in zip(*grads):
            fl.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_low_precision_is_rotated_in_single():
    agrees(lambda x, a: [rotated(x, a)], fl.randn(2, 5, 3, 8).to(fl.bfloat16).requires_grad_(), angles(7, 8))


def test_bits_are_read_as_another_dtype(planned):
    def function(x, n):
        bits = (x * 2).view(fl.int32)
        return [(bits >> 23) + 1, (n + 1).view(fl.float32) * 2, (n & 255).to(fl.uint8).view(fl.int16) + 1]

    agrees(function, fl.randn(5, 8), fl.randint(1 << 20, 1 << 30, (5, 8), dtype=fl.int32))
    assert planned


def test_a_kernel_does_not_write_over_what_it_reads_as_another_dtype():
    def function(x):
        y = x * 2
        z = y.view(fl.int32) + 1
        return [z, (z * 2).view(fl.float32) + y]

    agrees(function, fl.randn(70, 90))


def test_writes_through_either_view_are_seen_by_the_other():
    def function(z, x):
        fl.view_as_real(z)[..., 0].mul_(2)
        pairs = fl.view_as_complex(x)
        before = x + 1
        pairs.mul_(1j)
        after = x * 2
        x.add_(1)
        return [z + 1, before, after, pairs * 2]

    agrees(function, fl.randn(4, 6, dtype=fl.complex64), fl.randn(4, 6, 2))


def test_memory_of_its_own_is_written_through_views():
    def function(x):
        y = x + 1
        pairs = fl.view_as_complex(y.view(-1, 2))
        pairs.mul_(2j)
        y.view(-1, 2)[:, 0].add_(1)
        bits = y.view(fl.int32)
        bits.bitwise_and_(-256)
        return [pairs.conj() + 1, y * 2, bits]

    agrees(function, fl.randn(4, 6))


def test_an_input_that_is_only_read_is_not_said_to_be_written():
    z = fl.randn(4, dtype=fl.complex64)
    before = z._version
    compile_tensor_function(lambda z: [fl.view_as_real(z) * 2], 1)(z)
    assert z._version == before


def test_results_are_views_of_inputs():
    z, x = fl.randn(4, 6, dtype=fl.complex64), fl.randn(4, 2)
    real, pairs, imag = compile_tensor_function(lambda z, x: [fl.view_as_real(z), fl.view_as_complex(x), z.imag], 2)(
        z, x
    )
    z.add_(1 + 2j)
    x.mul_(3)
    fl.testing.assert_close(real, fl.view_as_real(z))
    fl.testing.assert_close(pairs, fl.view_as_complex(x))
    fl.testing.assert_close(imag, z.imag)


def test_memory_that_begins_in_the_middle_of_an_element_is_refused():
    function = compile_tensor_function(lambda x: [fl.view_as_complex(x)], 1)
    memory = fl.randn(9)
    fl.testing.assert_close(function(memory[:8].view(4, 2))[0], fl.view_as_complex(memory[:8].view(4, 2)))
    with pytest.raises(RuntimeError, match=r"\[view\]|storage offset"):
        function(memory[1:].view(4, 2))


def test_infinite_parts_stay_infinite():
    z = fl.complex(fl.tensor([float("inf"), float("nan"), 1e30, 0.0]), fl.tensor([float("nan"), 1.0, 1e30, -0.0]))
    agrees(lambda z: [z.abs() * 1, z + 1, -z], z)
    assert compile_tensor_function(lambda z: [z.abs() + 0], 1)(z)[0][0].item() == float("inf")
