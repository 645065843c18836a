"""Every record's samples on the CUDA device against the CPU, with gradients."""

import pathlib
import sys

import pytest

import flambeau as fl
from flambeau.ops import samples

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from sampled import NAMES, RECORDS, as_function, calls, differentiable, operator, run, tensors, walk

# Operators that the device has neither a kernel nor a definition for: they say so.
ABSENT = (NotImplementedError,)
TOLERANCE = {fl.float32: 2e-3, fl.float64: 1e-6, fl.bfloat16: 4e-2, fl.float16: 1e-2, fl.complex64: 2e-3}
# Some arguments have to be on the CPU, and storages of copies are as large as the tensors.
HOST_ARGUMENTS = {"tensor_split.tensor_indices_or_sections", "_pack_padded_sequence", "_pad_packed_sequence",
                  "as_strided_", "as_strided"}  # fmt: skip
# The order of eigenvalues and the signs of approximate vectors are the library's, the driver of least squares is
# another on the device: tests/cuda/test_linalg.py holds what these promise.
OF_THE_LIBRARY = {"linalg_eig", "_linalg_eig", "linalg_eigvals", "svd_lowrank", "pca_lowrank", "linalg_lstsq"}
UNSET = {name for name in NAMES if name.split(".")[0].startswith(("empty", "new_empty"))}


def compare(got, want, tolerance):
    """Values agree; the device may round, sum and break ties of NaN in another order."""
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.shape == w.shape, f"shape {tuple(g.shape)}, expected {tuple(w.shape)}"
        if w.numel() == 0:
            continue
        g, w = g.detach().cpu(), w.detach()
        floating = w.is_floating_point() or w.is_complex()
        if w.is_complex():
            g, w = (fl.view_as_real(t.resolve_conj().resolve_neg()) for t in (g, w))
        g, w = g.to(fl.float64), w.to(fl.float64)
        assert bool((g.isnan() == w.isnan()).all()), "NaN in other places"
        g, w = g.nan_to_num(0, 1e30, -1e30), w.nan_to_num(0, 1e30, -1e30)
        error = ((g - w).abs() / w.abs().clamp(min=1)).max().item()
        assert error <= (tolerance or (2e-3 if floating else 0)), f"error {error:.3g}"


def moved(value):
    return value.to("cuda") if value.layout is fl.strided else value


def forward(name, dtype):
    """Samples that agree, and those that the device lacks something for."""
    op, agreed, lacking = operator(name), 0, ""
    try:
        pairs = zip(calls(name, dtype), calls(name, dtype))  # operators may write to their arguments
    except Exception:
        return agreed, lacking
    for call, same in pairs:
        # What dropout keeps depends on the layout, and moving a tensor with holes closes them.
        arrange = fl.clone if "dropout" in name else lambda t: t
        try:
            want = run(op, call, arrange)
        except Exception:
            continue  # not defined for the dtype
        try:
            got = run(op, same, moved)
        except ABSENT as error:
            lacking = str(error)
            continue
        if name not in UNSET:
            compare(call.result(got), call.result(want), TOLERANCE.get(dtype, 0))
        agreed += 1
    return agreed, lacking


def backward(name, dtype):
    op = operator(name)
    try:
        made = calls(name, dtype)
    except Exception:
        return  # no samples of the dtype
    for call in made:
        if any(isinstance(a, samples.Through) for a in (*call.args, *call.kwargs.values())):
            continue  # its function holds tensors of the CPU
        function, inputs = as_function(op, call)
        if not inputs:
            continue
        try:
            want = [o for o in tensors(function(*inputs)) if o.requires_grad and differentiable(o)]
            if not want:
                continue
            ones = [fl.ones_like(o) for o in want]
            expected = fl.autograd.grad(want, inputs, ones, allow_unused=True)
        except Exception:
            continue
        there = [t.detach().to("cuda").requires_grad_() for t in inputs]
        try:
            got = [o for o in tensors(on_device(op, call)(*there)) if o.requires_grad and differentiable(o)]
            found = fl.autograd.grad(got, there, [o.to("cuda") for o in ones], allow_unused=True)
        except ABSENT:
            continue
        pairs = [(f, e) for f, e in zip(found, expected) if e is not None]
        compare([f if f is not None else fl.zeros_like(e) for f, e in pairs], [e for _, e in pairs], 1e-2)


def on_device(op, call):
    """The function of a call with its constants on the device."""

    def move(value):
        if isinstance(value, samples.Constant):
            return samples.Constant(walk(value.tensor, moved))
        if isinstance(value, samples.Through):
            return value
        if isinstance(value, fl.Tensor):
            return value if differentiable(value) else moved(value)
        if isinstance(value, dict):
            return {k: move(v) for k, v in value.items()}
        return type(value)(map(move, value)) if isinstance(value, (list, tuple)) else value

    copied = samples.Call(tuple(move(call.args)), move(call.kwargs)).then(call.result)
    return as_function(op, copied)[0]


RANDOM = {name for name in NAMES if "random" in RECORDS[name].tags}


@pytest.mark.parametrize("name", [n for n in NAMES if n not in HOST_ARGUMENTS | OF_THE_LIBRARY])
def test_forward(name):
    for dtype in (fl.float32, fl.int64, fl.bfloat16, fl.complex64):
        if dtype is fl.bfloat16 and RECORDS[name].kind not in ("pointwise", "reduction"):
            continue
        forward(name, dtype)


@pytest.mark.parametrize("name", [n for n in NAMES if RECORDS[n].vjp is not None or RECORDS[n].kind == "pointwise"])
def test_backward(name):
    if name not in RANDOM | OF_THE_LIBRARY:
        for dtype in (fl.float32, fl.complex64):
            backward(name, dtype)
