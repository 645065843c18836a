"""Fake tensors over PyTorch's table of operators: symbolic sizes agree with what eager calls return, and a trace made for
one sample serves another sample that its guards admit."""

import collections
import warnings

import pytest

torch = pytest.importorskip("torch")
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import flambeau as fl  # noqa: E402
from flambeau._subclasses import DataDependentOutput, FakeTensor, FakeTensorMode  # noqa: E402
from flambeau.ops.symbolic import ShapeEnv, evaluate, expr_of  # noqa: E402

SAMPLES = 2
SKIPPED = ("_", "torch.", "jiterator", "sparse")
# Without training, the CPU kernel keeps no statistics where the meta kernel, as PyTorch's, says it does.
KNOWN = {"native_batch_norm"}


def own(x):
    if isinstance(x, torch.Tensor):
        dtype = getattr(fl, str(x.dtype)[6:])
        if not x.numel():
            return fl.empty(tuple(x.shape), dtype=dtype)
        storage = fl.zeros(x.untyped_storage().nbytes() // x.element_size(), dtype=dtype)
        return storage.as_strided(tuple(x.shape), x.stride(), x.storage_offset())
    if isinstance(x, (torch.dtype, torch.memory_format)):
        return getattr(fl, str(x)[6:])
    if isinstance(x, torch.layout):
        return fl.strided
    if isinstance(x, torch.device):
        return fl.device(str(x))
    if isinstance(x, (list, tuple)):
        return tuple(map(own, x)) if isinstance(x, tuple) else list(map(own, x))
    return {k: own(v) for k, v in x.items()} if isinstance(x, dict) else x


def leaves(x, kind):
    if isinstance(x, kind):
        return [x]
    items = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return [leaf for item in items for leaf in leaves(item, kind)]


def faked(x, mode):
    if isinstance(x, fl.Tensor):
        return mode.from_tensor(x)
    if isinstance(x, (list, tuple)):
        return type(x)(faked(i, mode) for i in x)
    return {k: faked(v, mode) for k, v in x.items()} if isinstance(x, dict) else x


def described(x):
    """Everything about arguments but sizes."""
    if isinstance(x, fl.Tensor):
        return ("tensor", x.dim(), str(x.dtype))
    if isinstance(x, (list, tuple)):
        return tuple(map(described, x))
    return tuple((k, described(v)) for k, v in x.items()) if isinstance(x, dict) else repr(x)


def find(name):
    found = fl
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if found is not None else getattr(fl.Tensor, name, None)


def shapes_at(results, values):
    return [tuple(evaluate(expr_of(s), values) for s in r.shape) for r in results]


def _is_tested(op):
    return not op.name.startswith(SKIPPED) and op.name not in KNOWN and op.supported_dtypes("cpu")


OPS = sorted({op.name: op for op in op_db if _is_tested(op)}.items())


@pytest.mark.parametrize("name, op", OPS, ids=[name for name, _ in OPS])
def test_symbolic_sizes(name, op):
    function = find(name)
    if function is None:
        pytest.skip("not here")
    warnings.simplefilter("ignore")
    dtypes = op.supported_dtypes("cpu")
    dtype = next(d for d in (torch.float32, torch.int64, torch.bool, torch.complex64) if d in dtypes)
    traces = collections.defaultdict(list)
    for sample, _ in zip(op.sample_inputs("cpu", dtype), range(SAMPLES)):
        args, kwargs = own((sample.input, *sample.args)), own(sample.kwargs)
        try:
            expected = leaves(function(*args, **kwargs), fl.Tensor)
        except Exception:
            continue  # compared elsewhere
        env = ShapeEnv()
        mode = FakeTensorMode(shape_env=env)
        fakes = faked(args, mode), faked(kwargs, mode)
        try:
            with mode:
                results = leaves(function(*fakes[0], **fakes[1]), fl.Tensor)
        except DataDependentOutput:
            continue
        assert all(isinstance(r, FakeTensor) for r in results)
        assert env.holds(env.hints), env.explain()
        if any(env.is_unbacked(n) for r in results for n in r.shape):  # only the data knows them
            assert [r.dim() for r in results] == [e.dim() for e in expected]
            continue
        assert shapes_at(results, env.hints) == [tuple(e.shape) for e in expected]
        assert [r.dtype for r in results] == [e.dtype for e in expected]
        sizes = [n for t in leaves((args, kwargs), fl.Tensor) for n in t.shape]
        for earlier, found in traces[described((args, kwargs))]:
            values = dict(zip(earlier.symbols, sizes))
            if len(earlier.symbols) == len(sizes) and earlier.holds(values):
                assert shapes_at(found, values) == [tuple(e.shape) for e in expected], earlier.explain()
        traces[described((args, kwargs))].append((env, results))
