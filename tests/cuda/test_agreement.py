"""What operators on the CUDA device share with those on the CPU beside values: dtypes, the layout of results, errors for
arguments that the CPU refuses, and the refusal of tensors on several devices."""

import pathlib
import sys

import pytest

import flambeau as fl
from flambeau.ops import samples

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from sampled import NAMES, RECORDS, calls, operator, run, tensors, walk

DEVICE = "cuda"
# They take arguments of the CPU, make what has no values, or have other results by another driver.
HOST_ARGUMENTS = set(
    "tensor_split.tensor_indices_or_sections _pack_padded_sequence _pad_packed_sequence as_strided as_strided_ "
    "linalg_lstsq _linalg_lstsq svd_lowrank pca_lowrank _scaled_mm".split()
)
COMPARED = [n for n in NAMES if n not in HOST_ARGUMENTS and "sparse" not in n]


def channels_last(t):
    formats = {4: fl.channels_last, 5: fl.channels_last_3d}
    return t.contiguous(memory_format=formats[t.dim()]) if t.dim() in formats else t.clone()


def backwards(t):
    """In memory the last dimension comes first."""
    order = list(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order)


def facts(result):
    """dtype, shape and strides of each tensor; strides along single elements, or of none, are arbitrary."""
    found = []
    for t in tensors(result):
        strides = [s for n, s in zip(t.shape, t.stride()) if n != 1] if t.numel() else []
        found.append((t.dtype, tuple(t.shape), strides))
    return found


def outcome(op, call, place):
    try:
        return facts(run(op, call, place))
    except NotImplementedError:
        return NotImplementedError
    except Exception as error:
        return "division" if "ZeroDivision" in str(error) else type(error)


@pytest.mark.parametrize("name", COMPARED)
def test_results_lie_as_on_the_cpu(name):
    op = operator(name)
    for dtype in (fl.float32, fl.int64):
        try:
            count = len(calls(name, dtype))
        except Exception:
            continue  # no samples of the dtype
        for i in range(count):
            for arrange in (fl.clone, channels_last, backwards):
                want = outcome(op, calls(name, dtype)[i], arrange)
                got = outcome(op, calls(name, dtype)[i], lambda t, arrange=arrange: arrange(t).to(DEVICE))
                # What the device lacks; kernels there do not see that they divide integers by zero.
                if got is not NotImplementedError and want != "division":
                    assert got == want, f"{dtype} {arrange.__name__} sample {i}: {got}, expected {want}"


@pytest.mark.parametrize("name", "cumsum cummax sort softmax".split())
def test_single_columns_lie_as_on_the_cpu(name):
    found = [getattr(fl.ones(5, 1, device=device), name)(dim=0) for device in ("cpu", DEVICE)]
    assert [t.stride() for t in tensors(found[0])] == [t.stride() for t in tensors(found[1])]


# The device of one argument has no meaning, or it is copied: conversions, views, copies; lists are taken one by one.
MIXED = set(
    "index.Tensor index_put index_put_ copy_ copy to.other type_as view_as expand_as reshape_as resize_as_ _to_cpu "
    "_set_storage_ fill fill_ _reshape_alias new_tensor lstm.data gru.data rnn_tanh.data rnn_relu.data "
    "fill.Tensor fill_.Tensor sum_to_size broadcast_tensors atleast_1d.Sequence atleast_2d.Sequence "
    "atleast_3d.Sequence select_scatter slice_scatter diagonal_scatter as_strided_scatter segment_reduce".split()
)


@pytest.mark.parametrize("name", [n for n in COMPARED if n not in MIXED and "_foreach_" not in n])
def test_tensors_on_several_devices_are_refused(name):
    op = operator(name)
    for call in calls(name, fl.float32)[:2]:
        given = [t for t in tensors(samples.plain([list(call.args), call.kwargs])) if t.dim() and t.numel()]
        for stays in range(len(given) if len(given) > 1 else 0):
            seen = iter(range(1000))

            def place(t, stays=stays, seen=seen):
                counted = t.dim() and t.numel()
                return t.clone() if counted and next(seen) == stays else t.to(DEVICE)

            with pytest.raises((RuntimeError, ValueError, TypeError)):
                run(op, call, place)
                pytest.fail(f"tensor {stays} of {len(given)} may lie elsewhere")


def test_walk_reaches_tensors_in_lists():
    assert len(tensors(walk([fl.ones(1), [fl.ones(2)]], lambda t: t))) == 2 and "cat" in RECORDS
