"""Notes that travel with nodes: where in the user's program they come from, and what passes want to say about them.

Inside `preserve_node_meta()` nodes made by a tracer take over the notes of the node being interpreted; `annotate` adds
notes to every node made in a `with` block.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.fx.node import Node

# How many of the context managers below are entered, in any thread: makers of nodes look no further while it is 0.
_active = 0


class _State(threading.local):
    def __init__(self) -> None:
        self.meta: dict[str, Any] = {}
        self.preserve = False
        self.annotations: dict[str, Any] = {}


_state = _State()
_COPIED = ("stack_trace", "nn_module_stack", "custom", "source_fn_stack", "torch_fn", "seq_nr", "original_aten")


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Let new nodes take over the notes of the node that is being interpreted."""
    global _active
    before = (_state.preserve, _state.meta)
    _state.preserve = enable
    _active += 1
    try:
        yield
    finally:
        _active -= 1
        _state.preserve, _state.meta = before


@contextlib.contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """The node whose notes new nodes take over, for a `with` block."""
    before = _state.meta
    _state.meta = node.meta.copy()
    if pass_name:
        _state.meta["from_node"] = [(node.name, node.target, pass_name)]
    try:
        yield
    finally:
        _state.meta = before


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Add notes to `meta["custom"]` of all nodes made in a `with` block."""
    global _active
    before = _state.annotations
    _state.annotations = {**before, **annotation_dict}
    _active += 1
    try:
        yield
    finally:
        _active -= 1
        _state.annotations = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: `annotate` around all calls of a function."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorate


def has_preserved_node_meta() -> bool:
    return _state.preserve


def get_current_meta() -> dict[str, Any]:
    return _state.meta


def set_stack_trace(stack: list[str]) -> None:
    """Set the user's lines for nodes made from now on."""
    if _state.preserve and stack:
        _state.meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """The user's lines for the current node, or the current stack."""
    if _state.preserve and "stack_trace" in _state.meta:
        return [_state.meta["stack_trace"]]
    return traceback.format_list(traceback.extract_stack()[:-1])


def reset_grad_fn_seq_nr() -> None:
    _state.meta.pop("seq_nr", None)


def _annotate(node: Node) -> None:
    if _state.preserve:
        for key in _COPIED:
            if key in _state.meta:
                node.meta.setdefault(key, _state.meta[key])
        if "from_node" in _state.meta:
            node.meta["from_node"] = _state.meta["from_node"]
    if _state.annotations:
        node.meta["custom"] = {**node.meta.get("custom", {}), **_state.annotations}
