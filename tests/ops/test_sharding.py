"""Sharding rules: an operator on the parts of its inputs, put together, is the operator on the whole."""

import itertools
import math
import pathlib
import sys

import pytest

import flambeau as fl
from flambeau.distributed.tensor import _dispatch, _rules
from flambeau.ops import samples
from flambeau.ops.rules import named_arguments, sharding
from flambeau.ops.sharding import Call, Partial, Replicate, Shard, _StridedShard

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from sampled import NAMES, RECORDS, calls, operator, tensors, walk

PARTS = 2
REDUCE = {"sum": sum, "avg": lambda parts: sum(parts) / PARTS, "product": math.prod}
NO_VALUES = {"empty_like", "new_empty", "new_empty_strided", "uniform_", "normal_", "bernoulli.p"}


def ruled(name):
    record = RECORDS[name]
    return _rules._rule_of(name) is not None and "random" not in record.tags and name not in NO_VALUES


def divided(tensor, placement):
    """The parts of a tensor that lies so."""
    if isinstance(placement, _StridedShard):
        pieces = tensor.unflatten(placement.dim, (placement.split_factor, -1))
        return [part.flatten(placement.dim, placement.dim + 1) for part in divided(pieces, Shard(placement.dim + 1))]
    if isinstance(placement, Shard):
        full = -(-tensor.shape[placement.dim] // PARTS)
        starts = [min(k * full, tensor.shape[placement.dim]) for k in range(PARTS)]
        ends = [*starts[1:], tensor.shape[placement.dim]]
        return [tensor.narrow(placement.dim, s, e - s).clone() for s, e in zip(starts, ends)]
    if isinstance(placement, Partial):
        if placement.reduce_op == "max":
            return [tensor - 1, tensor.clone()]
        share = tensor * 0.25 if placement.reduce_op == "sum" else tensor * 0.5
        return [share, tensor - share] if placement.reduce_op == "sum" else [share, tensor * 2 - share]
    return [tensor.clone() for _ in range(PARTS)]


def whole(parts, placement):
    if isinstance(placement, _StridedShard):
        inner = [part.unflatten(placement.dim, (placement.split_factor, -1)) for part in parts]
        return fl.cat(inner, placement.dim + 1).flatten(placement.dim, placement.dim + 1)
    if isinstance(placement, Shard):
        return fl.cat(parts, placement.dim)
    if isinstance(placement, Partial):
        op = placement.reduce_op
        if op.startswith("norm"):
            power = float(op[4:])
            return sum(part**power for part in parts) ** (1 / power) if power != math.inf else fl.maximum(*parts)
        return REDUCE[op](parts) if op in REDUCE else getattr(fl, op + "imum")(*parts)
    assert all(fl.equal(part, parts[0]) or fl.allclose(part, parts[0], equal_nan=True) for part in parts)
    return parts[0]


def choices(tensor):
    floating = tensor.is_floating_point() or tensor.is_complex()
    parts = [Partial("sum"), Partial("avg"), *([Partial("max")] if tensor.is_floating_point() else [])]
    return [Replicate(), *map(Shard, range(tensor.dim())), *(parts if floating else [])]


def check(name, given, placements):
    """Whether a rule had an answer; its answer is checked."""
    func, inputs = operator(name), tensors(given)
    values = iter(inputs)
    args, kwargs = walk(given, lambda t: next(values).clone())
    wanted = [t.clone() for t in tensors(func(*args, **kwargs))]
    call = Call(named_arguments(func, *given), inputs, placements, wanted, PARTS, _dispatch._writes(func))
    decision = _rules.decide(name, list(given[0]), call)
    if decision is None:
        return False
    needed, lies = decision
    assert len(needed) == len(inputs) and len(lies) == len(wanted)
    if call.in_place:
        assert lies[0] == needed[0]
        if needed[0] != placements[0]:
            return False  # written to a copy of the whole
    local = list(zip(*(divided(t, placement) for t, placement in zip(inputs, needed))))
    results = []
    for rank in range(PARTS):
        values = iter(local[rank])
        args, kwargs = walk(given, lambda t, values=values: next(values))
        if wanted:
            own = lambda rank=rank: list(divided(wanted[0], lies[0])[rank].shape)  # noqa: E731
            args = _dispatch._with_shape(func, args, wanted[0].shape, own)
        results.append(tensors(func(*args, **kwargs)))
    for parts, placement, want in zip(zip(*results), lies, wanted):
        got = whole(list(parts), placement)
        assert got.shape == want.shape, (needed, lies)
        assert fl.allclose(got, want, rtol=1e-6, atol=1e-8, equal_nan=True), (needed, lies)
    return True


@pytest.mark.parametrize("name", [name for name in NAMES if ruled(name)])
def test_parts_make_the_whole(name):
    for call in calls(name, fl.float64)[:4]:
        given = samples.plain([list(call.args), call.kwargs])
        inputs = tensors(given)
        if not inputs or any(t.numel() == 0 for t in inputs):
            continue
        for placements in itertools.islice(itertools.product(*map(choices, inputs)), 200):
            if all(placement.is_replicate() for placement in placements):
                continue
            check(name, given, list(placements))


def test_rules_keep_what_can_stay_divided():
    """The table as users know it: what is needed of the inputs, and how the result lies."""
    x, w = fl.randn(4, 6), fl.randn(6, 8)
    rows, columns, part, copy = Shard(0), Shard(1), Partial(), Replicate()
    for name, args, placements, result in [
        ("mm", (x, w), [rows, copy], rows),
        ("mm", (x, w), [copy, columns], columns),
        ("mm", (x, w), [columns, rows], part),
        ("add.Tensor", (x, x), [part, part], part),
        ("mul.Tensor", (x, 2.0), [part], part),
        ("sum", (x, [0]), [rows], part),
        ("amax", (x, [1]), [rows], rows),
        ("relu", (x,), [columns], columns),
        ("_softmax", (x, 1, False), [rows], rows),
    ]:
        func = operator(name)
        tensors_ = [a for a in args if isinstance(a, fl.Tensor)]
        call = Call(named_arguments(func, args, {}), tensors_, placements, tensors(func(*args)), PARTS)
        needed, lies = _rules.decide(name, list(args), call)
        assert needed == placements and lies == [result], name
    func = operator("add.Tensor")
    call = Call(named_arguments(func, (x, 1.0), {}), [x], [part], [x], PARTS)
    assert _rules.decide("add.Tensor", [x, 1.0], call) is None, "each process would add the number"


def test_every_rule_is_of_an_operator_that_has_samples():
    without = [name for name in sharding.all() if name in RECORDS and not calls(name, fl.float64)]
    assert not [name for name in without if "random" not in RECORDS[name].tags and name not in NO_VALUES]
