"""Fake tensors over the samples of every record: symbolic sizes are kept, agree with the kernels at other sizes too, and
gradients are those of eager mode."""

import collections
import pathlib
import sys
import warnings

import pytest

import flambeau as fl
from flambeau._subclasses import DataDependentOutput, FakeTensor, FakeTensorMode
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.ops.symbolic import ShapeEnv, evaluate, expr_of
from flambeau.ops.symbolic.expr import single_symbol

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import sampled

SAMPLES = 4

# Operators that fix the size of an input, and why.
GIVEN = "the call gives the size as a number"
FIXES = {
    **dict.fromkeys(
        ("_quantized_linear", "_quantized_conv", "_quantized_linear_dynamic"), "weights are packed for their sizes"
    ),
    **dict.fromkeys(
        "affine_grid_generator nn_affine_grid broadcast_to expand expand_copy unflatten sum_to_size native_layer_norm "
        "_fused_rms_norm native_group_norm nn_layer_norm layer_norm nn_rms_norm rms_norm slice_scatter as_strided_scatter "
        "as_strided_ stft istft nn_multi_head_attention_forward split.sizes split.function split_with_sizes "
        "unsafe_split_with_sizes split_with_sizes_copy split_with_sizes_copy.out _ctc_loss ctc_loss nn_ctc_loss".split(),
        GIVEN,
    ),
    "unbind.int": "as many results as the size",
    "unbind_copy.int": "as many results as the size",
    "unbind_copy.int_out": "as many results as the size",
    "cross": "the first dimension of size 3 is looked for",
    "isin": "a few elements are compared one by one",
    "squeeze_": "which sizes are 1 decides the shape",
    "t_": "a vector is left alone",
    "cdist": "the size chooses the algorithm",
}
# Operators whose result, or the course of whose definition, depends on data.
READS_DATA = set(
    "where _local_scalar_dense _foreach_addcmul.Tensor _foreach_addcmul_.Tensor _foreach_addcdiv.Tensor segment_reduce "
    "_foreach_addcdiv_.Tensor index.Tensor nonzero _nonzero_numpy masked_select nonzero.as_tuple argwhere narrow.Tensor "
    "tensor_split.tensor_indices_or_sections combinations repeat_interleave.Tensor repeat_interleave.self_Tensor allclose "
    "equal lstm.data gru.data rnn_tanh.data rnn_relu.data _pack_padded_sequence _pad_packed_sequence _sparse_groups "
    "_unique _unique_rows bincount masked_scatter torchvision::nms torchvision::qnms".split()
)
# Gradients that fakes cannot follow, and why.
WITHOUT_GRADIENT = {
    "linalg_pinv.atol_rtol_tensor": "its derivative mixes numbers and tensors for the tolerances",
    "embedding": "one of the gradients is sparse",
    "nn_embedding": "one of the gradients is sparse",
    "_foreach_norm.Scalar": "it is one operator over a list, with no definition in ops",
}


def calls(name):
    """Calls that succeed, in the first dtype that has any."""
    op = sampled.operator(name)
    for dtype in (fl.float32, fl.int64, fl.bool, fl.complex64):
        found = []
        for call in sampled.calls(name, dtype)[:SAMPLES]:
            try:
                found.append((call, sampled.tensors(sampled.run(op, call, _copied))))
            except Exception:
                continue
        if found:
            return found
    return []


def _copied(t):
    """Another tensor of the same geometry, for operators that write."""
    return t.clone() if t.layout is fl.strided else t


def described(value):
    """Everything about arguments but sizes."""
    if isinstance(value, fl.Tensor):
        return ("tensor", value.dim(), str(value.dtype))
    if isinstance(value, (list, tuple)):
        return tuple(map(described, value))
    return tuple((k, described(v)) for k, v in value.items()) if isinstance(value, dict) else repr(value)


def shapes_at(results, values, expected=()):
    """Shapes for values of the symbols; a size that depends on data is what it is in the first expected shape with it."""
    values = dict(values)
    for r, e in zip(results, expected):
        for size, wanted in zip(r.shape, e.shape):
            atom = single_symbol(expr_of(size))
            if atom is not None and atom in r.fake_mode.shape_env.stand_ins:
                values.setdefault(atom, wanted)
    return [tuple(evaluate(expr_of(s), values) for s in r.shape) for r in results]


# Without training, the CPU kernel keeps no statistics where the meta kernel, as PyTorch's, says it does.
@pytest.mark.parametrize("name", [n for n in sampled.NAMES if n != "native_batch_norm"])
def test_symbolic_sizes_are_kept(name):
    warnings.simplefilter("ignore")
    op = sampled.operator(name)
    traces = collections.defaultdict(list)
    for call, expected in calls(name):
        env = ShapeEnv()
        mode = FakeTensorMode(shape_env=env)
        try:
            with mode:
                results = sampled.tensors(sampled.run(op, call, mode.from_tensor))
        except (DataDependentOutput, RuntimeError):
            if name in READS_DATA:
                continue
            raise
        assert all(isinstance(r, FakeTensor) for r in results)
        assert env.holds(env.hints), env.explain()
        assert shapes_at(results, env.hints, expected) == [tuple(e.shape) for e in expected]
        fixed = [a for a, e in env.replacements.items() if e.is_constant and env.hints.get(a, 0) not in (0, 1)]
        assert not fixed or name in FIXES, env.explain()
        arguments = sampled.samples.plain((list(call.args), call.kwargs))
        sizes = [n for t in sampled.tensors(arguments) for n in t.shape]
        for earlier, found in traces[described(arguments)]:
            values = dict(zip(earlier.symbols, sizes))
            if len(earlier.symbols) == len(sizes) and earlier.holds(values):
                assert shapes_at(found, values, expected) == [tuple(e.shape) for e in expected], earlier.explain()
        traces[described(arguments)].append((env, results))


@pytest.mark.parametrize("name", [n for n in sampled.NAMES if n not in WITHOUT_GRADIENT])
def test_gradients_of_fakes_are_those_of_eager_mode(name):
    warnings.simplefilter("ignore")
    op = sampled.operator(name)
    for call in sampled.calls(name, fl.float64)[:2]:
        function, inputs = sampled.as_function(op, call)

        def gradients(*tensors, function=function):
            results = [r for r in function(*tensors) if r.requires_grad]
            total = sum(((r.abs() ** 2).sum() for r in results), tensors[0].new_zeros(()))
            return fl.autograd.grad(total, tensors, allow_unused=True)

        try:
            expected = gradients(*inputs)
        except Exception:
            continue  # without a derivative, in this dtype or at all
        for mode in ("fake", "symbolic"):
            try:
                module = make_fx(gradients, tracing_mode=mode)(*inputs)
            except (DataDependentOutput, RuntimeError):
                if name in READS_DATA:
                    continue
                raise
            fl.manual_seed(0)
            for got, want in zip(module(*inputs), expected, strict=True):
                assert (got is None) == (want is None)
                assert got is None or fl.allclose(got, want, equal_nan=True)
