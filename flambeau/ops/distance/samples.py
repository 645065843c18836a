"""Samples of distances and sequence losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ops.loss.samples import hinge_embedding_loss, kl_div, margin_ranking_loss
from flambeau.ops.samples import Call, Constant, Make, Through, call, first, samples


@samples("nn_cosine_embedding_loss", "cosine_embedding_loss")
def cosine_embedding_loss(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(2, 3), make.index([1, -1]), 0.1)


def _ctc(make: Make) -> Any:
    import flambeau as fl

    return Through(lambda x: fl.log_softmax(x * 3, 2), make(4, 2, 3)), make.index([[1, 2], [2, 1]])


@samples("_ctc_loss")
def ctc_loss_kernel(make: Make) -> Iterator[Call]:
    yield call(*_ctc(make), [4, 3], [2, 1]).then(first)


@samples("_ctc_loss_backward")
def ctc_loss_backward(make: Make) -> Iterator[Call]:
    import flambeau as fl

    # A label that comes twice; one that is not reached; no input at all.
    for targets, lengths, counts in (([[1, 2], [2, 2]], [4, 3], [2, 2]), ([[1, 1], [2, 1]], [2, 0], [2, 0])):
        x, labels = fl.log_softmax(make(4, 2, 3) * 3, 2), make.index(targets)
        saved = (Constant(t) for t in fl._ctc_loss(x, labels, lengths, counts))
        yield call(make.constant(2, low=None), Constant(x), labels, lengths, counts, *saved, 0, True)


@samples("nn_ctc_loss", "ctc_loss")
def ctc_loss(make: Make) -> Iterator[Call]:
    yield call(*_ctc(make), [4, 3], [2, 1])


samples("kl_div")(kl_div)
samples("hinge_embedding_loss")(hinge_embedding_loss)
samples("margin_ranking_loss")(margin_ranking_loss)
