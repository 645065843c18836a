"""Writing to tensors that backward needs: what a write would destroy is copied before it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.utils import _pytree
from flambeau.utils._python_dispatch import TorchDispatchMode

_Key = tuple[int, int, int]  # the id of a tensor, its memory, its version


class _Handle:
    """Stands for a saved tensor in the graph; what is kept for it dies with the last one."""

    __slots__ = ("__weakref__",)


class _MutationContext:
    """The tensors that graphs have saved inside, and the copies of those that were written since."""

    def __init__(self) -> None:
        self.tid_to_weakhandle: weakref.WeakValueDictionary[_Key, _Handle] = weakref.WeakValueDictionary()
        self.original: weakref.WeakKeyDictionary[_Handle, Tensor] = weakref.WeakKeyDictionary()
        self.cloned: weakref.WeakKeyDictionary[_Handle, Tensor] = weakref.WeakKeyDictionary()
        self._by_memory: dict[int, weakref.WeakSet[_Handle]] = {}  # the handles of views of one storage

    def clear(self) -> None:
        """Forgets everything; graphs that were recorded inside cannot be walked any more."""
        for table in (self.tid_to_weakhandle, self.original, self.cloned, self._by_memory):
            table.clear()

    def pack(self, tensor: Tensor) -> _Handle:
        memory = tensor.untyped_storage()._cdata
        key = (id(tensor), memory, tensor._version)
        handle = self.tid_to_weakhandle.get(key)
        if handle is None:
            handle = self.tid_to_weakhandle[key] = _Handle()
            self.original[handle] = tensor
            self._by_memory.setdefault(memory, weakref.WeakSet()).add(handle)
        return handle

    def unpack(self, handle: _Handle) -> Tensor:
        saved = self.cloned.get(handle)
        if saved is None:
            saved = self.original.get(handle)
        if saved is None:
            raise AssertionError(
                "[allow_mutation_on_saved_tensors] expected backward inside the block that recorded the graph, got it elsewhere: Trying "
                "to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was originally recorded."
            )
        return saved

    def before_write(self, tensor: Tensor) -> None:
        """Copies what graphs have saved of the memory that is about to be written."""
        for handle in tuple(self._by_memory.pop(tensor.untyped_storage()._cdata, ())):
            original = self.original.pop(handle, None)
            if original is not None and handle not in self.cloned:
                self.cloned[handle] = original.clone()


class _CopyBeforeWrite(TorchDispatchMode):
    def __init__(self, context: _MutationContext) -> None:
        self._context = context

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            for tensor in _pytree.tree_leaves(value):
                if isinstance(tensor, Tensor) and tensor.layout == fl.strided:
                    self._context.before_write(tensor)
        return func(*args, **kwargs)


_active = [False]


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_MutationContext]:
    """Tensors that are saved in the block may be written to there: before the first write they are copied. Backward has to run
    in the block as well.

    >>> with flambeau.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = flambeau.ones(2, requires_grad=True)
    ...     y = x.clone()
    ...     out = (y**2).sum()
    ...     y.zero_() is y
    ...     out.backward()
    True
    >>> x.grad
    tensor([2., 2.])
    """
    if _active[0]:
        raise RuntimeError(
            "[allow_mutation_on_saved_tensors] expected to be outside of such a block, got one inside another: "
            "allow_mutation_on_saved_tensors contexts cannot be nested"
        )
    context = _MutationContext()
    _active[0] = True
    try:
        with saved_tensors_hooks(context.pack, context.unpack), _CopyBeforeWrite(context):
            yield context
    finally:
        context.clear()
        _active[0] = False
