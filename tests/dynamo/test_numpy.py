"""Captured NumPy: dtypes, kinds and values of results against NumPy itself; memory that is shared; guards on arrays."""

import subprocess
import sys
import warnings

import pytest

import flambeau as fl
from flambeau._dynamo.breaks import GraphBreakError
from flambeau._dynamo.compile import Report, Settings
from flambeau.compiler import compile_with

np = pytest.importorskip("numpy", minversion="2.0")

EXPRESSIONS = """
np.abs(a); np.square(a); np.sign(a); np.rint(a); np.isnan(a); np.logical_not(a); np.sqrt(a); np.exp(a); np.signbit(a); -a; ~a
a + b; a - b; a * b; a / b; a // b; a % b; a & b; a | b; a << b; a < b; a == b; np.maximum(a, b); np.logical_and(a, b)
a + 1; a + 1.5; 2 - a; a * True; a + np.float32(1); a * np.int8(3); a // 2; a % 3; a ** 2; a > 0.5; 3 < a; a * 1j; a + 300
a.sum(); a.sum(0); a.prod(); a.mean(); a.mean(1, keepdims=True); a.var(); a.std(0); a.max(); a.argmin(0); a.any(); a.cumsum()
np.median(a); np.ptp(a); np.sum(a, dtype=np.float32); np.max(a, axis=(0, 1)); np.nanmean(a); a.all(1); np.average(a)
np.where(a > b, a, b); np.where(a, 1, 2.5); np.where(a, b, 0); np.clip(a, 0, 2); np.clip(a, None, 1.5); np.round(a, 1)
np.concatenate([a, b]); np.stack([a, b], 1); np.vstack((a, b)); np.column_stack((a, b)); np.array([a, b]); np.append(a, b)
a @ b.T; np.dot(a, b.T); np.einsum('ij,ij->i', a, b); np.inner(a, b); np.outer(a, b); np.trace(a); np.linalg.norm(a, axis=0)
a[0]; a[0, 1]; a[:, 1]; a[0, 1, ...]; a[::-1]; a[::-2, ::-1]; a[1::-1, 0]; a[None]; a[[1, 0], [2, 1]]; a[:, [0, 2]]; a[0:0]
a.T; a.reshape(3, 2); a.ravel(); np.expand_dims(a, 1); np.broadcast_to(a[0], (4, 3)); np.atleast_1d(a[0, 0]); np.flip(a); np.pad(a, 1)
np.roll(a, 1, axis=1); np.tile(a, (2, 1)); np.repeat(a, 2); np.diff(a); np.sort(a, axis=0); np.split(a, 3, axis=1); np.array_split(a, 2, 1)
np.full_like(a, 3.7); np.arange(a.size) * 2; np.eye(a.shape[0]); np.linspace(0, 1, a.shape[1]); a.astype(np.float16); np.asarray(a, float)
np.float64(a[0, 0]); np.asarray(a[0, 0]); np.finfo(np.float32).eps * a; a.dtype.name; np.result_type(a, b); np.shape(a); a.nbytes
"""
EXPRESSIONS = [part.strip() for part in EXPRESSIONS.replace("\n", ";").split(";") if part.strip()]
DTYPES = [np.float32, np.float64, np.int64, np.uint8, np.bool_]


def sample(dtype, shift=0):
    values = np.array([[0.5, 1, -2], [3, -1.5, 2]]) + shift
    if dtype is np.bool_:
        return np.array([[True, False, True], [False, True, True]]) ^ bool(shift)
    return (abs(values) if dtype is np.uint8 else values).astype(dtype)


def differs(a, b):
    """What differs between two results; None when they are equal up to rounding."""
    if type(a) is not type(b):
        return f"{type(a)} and {type(b)}"
    if isinstance(a, (tuple, list)):
        found = [differs(x, y) for x, y in zip(a, b)]
        return next((f for f in found if f), None if len(a) == len(b) else "lengths")
    if not isinstance(a, (np.ndarray, np.generic)):
        return None if a == b else f"{a} and {b}"
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype} {a.shape} and {b.dtype} {b.shape}"
    if isinstance(a, np.ndarray) and a.flags.writeable != b.flags.writeable:
        return "flags"
    bound = {"f": 8, "c": 8}.get(a.dtype.kind, 0) * (np.finfo(a.dtype).eps if a.dtype.kind in "fc" else 0)
    return None if np.allclose(a, b, rtol=bound, atol=0, equal_nan=True) else f"{a} and {b}"


def run(function, *args):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args), None
    except Exception as error:
        return None, type(error)


def captured(function, backend="eager", **options):
    settings = Settings(backend, **options)
    settings.report = Report()
    return compile_with(function, settings), settings.report


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_as_numpy(text):
    names = {"np": np}
    exec(f"def f(a, b):\n    return {text}", names)
    function = names["f"]
    whole = 0
    for first in DTYPES:
        for second in DTYPES if "b" in text.replace("abs", "") else (first,):
            wanted, error = run(function, sample(first), sample(second, 1))
            compiled, report = captured(function)
            found, raised = run(compiled, sample(first), sample(second, 1))
            assert error is raised
            assert differs(wanted, found) is None, f"{first.__name__} {second.__name__}: {differs(wanted, found)}"
            whole += error is None and not report.breaks and not report.skips
    assert whole >= 3, "one graph for three dtypes at least"


def test_one_artifact_for_all_sizes():
    compiled, report = captured(lambda v: (v - v.mean(axis=0)) / v.shape[0] + np.zeros(v.shape))
    for size in (5, 3, 1, 8):
        v = np.arange(size * 2.0).reshape(size, 2)
        assert differs((v - v.mean(axis=0)) / size, compiled(v)) is None
    assert len(report.graphs) == 1 and not report.breaks


@pytest.mark.filterwarnings("ignore:.*the limit")
def test_guards_on_arrays():
    def function(v, s):
        return v * 2 + s

    compiled, _ = captured(function)
    cases = [np.ones(3), np.ones(3, np.float32), np.ones(3, np.int64), np.ones((3, 2)), np.ones((2, 6))[:, ::2]]
    cases += [np.ones((2, 3)).T, np.ones(4)[::-1], 2.0, fl.ones(3)]
    for v in cases:
        for s in (1, 1.5, np.float32(0.5)):
            wanted, found = function(v, s), compiled(v, s)
            assert fl.equal(wanted, found) if isinstance(v, fl.Tensor) else differs(wanted, found) is None


def test_scalars_that_change_are_inputs():
    compiled, report = captured(lambda v, s: v * s)
    for s in range(12):
        assert differs(np.ones(3) * np.float64(s), compiled(np.ones(3), np.float64(s))) is None
    assert len(report.graphs) <= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_memory_is_shared(backend):
    def function(x, v):
        w = x.numpy()
        w[0] = 7
        v += 1
        y = fl.from_numpy(v)
        y[2] = -1
        return x * 2, v[1:], w

    compiled, report = captured(function, backend)
    for _ in range(2):
        x, v = fl.arange(3.0), np.zeros(3)
        doubled, tail, w = compiled(x, v)
        assert x.tolist() == [7, 1, 2] and v.tolist() == [1, 1, -1] and doubled.tolist() == [14, 2, 4]
        w[1] = 5
        tail[0] = 9
        assert x.tolist() == [7, 5, 2] and v.tolist() == [1, 9, -1]
    assert not report.breaks and not report.skips


def test_arguments_that_overlap():
    def function(v, w):
        v[0] = 5
        return w + 1

    for backend in ("eager", "inductor"):
        compiled, _ = captured(function, backend)
        compiled(np.zeros(4), np.zeros(3))
        v = np.zeros(4)
        assert compiled(v, v[:3]).tolist() == [6, 1, 1]


def test_same_array_twice():
    compiled, _ = captured(lambda v, w: (v is w, v + w))
    v = np.ones(2)
    assert compiled(v, v)[0] is True and compiled(v, v.copy())[0] is False


def test_result_is_the_argument():
    compiled, _ = captured(lambda v: (v, [v], np.asarray(v), v.copy()))
    v = np.ones(2)
    first, (second,), third, fourth = compiled(v)
    assert first is v and second is v and third is v and fourth is not v


def test_scalar_read_before_a_store():
    def function(v):
        before = v[0]
        v[0] = 9
        return before, v

    compiled, _ = captured(function, fullgraph=True)
    before, v = compiled(np.arange(3.0))
    assert before == 0 and type(before) is np.float64 and v.tolist() == [9, 1, 2]


def test_reversed_arrays_from_outside():
    compiled, report = captured(lambda v: v[0] * 2)
    for v in (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3)[::-1], np.arange(6.0).reshape(2, 3)[:, ::-1]):
        for _ in range(2):
            assert differs(v[0] * 2, compiled(v)) is None
    assert len(report.graphs) == 3 and not report.breaks


def test_from_numpy_refuses_scalars():
    with pytest.raises(TypeError):
        fl.from_numpy(np.float64(1))


def test_constants_are_new_each_time():
    def function(v):
        table = np.array([1.0, 2.0])
        table += v
        return table

    compiled, _ = captured(function)
    for _ in range(3):
        assert compiled(np.ones(2)).tolist() == [2, 3]


def test_gradient_stays_with_the_tensor():
    def function(x):
        scale = x.detach().numpy().max()
        return (x * scale).sum()

    compiled, _ = captured(function, "inductor", fullgraph=True)
    x = fl.tensor([1.0, 3.0], requires_grad=True)
    compiled(x).backward()
    assert x.grad.tolist() == [3, 3]


def test_numpy_of_a_tensor_with_history_raises():
    compiled, _ = captured(lambda x: (x * 2).numpy())
    with pytest.raises(RuntimeError):
        compiled(fl.ones(2, requires_grad=True))


def test_break_has_a_record():
    compiled = fl.compile(lambda v: np.interp(v, [0.0, 1.0], [0.0, 2.0]), backend="eager", fullgraph=True)
    with pytest.raises(GraphBreakError) as caught:
        compiled(np.ones(3))
    assert caught.value.record.record.number == 27 and "interp" in caught.value.record.detail


def test_writes_outside_happen_once(tmp_path):
    def function(v):
        np.savetxt(path, [1.0, 2.0])
        return v + 1

    path = tmp_path / "numbers.txt"
    compiled, _ = captured(function)
    assert compiled(np.ones(2)).tolist() == [2, 2] and path.read_text().count("\n") == 2


def test_numpy_is_not_imported():
    code = "import sys, flambeau as fl; fl.compile(lambda x: x + 1, backend='eager')(fl.ones(2)); assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
