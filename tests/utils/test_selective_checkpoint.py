"""Selective checkpointing: chosen operators run once, gradients stay the same."""

import functools

import pytest

import flambeau as fl
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


class Counting(TorchDispatchMode):
    def __init__(self):
        self.counts = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func._opname] = self.counts.get(func._opname, 0) + 1
        return func(*args, **(kwargs or {}))


def part(x, w):
    return fl.mm(fl.mm(x, w).sigmoid(), w).cos()


def gradients(context_fn=None):
    fl.manual_seed(0)
    x, w = fl.randn(4, 4, requires_grad=True), fl.randn(4, 4, requires_grad=True)
    with Counting() as counting:
        options = {"context_fn": context_fn} if context_fn else {}
        out = checkpoint(part, x, w, use_reentrant=False, **options)
        out.sum().backward()
    return (x.grad, w.grad), counting.counts


def test_saved_operators_run_once():
    plain, everything = gradients()
    op = fl.ops.aten.mm.default
    for choice in (
        [op],
        lambda ctx, func, *a, **k: CheckpointPolicy.MUST_SAVE if func is op else CheckpointPolicy.MUST_RECOMPUTE,
    ):
        saved, counts = gradients(functools.partial(create_selective_checkpoint_contexts, choice))
        for a, b in zip(plain, saved, strict=True):
            assert fl.equal(a, b)
        assert counts["mm"] < everything["mm"] and counts["sigmoid"] == everything["sigmoid"]


def test_bad_choices_are_refused():
    with pytest.raises(TypeError):
        create_selective_checkpoint_contexts(3)
