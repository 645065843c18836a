"""Complex numbers on a device whose kernels have none: as pairs of real numbers, without the host."""

import pytest

import flambeau as fl
from flambeau.backends import reference, register_device, tensors_in
from flambeau.backends.reference import pointwise, reduction


def of_real_numbers(kernel):
    def call(*args, **kwargs):
        if any(t.is_complex() for t in tensors_in(args)):
            raise NotImplementedError("no complex numbers")
        return kernel(*args, **kwargs)

    return call


register_device(
    "pairchip", pointwise=pointwise, reduction=reduction, dtypes=[fl.float32, fl.float64, fl.int64, fl.bool],
    kernels={name: of_real_numbers(getattr(reference, name)) for name in ("mm", "gather", "scatter_add")},
)  # fmt: skip

FUNCTIONS = {
    "mul": lambda x, y: x * y, "div": lambda x, y: x / y, "numbers": lambda x, y: x * (1 + 2j) - 3j / y, "exp": lambda x, y: x.exp(),
    "log": lambda x, y: x.log() + y.log10() + x.log1p(), "sqrt": lambda x, y: x.sqrt() * y.rsqrt(), "pow": lambda x, y: x**y,
    "abs": lambda x, y: x.abs() + y.angle(), "conj": lambda x, y: x.conj() * y.real + y.imag, "sgn": lambda x, y: x.sgn(),
    "equal": lambda x, y: (x == y) | (x != x), "sin": lambda x, y: x.sin() + y.cos() + x.tan(),
    "tanh": lambda x, y: x.tanh() + y.sinh() + x.cosh() + y.sigmoid() + x.expm1(), "where": lambda x, y: fl.where(x.real > 0, x, y),
    "in place": lambda x, y: x.clone().mul_(y).div_(x), "polar": lambda x, y: fl.polar(x.abs(), y.angle()), "sum": lambda x, y: x.sum(0),
    "mean": lambda x, y: x.mean(1, keepdim=True), "norms": lambda x, y: [fl.linalg.vector_norm(x, p, 1) for p in (0, 1, 2, 3.0, float("inf"))],
    "count": lambda x, y: x.count_nonzero() + x.any(), "matmul": lambda x, y: x @ y.t(), "mixed": lambda x, y: x * y.real + 1,
    "fft": lambda x, y: fl.fft.ifft2(fl.fft.fft2(x) * y), "take": lambda x, y: x.flip(0)[fl.tensor([1, 0], device=x.device)],
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [fl.complex64, fl.complex128])
def test_functions_and_gradients(name, dtype):
    function, results = FUNCTIONS[name], []
    for device in ("cpu", "pairchip"):
        fl.manual_seed(0)
        x, y = (fl.randn(2, 4, dtype=dtype).to(device).requires_grad_() for _ in range(2))
        out = function(x, y)
        values = list(out) if isinstance(out, list) else [out]
        if values[0].requires_grad:
            total = sum(v.abs().square().sum() for v in values)
            values += fl.autograd.grad(total, [x, y], allow_unused=True)
        results.append([v.detach().cpu() for v in values if v is not None])
    for expected, actual in zip(*results, strict=True):
        fl.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


def test_what_has_no_rule_is_refused():
    with pytest.raises(NotImplementedError, match="complex"):
        fl.ones(2, dtype=fl.complex64, device="pairchip").asin()


def test_complex_sums_of_the_host_keep_their_imaginary_part():
    host = register_device(
        "hostpairs", pointwise=pointwise, reduction=reduction, dtypes=[fl.int64, fl.bool], host_fallback=True
    )
    x = fl.tensor([3 + 4j, 0], dtype=fl.complex64)
    assert fl.linalg.vector_norm(x.to("hostpairs")).item() == 5 and x.to("hostpairs").count_nonzero().item() == 1
    assert host.host_calls > 0
