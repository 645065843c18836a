"""Every record with complex32: what complex64 gives, within its rounding, or an error; never other memory."""

import pathlib
import sys

import pytest

import flambeau as fl

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import sampled

pytestmark = pytest.mark.host

PARTS = 8
# Memory without values, and elements seen as those of another dtype.
LEFT_OUT = ("empty", "view.dtype", "view_copy.dtype")


def rounded(t):
    return t.to(fl.complex32) if t.dtype == fl.complex64 else t.clone()


def close(got, want):
    if got.shape != want.shape:
        return False
    wide = fl.complex128 if want.is_complex() or got.is_complex() else fl.float64
    got, want = got.to(wide), want.to(wide)
    known = fl.isfinite(want) & (want.abs() < 6e4)  # others are too large for half
    return bool(((got - want).abs()[known] <= 0.05 * (1 + want.abs()[known])).all())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_results_are_those_of_complex64_or_refused(part):
    wrong, tried = [], 0
    for name in sampled.NAMES[part::PARTS]:
        if any(word in name for word in LEFT_OUT):
            continue
        op = sampled.operator(name)
        try:
            calls = sampled.calls(name, fl.complex64)
        except (RuntimeError, NotImplementedError, TypeError):
            continue  # no samples of this dtype
        for number, call in enumerate(calls):
            fl.manual_seed(0)
            try:
                want = call.result(sampled.run(op, call, lambda t: rounded(t).to(t.dtype)))
                fl.manual_seed(0)
                got = call.result(sampled.run(op, call, rounded))
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                continue  # refused
            tried += 1
            pairs = zip(sampled.tensors(got), sampled.tensors(want), strict=True)
            if not all(close(g, w) for g, w in pairs):
                wrong.append(f"{name} sample {number}")
    assert not wrong, wrong
    assert tried > 20


@pytest.mark.filterwarnings("ignore")
def test_dtypes_that_calls_ask_for():
    x = fl.tensor([1 + 2j, 3 - 1j, 0.5j], dtype=fl.complex64)
    for function in (fl.sum, fl.prod, fl.mean, lambda x, dtype: fl.cumsum(x, 0, dtype=dtype)):
        for source in (x, x.to(fl.complex32), x.real.contiguous()):
            want = function(source.to(fl.complex64), dtype=fl.complex64)
            narrow = function(source, dtype=fl.complex32)
            assert narrow.dtype is fl.complex32 and close(narrow, want)
            wide = function(source, dtype=fl.complex64)
            assert wide.dtype is fl.complex64 and close(wide, want)
