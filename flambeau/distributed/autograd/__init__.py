"""Gradients across workers: graphs whose edges are messages of `flambeau.distributed.rpc`.

    with dist_autograd.context() as context_id:
        loss = rpc.rpc_sync("worker1", function, args=(x,)).sum()
        dist_autograd.backward(context_id, [loss])
        gradients = dist_autograd.get_gradients(context_id)

A tensor that needs gradients and is sent in a context becomes a leaf on the receiver. `backward` computes the gradients of local
leaves and of received tensors; those of received tensors travel back to their senders, which go on from the tensors they sent.
Gradients are sums over paths, so each message may be followed by itself. They are kept in the context, not in `.grad`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.distributed.rpc import _agent
from flambeau.distributed.rpc._agent import WorkerInfo, agent
from flambeau.utils import _pytree as pytree

__all__ = ["HANDLERS", "backward", "context", "get_gradients", "is_available", "pack", "unpack"]


def is_available() -> bool:
    return True


class _Context:
    """What one worker knows of a context."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: dict[tuple[int, int], list[Any]] = {}
        self.received: dict[int, tuple[int, tuple[int, int], int]] = {}  # id of a leaf: its sender, message, place
        self.leaves: list[Any] = []  # keeps received leaves alive, whose ids are keys
        self.gradients: dict[Any, Any] = {}
        self.known: set[int] = set()  # workers that take part
        self.lock = threading.Lock()


_contexts: dict[int, _Context] = {}
_current = threading.local()
_numbers, _messages = itertools.count(), itertools.count()
_lock = threading.Lock()


def _find(number: int) -> _Context:
    with _lock:
        return _contexts.setdefault(number, _Context(number))


def _existing(number: int) -> _Context:
    with _lock:
        if number not in _contexts:
            raise RuntimeError(f"[dist_autograd] Could not find autograd context with id: {number}")
        return _contexts[number]


class context:
    """A `with` block whose calls to other workers take part in distributed autograd."""

    def __enter__(self) -> int:
        if getattr(_current, "number", None) is not None:
            raise RuntimeError("[dist_autograd] expected no context within a context, got one")
        self._number = (agent().info.id << 48) + next(_numbers)
        _find(self._number)
        _current.number = self._number
        return self._number

    def __exit__(self, *_: object) -> None:
        _current.number = None
        _release(self._number, -1)


def _release(number: int, rank: int) -> None:
    with _lock:
        left = _contexts.pop(number, None)
    if left is not None and _agent._agent is not None:
        for other in left.known - {rank, agent().info.id}:
            agent().call(agent().worker(other), "autograd_release", number)


# ---------------------------------------------------------------------------------------------- messages


class _Traced:
    """Content of a message that takes part in a context: tensors without their graphs, and which need gradients."""

    def __init__(self, number: int, message: tuple[int, int], content: Any, places: list[int]) -> None:
        self.number, self.message, self.content, self.places = number, message, content, places


def _trace(number: int, content: Any, peer: int) -> _Traced:
    own = _find(number)
    own.known.add(peer)
    values, structure = pytree.tree_flatten(content)
    places, sent = [], []
    for place, value in enumerate(values):
        if isinstance(value, flambeau.Tensor) and value.requires_grad:
            places.append(place)
            sent.append(value)
            values[place] = value.detach()
    message = (agent().info.id, next(_messages))
    if sent:
        own.sent[message] = sent
    return _Traced(number, message, pytree.tree_unflatten(values, structure), places)


def _receive(traced: _Traced, sender: int) -> Any:
    own = _find(traced.number)
    own.known.add(sender)
    values, structure = pytree.tree_flatten(traced.content)
    for index, place in enumerate(traced.places):
        leaf = values[place].detach().requires_grad_()
        own.received[id(leaf)] = (sender, traced.message, index)
        own.leaves.append(leaf)
        values[place] = leaf.view_as(leaf)  # the leaf itself is not shown, so nobody changes it in place
    return pytree.tree_unflatten(values, structure)


def pack(content: Any, target: WorkerInfo) -> tuple[Any, Callable[[Any], Any] | None]:
    """Content of a request as it travels, and what its answer goes through."""
    number = getattr(_current, "number", None)
    if number is None:
        return _plain(content), None
    traced = _trace(number, content, target.id)
    return traced, lambda answer: _receive(answer, target.id) if isinstance(answer, _Traced) else answer


def _plain(content: Any) -> Any:
    return pytree.tree_map(
        lambda v: (
            v.detach().requires_grad_(v.requires_grad and v.is_leaf)
            if isinstance(v, flambeau.Tensor) and v.requires_grad
            else v
        ),
        content,
    )


def unpack(content: Any, sender: int) -> tuple[Any, Callable[[Any], Any] | None]:
    """Content of a request that arrived, and what the result goes through."""
    if not isinstance(content, _Traced):
        return content, _plain
    received = _receive(content, sender)
    number, before = content.number, getattr(_current, "number", None)
    _current.number = number

    def wrap(result: Any) -> Any:
        _current.number = before
        return _trace(number, result, sender)

    return received, wrap


# ---------------------------------------------------------------------------------------------- backward


def _leaves(outputs: list[Any]) -> list[Any]:
    """Leaf tensors that outputs depend on."""
    leaves: dict[int, Any] = {id(one): one for one in outputs if one.grad_fn is None}
    seen, pending = set(), [one.grad_fn for one in outputs if one.grad_fn is not None]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves[id(variable)] = variable
        pending += [following for following, _ in node.next_functions if following is not None]
    return list(leaves.values())


def _propagate(own: _Context, outputs: list[Any], gradients: list[Any]) -> None:
    """Gradients of what outputs depend on: local ones into the context, others to the senders."""
    pairs = [(o, g) for o, g in zip(outputs, gradients) if g is not None]
    leaves = _leaves([o for o, _ in pairs])
    if not leaves:
        return
    results = flambeau.autograd.grad(
        [o for o, _ in pairs], leaves, [g for _, g in pairs], retain_graph=True, allow_unused=True
    )
    outgoing: dict[tuple[int, tuple[int, int]], dict[int, Any]] = {}
    for leaf, gradient in zip(leaves, results):
        if gradient is None:
            continue
        where = own.received.get(id(leaf))
        if where is None:
            with own.lock:
                own.gradients[leaf] = gradient if leaf not in own.gradients else own.gradients[leaf] + gradient
        else:
            sender, message, place = where
            outgoing.setdefault((sender, message), {})[place] = gradient
    waiting = [
        agent().call(agent().worker(sender), "autograd_backward", (own.number, message, by_place), 0)
        for (sender, message), by_place in outgoing.items()
    ]
    for future in waiting:
        future.wait()


def _continue(content: Any, rank: int) -> None:
    number, message, by_place = content
    own = _existing(number)
    sent = own.sent[message]
    _propagate(own, [sent[place] for place in by_place], list(by_place.values()))


def backward(context_id: int, roots: list[Any], retain_graph: bool = False) -> None:
    """Gradients of scalars, on all workers that took part in the context."""
    own = _existing(context_id)
    if not roots:
        raise RuntimeError("[dist_autograd] No tensors provided for gradient computation.")
    for root in roots:
        if not root.requires_grad:
            raise RuntimeError("[dist_autograd] requires_grad not set on root")
        if root.numel() != 1:
            raise RuntimeError("[dist_autograd] root is not a scalar, all roots need to be scalar")
    _propagate(own, list(roots), [flambeau.ones_like(root) for root in roots])


def get_gradients(context_id: int) -> dict[Any, Any]:
    """Gradients of this worker's tensors, by tensor."""
    return dict(_existing(context_id).gradients)


HANDLERS: dict[str, Callable[[Any, int], Any]] = {"autograd_backward": _continue, "autograd_release": _release}
