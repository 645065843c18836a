"""Every record on its samples: the CPU kernel against the definition on the reference device, against the shapes that the
meta device answers, and against its own in-place form."""

import pathlib
import re
import sys

import pytest

import flambeau as fl
import flambeau.backends.reference
from flambeau.ops.rules import definition

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from sampled import NAMES, RECORDS, calls, operator, run, tensors

# Memory without defined values, and numbers that cannot be compared one by one.
UNWRITTEN = set("empty_like new_empty new_empty_strided resize_ resize_as_".split())


def random(name):
    return "random" in RECORDS[name].tags or "dropout" in name


def flat(result):
    return [result] if isinstance(result, fl.Tensor) else tensors(result)


def samples_of(name):
    return [c for dtype in (fl.float64, fl.float32) for c in calls(name, dtype)]


@pytest.mark.parametrize("name", NAMES)
def test_meta_answers_as_the_cpu(name):
    op = operator(name)
    if name == "linalg_lstsq" and not fl.ones(1).is_cpu:
        pytest.skip("its results depend on the driver, which on other devices is another")
    for call in samples_of(name):
        want = flat(call.result(run(op, call, lambda t: t.clone())))
        try:
            got = flat(call.result(run(op, call, lambda t: t.to("meta"))))
        except (NotImplementedError, RuntimeError):
            assert name in NEEDS_VALUES, f"{name} gives no answer on meta"
            continue
        for g, w in zip(got, want):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)


# What they return depends on the values.
NEEDS_VALUES = set(
    "where _local_scalar_dense index.Tensor nonzero _nonzero_numpy nonzero.as_tuple argwhere masked_select combinations "
    "tensor_split.tensor_indices_or_sections narrow.Tensor repeat_interleave.Tensor repeat_interleave.self_Tensor allclose "
    "equal _sparse_groups _unique _unique_rows bincount cpu _to_cpu to.device "
    "_foreach_addcmul.Tensor _foreach_addcmul_.Tensor _foreach_addcdiv.Tensor _foreach_addcdiv_.Tensor lstm.data gru.data "
    "rnn_tanh.data rnn_relu.data _pack_padded_sequence _pad_packed_sequence torchvision::nms torchvision::qnms".split()
)


# Lengths and places are taken from the CPU, whatever the device.
CPU_INDEX = {"tensor_split.tensor_indices_or_sections", "_pack_padded_sequence", "_pad_packed_sequence"}


# The reference device has no 8-bit floats.
FLOAT8 = {"_scaled_mm"}

# By primitives of the reference device, which choose the layout.
CONTIGUOUS = set("sort msort nonzero nonzero.as_tuple _nonzero_numpy argwhere where index.Tensor".split())


def channels_last(t):
    formats = {4: fl.channels_last, 5: fl.channels_last_3d}
    return t.contiguous(memory_format=formats[t.dim()]) if t.dim() in formats else t.clone()


def lies_alike(a, b):
    return a.numel() == 0 or all(n == 1 or p == q for n, p, q in zip(a.shape, a.stride(), b.stride()))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in UNWRITTEN | CPU_INDEX | FLOAT8 and not random(n)])
def test_definition_gives_the_same(name):
    op = operator(name)
    samples = calls(name, fl.float64)
    wide = [c for c in samples if any(t.dim() in (4, 5) for t in tensors([c.args, c.kwargs]))]
    for call, arrange in [(c, fl.clone) for c in samples[:3]] + [(c, channels_last) for c in wide[:3]]:
        want = flat(call.result(run(op, call, arrange)))
        try:
            got = flat(call.result(run(op, call, lambda t, arrange=arrange: arrange(t).to("ref"))))
        except NotImplementedError as error:
            if "a function that the reference device has" in str(error):
                pytest.skip("the reference device has no such function of numbers")
            lacking = re.match(r"\[(\w+)\]", str(error))[1]
            assert lacking in definition.absent, f"{lacking} has no definition, and no reason for it"
            continue
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert lies_alike(g, w) or name in CONTIGUOUS
            g, w = g.cpu(), w.cpu()
            assert g.dtype == w.dtype and g.shape == w.shape
            tolerance = 1e-5 if w.dtype == fl.float32 else 1e-8
            assert fl.allclose(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in NAMES if RECORDS[n].inplace and not random(n)])
def test_in_place_form_gives_the_same(name):
    schema = RECORDS[name].schema
    in_place = operator(f"{schema.name}_.{schema.overload}" if schema.overload else f"{schema.name}_")
    op = operator(name)
    for call in calls(name, fl.float64):
        want = run(op, call, lambda t: t.clone())
        self = call.args[0]
        if not isinstance(self, fl.Tensor) or (want.shape, want.dtype) != (self.shape, self.dtype):
            continue
        got = run(in_place, call, lambda t: t.clone())
        assert fl.allclose(got, want, equal_nan=True)
