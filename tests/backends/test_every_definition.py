"""Every operator on the reference device, by its definition, against the CPU: all samples of the table, all dtypes."""

import pathlib
import sys

import pytest

import flambeau as fl
import flambeau.backends.reference
from flambeau.ops import samples

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import sampled

TOLERANCE = {
    fl.float32: 2e-4, fl.float64: 1e-6, fl.bfloat16: 5e-2, fl.float16: 1e-2, fl.complex64: 2e-3, fl.complex128: 1e-5,
    fl.int64: 0, fl.int32: 0, fl.uint8: 0, fl.bool: 0,
}  # fmt: skip

# Arguments that have to be on the host, and results that nothing determines.
EXCEPT = {
    "_pack_padded_sequence": "takes lengths on the host",
    "tensor_split.tensor_indices_or_sections": "takes indices on the host",
    "_scaled_mm": "the reference device has no 8-bit floats",
    "empty_like": "is not initialised", "new_empty": "is not initialised", "new_empty_strided": "is not initialised",
}  # fmt: skip

NAMES = [name for name in sampled.NAMES if name not in EXCEPT]
PARTS = 4


def differences(got, want, tolerance):
    """What is wrong with a result, or None."""
    if isinstance(want, (tuple, list)):
        if len(got) != len(want):
            return f"{len(got)} results, not {len(want)}"
        return next((d for d in map(lambda g, w: differences(g, w, tolerance), got, want) if d), None)
    if not isinstance(want, fl.Tensor):
        return None if got == want or want != want else f"{got}, not {want}"
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"
    if not want.numel():
        return None
    limit = max(tolerance, 1e-5) if want.is_floating_point() or want.is_complex() else 0
    try:
        fl.testing.assert_close(got.cpu(), want, rtol=limit, atol=limit, equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:150]
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda t: str(t)[6:])
def test_definitions_agree_with_the_kernels_of_the_cpu(dtype, part):
    failures, tried = [], 0
    for name in NAMES[part::PARTS]:
        op = sampled.operator(name)
        try:
            calls = sampled.calls(name, dtype)
        except (RuntimeError, NotImplementedError, TypeError):
            continue  # no samples of this dtype
        for number, call in enumerate(calls):
            try:
                want = call.result(sampled.run(op, call, lambda t: t.clone()))
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                continue  # not defined for it
            args, kwargs = sampled.walk(samples.plain((list(call.args), call.kwargs)), lambda t: t.to("ref"))
            fl.manual_seed(0)
            try:
                wrong = differences(call.result(op(*args, **kwargs)), want, TOLERANCE[dtype])
                tried += 1
            except NotImplementedError:
                continue  # no definition, or a function that the reference device does not have
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                failures.append(f"{name} sample {number}: {wrong}"[:200])
    assert not failures, "\n".join(failures)
    assert tried > 50


def agree(function, *args):
    fl.manual_seed(3)
    want = function(*args)
    fl.manual_seed(3)
    got = function(*(a.to("ref") if isinstance(a, fl.Tensor) else a for a in args))
    assert differences(got, want, 1e-5) is None


F = fl.nn.functional


def test_dropout_keeps_what_the_cpu_keeps():
    agree(lambda x: fl.native_dropout(x, 0.3, True), fl.randn(4, 5))
    agree(lambda x: fl.native_dropout(x, 0.3, True), fl.randn(4, 5).t())
    agree(lambda x: fl.native_dropout(x, 1.0, True), fl.randn(4, 5))


@pytest.mark.parametrize(
    "left, right",
    [((0, 3, 4), (0, 4, 5)), ((2, 0, 4), (4, 5)), ((0, 2, 3, 0), (0, 5)), ((3, 2, 0), (3, 0, 5)), ((0, 3, 4), (4,))],
)
def test_products_of_empty_batches(left, right):
    agree(fl.matmul, fl.randn(left), fl.randn(right))


def test_masks_that_broadcast():
    agree(fl.masked_scatter, fl.randn(2, 3), fl.tensor([True, False, True]), fl.arange(9.0))
    agree(fl.masked_scatter, fl.randn(3), fl.tensor([[True, False, True], [True, True, False]]), fl.arange(9.0))
    agree(fl.masked_scatter, fl.randn(2, 3), fl.tensor(False), fl.empty(0))


def test_factors_of_integer_products_are_integers():
    a, b, c = fl.arange(2), fl.arange(6).reshape(2, 3), fl.arange(3)
    agree(lambda *t: fl.addmv(*t, alpha=2.5), a, b, c)


@pytest.mark.parametrize("pool", [lambda x: F.avg_pool3d(x, 2), lambda x: F.max_pool3d(x, 2)])
def test_pools_without_elements(pool):
    agree(pool, fl.empty(0, 2, 4, 4, 4))


@pytest.mark.parametrize("pool, dims", [(F.fractional_max_pool3d, 3), (F.fractional_max_pool2d, 2)])
def test_fractional_pools_without_elements(pool, dims):
    agree(lambda x: pool(x, 2, output_size=2), fl.empty(0, 2, *[4] * dims))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_hinge_loss_of_one_number(reduction):
    for target in (1, -1):
        agree(lambda x, t: F.hinge_embedding_loss(x, t, reduction=reduction), fl.tensor(0.3), fl.tensor(target))


@pytest.mark.parametrize(
    "make",
    [
        lambda d: fl.arange(7, device=d), lambda d: fl.arange(1, 4, 0.5, device=d), lambda d: fl.linspace(-1, 2, 7, device=d),
        lambda d: fl.linspace(3, 9, 4, dtype=fl.int64, device=d), lambda d: fl.logspace(0, 2, 5, device=d),
        lambda d: fl.tril_indices(3, 4, 1, device=d), lambda d: fl.eye(3, 2, device=d), lambda d: fl.rand(70, device=d),
        lambda d: fl.randn(70, device=d), lambda d: fl.randn(40, dtype=fl.float64, device=d),
        lambda d: fl.randint(-5, 1 << 40, (70,), device=d), lambda d: fl.rand(70, dtype=fl.bfloat16, device=d),
    ],
)  # fmt: skip
def test_factories_make_what_the_cpu_makes(make):
    fl.manual_seed(1)
    want = make("cpu")
    fl.manual_seed(1)
    assert differences(make("ref"), want, 1e-5) is None


def test_permutations_are_made_on_the_device():
    assert sorted(fl.randperm(20, device="ref").tolist()) == list(range(20))
