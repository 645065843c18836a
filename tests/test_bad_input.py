"""Bad input raises a typed error that says what was expected and what came; nothing crashes."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl

sys.path.insert(0, os.path.dirname(__file__))
import garbage

F = fl.nn.functional
FORM = re.compile(r"^\[[\w.]+\] expected (.*, got |no )", re.S)
HUGE = 2**62

x = fl.arange(12.0).reshape(3, 4)
ints = fl.arange(12).reshape(3, 4)
meta = fl.empty(3, 4, device="meta")
empty = fl.empty(0)
number = fl.tensor(2.0)


def on_host(*sizes: int) -> Any:
    return fl.ones(*sizes, device="cpu")


def nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


def recursive() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


BAD: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    # shapes
    "add shapes": (RuntimeError, lambda: x + fl.ones(5)),
    "matmul shapes": (RuntimeError, lambda: x @ x),
    "mm of vectors": (RuntimeError, lambda: fl.mm(fl.ones(3), fl.ones(3))),
    "bmm batches": (RuntimeError, lambda: fl.bmm(fl.ones(2, 3, 4), fl.ones(3, 4, 5))),
    "matmul of a number": (RuntimeError, lambda: fl.matmul(number, x)),
    "dot lengths": (RuntimeError, lambda: fl.dot(fl.ones(3), fl.ones(4))),
    "cat shapes": (RuntimeError, lambda: fl.cat([x, fl.ones(3, 5)], 0)),
    "cat of nothing": (ValueError, lambda: fl.cat([])),
    "cat of numbers": (RuntimeError, lambda: fl.cat([number, number])),
    "stack of nothing": (RuntimeError, lambda: fl.stack([])),
    "stack shapes": (RuntimeError, lambda: fl.stack([x, empty])),
    "view size": (RuntimeError, lambda: x.view(5)),
    "view of a transpose": (RuntimeError, lambda: x.t().view(-1)),
    "reshape two guesses": (RuntimeError, lambda: x.reshape(-1, -1)),
    "reshape of nothing to a guess": (RuntimeError, lambda: empty.reshape(-1, 0)),
    "expand of a size": (RuntimeError, lambda: x.expand(3, 8)),
    "expand to fewer dimensions": (RuntimeError, lambda: x.expand(4)),
    "conv channels": (RuntimeError, lambda: F.conv2d(fl.ones(1, 3, 8, 8), fl.ones(2, 4, 3, 3))),
    "conv kernel too large": (RuntimeError, lambda: F.conv2d(fl.ones(1, 1, 2, 2), fl.ones(1, 1, 3, 3))),
    "linear shapes": (RuntimeError, lambda: F.linear(x, fl.ones(2, 5))),
    "layer_norm shape": (RuntimeError, lambda: F.layer_norm(x, (5,))),
    "einsum letters": (RuntimeError, lambda: fl.einsum("ij,jk->iz", x, x)),
    "einsum sizes": (RuntimeError, lambda: fl.einsum("ij,ij->i", x, x.t())),
    "einsum count": (RuntimeError, lambda: fl.einsum("ij,jk->ik", x)),
    "gather rank": (RuntimeError, lambda: fl.gather(x, 0, fl.zeros(3, dtype=fl.int64))),
    "masked_select shape": (RuntimeError, lambda: fl.masked_select(x, fl.ones(5, dtype=fl.bool))),
    "mask index shape": (IndexError, lambda: x[fl.ones(5, dtype=fl.bool)]),
    "assignment shape": (RuntimeError, lambda: x.__setitem__(0, fl.ones(7))),
    "inverse of a rectangle": (RuntimeError, lambda: fl.linalg.inv(x)),
    "item of many": (RuntimeError, lambda: x.item()),
    "truth of many": (RuntimeError, lambda: bool(x)),
    "out of an in-place broadcast": (RuntimeError, lambda: fl.ones(3).add_(x.t())),
    # dtypes
    "matmul dtypes": (RuntimeError, lambda: x @ ints.t()),
    "index dtype": (IndexError, lambda: x[fl.ones(2)]),
    "gather index dtype": (RuntimeError, lambda: fl.gather(x, 0, x)),
    "index_select dtype": (RuntimeError, lambda: fl.index_select(x, 0, fl.ones(2))),
    "in-place result dtype": (RuntimeError, lambda: ints.add_(0.5)),
    "out dtype": (RuntimeError, lambda: fl.add(x, x, out=fl.empty(3, 4, dtype=fl.int64))),
    "bitwise of floats": (RuntimeError, lambda: x & x),
    "invert of floats": (TypeError, lambda: ~x),
    "subtraction of bools": (RuntimeError, lambda: fl.ones(2, dtype=fl.bool) - fl.ones(2, dtype=fl.bool)),
    "mean of integers": (RuntimeError, lambda: ints.mean()),
    "order of complex numbers": (RuntimeError, lambda: fl.ones(2, dtype=fl.complex64) < 1),
    "sort of complex numbers": (RuntimeError, lambda: fl.sort(fl.ones(2, dtype=fl.complex64))),
    "where condition": (RuntimeError, lambda: fl.where(x, x, x)),
    "gradient of integers": (RuntimeError, lambda: ints.requires_grad_()),
    "integer of a complex": (RuntimeError, lambda: int(fl.tensor(1j))),
    # devices
    "mixed devices": (RuntimeError, lambda: x + meta),
    "mixed devices in place": (RuntimeError, lambda: x.add_(meta)),
    "a number and a meta number in place": (RuntimeError, lambda: fl.tensor(2.0).add_(fl.tensor(1.0, device="meta"))),
    "mixed devices in matmul": (RuntimeError, lambda: x @ meta.t()),
    "item of meta": (RuntimeError, lambda: fl.empty((), device="meta").item()),
    "tolist of meta": (RuntimeError, lambda: meta.tolist()),
    "unknown device": (RuntimeError, lambda: fl.ones(2, device="nowhere")),
    "bad device index": (RuntimeError, lambda: fl.ones(2, device="cpu:x")),
    "device without an allocator": (RuntimeError, lambda: fl.empty(1, device="cuda")),
    # indices and dimensions
    "index out of range": (IndexError, lambda: x[3]),
    "negative index out of range": (IndexError, lambda: x[-4]),
    "too many indices": (IndexError, lambda: x[0, 0, 0]),
    "index of a number": (IndexError, lambda: number[0]),
    "index tensor out of range": (IndexError, lambda: x[fl.tensor([0, 3])]),
    "zero step": (ValueError, lambda: x[::0]),
    "negative step": (ValueError, lambda: x[::-1]),
    "string index": (TypeError, lambda: x["a"]),
    "float index": (IndexError, lambda: x[1.5]),
    "dim out of range": (IndexError, lambda: x.sum(2)),
    "duplicate dims": (RuntimeError, lambda: x.sum((0, 0))),
    "duplicate dims under two names": (RuntimeError, lambda: x.sum((0, -2))),
    "permute of too few": (RuntimeError, lambda: x.permute(0)),
    "permute twice": (RuntimeError, lambda: x.permute(0, 0)),
    "transpose": (IndexError, lambda: x.transpose(0, 2)),
    "select": (IndexError, lambda: x.select(0, 3)),
    "narrow length": (RuntimeError, lambda: x.narrow(0, 2, 2)),
    "narrow negative length": (RuntimeError, lambda: x.narrow(0, 0, -1)),
    "gather out of range": (RuntimeError, lambda: fl.gather(x, 0, fl.full((1, 4), 3))),
    "scatter out of range": (RuntimeError, lambda: x.scatter(0, fl.full((1, 4), -1), 1.0)),
    "index_select out of range": (IndexError, lambda: fl.index_select(x, 0, fl.tensor([3]))),
    "take out of range": (IndexError, lambda: fl.take(x, fl.tensor([12]))),
    "topk too many": (RuntimeError, lambda: fl.topk(x, 5)),
    "kthvalue": (RuntimeError, lambda: fl.kthvalue(x, 5)),
    "embedding out of range": (IndexError, lambda: F.embedding(fl.tensor([4]), x)),
    "target out of range": (IndexError, lambda: F.cross_entropy(x, fl.tensor([0, 1, 4]))),
    "one_hot out of range": (RuntimeError, lambda: F.one_hot(fl.tensor([5]), 3)),
    "unsqueeze": (IndexError, lambda: x.unsqueeze(4)),
    "flatten backwards": (RuntimeError, lambda: x.flatten(1, 0)),
    "roll without dims": (RuntimeError, lambda: x.roll((1, 2))),
    "as_strided outside": (RuntimeError, lambda: x.as_strided((100,), (1,))),
    "as_strided overflow": (RuntimeError, lambda: x.as_strided((HUGE, 4), (HUGE, 1))),
    "as_strided negative": (RuntimeError, lambda: x.as_strided((2,), (-1,))),
    "as_strided offset": (RuntimeError, lambda: x.as_strided((2,), (1,), HUGE)),
    # sizes
    "negative size": (RuntimeError, lambda: fl.empty(-1)),
    "negative zeros": (RuntimeError, lambda: fl.zeros(2, -3)),
    "numel overflow": (RuntimeError, lambda: fl.empty(HUGE, 4)),
    "bytes overflow": (RuntimeError, lambda: fl.empty(HUGE)),
    "more than memory": (RuntimeError, lambda: fl.empty(2**45)),
    "meta overflow": (RuntimeError, lambda: fl.empty(HUGE, 8, device="meta")),
    "repeat negative": (RuntimeError, lambda: x.repeat(-1, 1)),
    "repeat too few": (RuntimeError, lambda: x.repeat(2)),
    "resize overflow": (RuntimeError, lambda: fl.ones(4).resize_(HUGE)),
    "repeat overflow": (RuntimeError, lambda: x.repeat(HUGE, HUGE)),
    "expand overflow": (RuntimeError, lambda: fl.ones(1, 1).expand(HUGE, HUGE)),
    "arange backwards": (RuntimeError, lambda: fl.arange(1, 0)),
    "arange zero step": (RuntimeError, lambda: fl.arange(0, 1, 0)),
    "arange of NaN": (RuntimeError, lambda: fl.arange(0, math.nan)),
    "arange to infinity": (RuntimeError, lambda: fl.arange(0, math.inf)),
    "linspace negative": (RuntimeError, lambda: fl.linspace(0, 1, -1)),
    "eye negative": (RuntimeError, lambda: fl.eye(-1)),
    "chunk zero": (RuntimeError, lambda: x.chunk(0)),
    "split negative": (RuntimeError, lambda: x.split(-1)),
    "split sizes": (RuntimeError, lambda: x.split([1, 1])),
    "split sizes overflow": (RuntimeError, lambda: fl.ones(10).split([HUGE] * 4 + [10])),
    "cat overflow": (RuntimeError, lambda: fl.cat([fl.ones(1).expand(HUGE)] * 4 + [fl.ones(5)])),
    "repeat_interleave overflow": (RuntimeError, lambda: fl.repeat_interleave(fl.tensor([HUGE] * 4, device="cpu"))),
    "pad overflow": (RuntimeError, lambda: F.pad(x, (2**63 - 1, 2**63 - 1))),
    "tensor_split zero": (RuntimeError, lambda: x.tensor_split(0)),
    "unfold size": (RuntimeError, lambda: x.unfold(0, 5, 1)),
    "unfold step": (RuntimeError, lambda: x.unfold(0, 2, 0)),
    "randperm negative": (RuntimeError, lambda: fl.randperm(-1)),
    "bincount negative": (RuntimeError, lambda: fl.bincount(fl.tensor([-1]))),
    "bincount huge": (RuntimeError, lambda: fl.bincount(fl.tensor([2**63 - 1]))),
    "histc of infinity": (RuntimeError, lambda: fl.histc(fl.tensor([math.inf]), 3)),
    "pool stride": (RuntimeError, lambda: F.max_pool2d(fl.ones(1, 1, 4, 4), 2, 0)),
    "pool kernel": (RuntimeError, lambda: F.max_pool2d(fl.ones(1, 1, 4, 4), 0)),
    "pool padding": (RuntimeError, lambda: F.max_pool2d(fl.ones(1, 1, 4, 4), 2, padding=2)),
    "pool dilation overflow": (RuntimeError, lambda: F.max_pool1d(fl.ones(1, 1, 10), 5, dilation=HUGE)),
    "pool window overflow": (RuntimeError, lambda: F.avg_pool1d(fl.ones(1, 1, 10), HUGE, 1, HUGE // 2)),
    "adaptive pool overflow": (RuntimeError, lambda: F.adaptive_avg_pool1d(fl.ones(1, 1, 8), HUGE)),
    "interpolate overflow": (RuntimeError, lambda: F.interpolate(fl.ones(1, 1, 4), scale_factor=1e18)),
    "unfold overflow": (RuntimeError, lambda: F.unfold(on_host(1, 1, 8, 8), (5, 5), dilation=HUGE)),
    "conv dilation overflow": (RuntimeError, lambda: F.conv1d(on_host(1, 1, 10), on_host(1, 1, 5), dilation=HUGE)),
    "conv stride overflow": (
        RuntimeError,
        lambda: F.conv_transpose1d(on_host(1, 1, 5), on_host(1, 1, 5), stride=HUGE),
    ),
    "conv padding overflow": (
        RuntimeError,
        lambda: F.conv_transpose1d(on_host(1, 1, 5), on_host(1, 1, 5), padding=2**63 - 1),
    ),
    "conv stride": (RuntimeError, lambda: F.conv2d(fl.ones(1, 1, 4, 4), fl.ones(1, 1, 2, 2), stride=0)),
    "conv groups": (RuntimeError, lambda: F.conv2d(fl.ones(1, 3, 4, 4), fl.ones(2, 1, 2, 2), groups=2)),
    "conv zero groups": (RuntimeError, lambda: F.conv2d(fl.ones(1, 3, 4, 4), fl.ones(2, 3, 2, 2), groups=0)),
    "triu_indices beyond memory": (RuntimeError, lambda: fl.triu_indices(4, 2**45)),
    # empty tensors and numbers
    "max of nothing": (RuntimeError, lambda: empty.max()),
    "argmax of nothing": (IndexError, lambda: fl.empty(0).argmax()),
    "amax of nothing": (IndexError, lambda: fl.empty(0, 3).amax(0)),
    "quantile of nothing": (RuntimeError, lambda: fl.quantile(empty, 0.5)),
    "multinomial of nothing": (RuntimeError, lambda: fl.multinomial(fl.empty(0), 1)),
    "fft of nothing": (RuntimeError, lambda: fl.fft.ifft(empty)),
    "length of a number": (TypeError, lambda: len(number)),
    "iteration over a number": (TypeError, lambda: list(number)),
    # overlapping writes
    "write to an expanded tensor": (RuntimeError, lambda: fl.ones(1).expand(3).add_(1)),
    "out is expanded": (RuntimeError, lambda: fl.add(fl.ones(3), 1, out=fl.ones(1).expand(3))),
    "write to an overlapping input": (RuntimeError, lambda: fl.add(x[0, :3], 1, out=x[0, 1:])),
    # NaN and others where integers are due
    "size of NaN": (TypeError, lambda: fl.empty(math.nan)),
    "size of a float": (TypeError, lambda: fl.empty(2.0)),
    "dim of a float": (TypeError, lambda: x.sum(0.5)),
    "k of NaN": (TypeError, lambda: fl.topk(x, math.nan)),
    "probability of NaN": (ValueError, lambda: F.dropout(x, math.nan)),
    "probability above one": (ValueError, lambda: F.dropout(x, 1.5)),
    "multinomial of NaN": (RuntimeError, lambda: fl.multinomial(fl.tensor([math.nan, 1.0]), 1)),
    "multinomial of negatives": (RuntimeError, lambda: fl.multinomial(fl.tensor([-1.0, 1.0]), 1)),
    # wrong kinds of objects
    "None for a tensor": (TypeError, lambda: fl.add(None, 1)),
    "a string for a tensor": (TypeError, lambda: fl.add("a", x)),
    "a string added": (TypeError, lambda: x + "a"),
    "an object added": (TypeError, lambda: x + object()),
    "a list for a tensor": (TypeError, lambda: fl.exp([1.0])),
    "a number for tensors": (TypeError, lambda: fl.cat(3)),
    "a string among tensors": (TypeError, lambda: fl.cat([x, "a"])),
    "no arguments": (TypeError, lambda: fl.matmul()),
    "too many arguments": (TypeError, lambda: fl.exp(x, x, x)),
    "an unknown keyword": (TypeError, lambda: fl.exp(x, bogus=1)),
    "an argument twice": (TypeError, lambda: fl.sum(x, 0, dim=0)),
    "keyword-only by position": (TypeError, lambda: x.sum(0, False, fl.float32)),
    "a string for a dtype": (TypeError, lambda: fl.ones(2, dtype="float32")),
    "an integer beyond 64 bits": (RuntimeError, lambda: x.sum(10**30)),
    "an int for a bool": (TypeError, lambda: x.sum(0, keepdim="yes")),
    "an unknown rounding mode": (RuntimeError, lambda: fl.div(x, x, rounding_mode="up")),
    "an unknown reduction": (ValueError, lambda: F.mse_loss(x, x, reduction="all")),
    "an unknown interpolation": (NotImplementedError, lambda: F.interpolate(fl.ones(1, 1, 4, 4), 2, mode="bogus")),
    "an unknown padding": (NotImplementedError, lambda: F.pad(x, (1, 1), mode="bogus")),
    "an odd padding": (RuntimeError, lambda: F.pad(x, (1, 1, 1))),
    "too much padding": (RuntimeError, lambda: F.pad(fl.ones(1, 1, 3), (4, 0), mode="reflect")),
    "three strides for two": (RuntimeError, lambda: F.conv2d(fl.ones(1, 1, 4, 4), fl.ones(1, 1, 2, 2), stride=[1] * 3)),
    # making tensors
    "ragged lists": (ValueError, lambda: fl.tensor([[1, 2], [3]])),
    "numbers beside lists": (TypeError, lambda: fl.tensor([1, [2]])),
    "lists beside numbers": (ValueError, lambda: fl.tensor([[1], 2])),
    "deep nesting": (ValueError, lambda: fl.tensor(nested(500))),
    "a list inside itself": (ValueError, lambda: fl.tensor(recursive())),
    "a string": (TypeError, lambda: fl.tensor("text")),
    "a list of strings": (TypeError, lambda: fl.tensor(["a", "b"])),
    "None": (RuntimeError, lambda: fl.tensor(None)),
    "a dict": (RuntimeError, lambda: fl.tensor({})),
    "an integer that does not fit": (ValueError, lambda: fl.tensor(2**63)),
    "negative strides": (ValueError, lambda: fl.from_numpy(np.arange(4)[::-1])),
    "an array of objects": (TypeError, lambda: fl.from_numpy(np.array([object()]))),
    "an array of strings": (TypeError, lambda: fl.from_numpy(np.array(["a"]))),
    "not an array": (TypeError, lambda: fl.from_numpy([1, 2])),
    "strides that are no multiple": (ValueError, lambda: fl.from_numpy(np.zeros(2, "i1,f4")["f1"])),
    "a buffer too short": (ValueError, lambda: fl.frombuffer(b"abc", dtype=fl.float32)),
    "backward of many": (RuntimeError, lambda: fl.ones(2, requires_grad=True).exp().backward()),
    "backward without a graph": (RuntimeError, lambda: fl.ones(()).backward()),
    "in place on a leaf": (RuntimeError, lambda: fl.ones(2, requires_grad=True).add_(1)),
    "numpy of a tensor with gradient": (RuntimeError, lambda: fl.ones(2, requires_grad=True).numpy()),
    # values that LAPACK must not see
    "svd of infinity": (RuntimeError, lambda: fl.linalg.svd(fl.tensor([[math.inf, 1.0], [1.0, 2.0]]))),
    "eigh of NaN": (RuntimeError, lambda: fl.linalg.eigh(fl.tensor([[math.nan, 1.0], [1.0, 2.0]]))),
    "eig of NaN": (RuntimeError, lambda: fl.linalg.eig(fl.tensor([[math.nan, 1.0], [1.0, 2.0]]))),
    "singular inverse": (RuntimeError, lambda: fl.linalg.inv(fl.zeros(2, 2))),
    "cholesky of an indefinite matrix": (RuntimeError, lambda: fl.linalg.cholesky(-fl.eye(2))),
}  # fmt: skip


# Python itself words these.
WORDED_BY_PYTHON = ("zero step", "a string added", "an object added")


@pytest.mark.parametrize("name", BAD)
def test_raises_a_typed_error(name: str) -> None:
    kind, call = BAD[name]
    with pytest.raises(kind) as raised:
        call()
    assert name in WORDED_BY_PYTHON or FORM.search(str(raised.value)), str(raised.value)


def test_a_failed_write_changes_nothing() -> None:
    y = fl.arange(4.0)
    for bad in (lambda: y.add_(fl.ones(5)), lambda: y.copy_(fl.ones(3)), lambda: y.mul_("a"), lambda: y.add_(meta)):
        with pytest.raises((RuntimeError, TypeError)):
            bad()
    assert y.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.filterwarnings("ignore")
def test_read_only_arrays_can_be_read() -> None:
    a = np.arange(3.0)
    a.setflags(write=False)
    t = fl.from_numpy(a)
    assert t.tolist() == [0.0, 1.0, 2.0]


def test_deep_nesting_within_the_limit_is_read() -> None:
    assert fl.tensor(nested(20)).shape == (1,) * 20


# ---------------------------------------------------------------- what the fuzzer found


def test_the_svd_of_infinities_ends() -> None:
    with pytest.raises(fl.linalg.LinAlgError):
        fl.linalg.pinv(fl.tensor([[-math.inf, math.inf, 3.0], [1.0, 2.0, 3.0], [-math.inf, 1.0, 0.0]]))


def test_eigh_reads_one_triangle_only() -> None:
    values = fl.linalg.eigh(fl.tensor([[1.0, math.nan], [2.0, 3.0]])).eigenvalues
    assert fl.isfinite(values).all()


def test_zero_spacing_gives_infinite_frequencies() -> None:
    assert fl.fft.fftfreq(4, d=0.0).tolist()[1:] == [math.inf, -math.inf, -math.inf]


def test_histogram_of_unsorted_edges_stays_in_bounds() -> None:
    counts, edges = fl.histogram(fl.linspace(0, 3, 50), fl.tensor([0.0, 9.0, -5.0, 3.0]))
    assert counts.shape == (3,) and edges.tolist() == [0.0, 9.0, -5.0, 3.0]


def test_triangle_indices_count_before_they_allocate() -> None:
    assert fl.triu_indices(2**40, 0).shape == (2, 0)
    assert fl.tril_indices(3, 3, 2**63 - 1).shape == (2, 9)
    assert fl.tril_indices(4, 2**40).shape == (2, 10)


def test_a_number_tensor_wraps_to_the_dtype_it_does_not_widen() -> None:
    a, b = fl.tensor([0], dtype=fl.uint8), fl.tensor(-4, dtype=fl.int32)
    assert fl.maximum(a, b).tolist() == [252] and fl.lt(a, b).tolist() == [True]


def test_more_parts_than_memory_holds_are_refused() -> None:
    for split in (lambda: x.tensor_split(2**40), lambda: fl.empty(0).chunk(2**40)):
        with pytest.raises(RuntimeError, match=r"expected at most .* got 1099511627776"):
            split()


def test_private_operators_check_their_arguments_too() -> None:
    with pytest.raises(RuntimeError, match="expected as many rows"):
        fl._ops._linalg_lstsq(x, fl.ones(2, 2), 0.1, "gelsd")
    with pytest.raises(RuntimeError, match="expected a sorter"):
        fl._ops._search(fl.arange(3.0), fl.ones(2), False, False, fl.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="at least one dimension"):
        fl._ops._histogramdd(x, [], True)


def test_set_refuses_a_window_that_overflows() -> None:
    with pytest.raises(RuntimeError, match="fits in memory"):
        fl._ops._set_storage_(fl.ones(2), fl.ones(2), 0, [3, 2, 1], [4, 2**63 - 1, 5])


def test_cdist_refuses_mixed_devices() -> None:
    with pytest.raises(RuntimeError, match="one device"):
        fl.cdist(fl.ones(1, 4), fl.empty(1, 4, device="meta"), p=0.77)


def test_attention_refuses_grouped_values_without_heads() -> None:
    query, value = fl.ones(1, 2, 3, 4), fl.ones(1, 0, 3, 4)
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(query, fl.ones(1, 1, 3, 4), value, enable_gqa=True)


# ---------------------------------------------------------------- random garbage for every operator


def test_garbage_never_crashes_an_operator() -> None:
    """FLAMBEAU_FUZZ_TRIALS sets how many calls each operator gets."""
    trials = int(os.environ.get("FLAMBEAU_FUZZ_TRIALS", "25"))
    found = garbage.drive(0, len(garbage.schemas()), trials)
    assert not found, "\n".join(f"{name} trial {number}: {what}" for name, number, what in found)
