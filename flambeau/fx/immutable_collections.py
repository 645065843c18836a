"""Lists and dicts that node arguments are kept in: reading is free, changing raises.

A graph knows the users of each node because arguments change only through `Node.args`, `Node.kwargs` and their
relatives; a list changed in place would go unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from flambeau.utils import _pytree

_CURE = (
    "assign a changed copy to the node instead, as in `new_args = (new, *node.args[1:]); node.args = new_args` "
    "or `node.kwargs = {**node.kwargs, 'dim': 1}`"
)


def _no_mutation(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"[fx] expected arguments of a node to be left as they are, got a change of {self!r} in place: {_CURE}"
    )


class immutable_list(list[Any]):
    """A list that does not change."""

    append = clear = extend = insert = pop = remove = reverse = sort = _no_mutation
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _no_mutation

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (immutable_list, (tuple(self),))


class immutable_dict(dict[Any, Any]):
    """A dict that does not change."""

    clear = pop = popitem = setdefault = update = _no_mutation
    __delitem__ = __ior__ = __setitem__ = _no_mutation

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (immutable_dict, (tuple(self.items()),))


def _register() -> None:
    def flatten_list(x: Any) -> tuple[list[Any], Any]:
        return list(x), None

    def flatten_dict(x: Any) -> tuple[list[Any], Any]:
        return list(x.values()), list(x.keys())

    make_dict: Callable[[Iterable[Any], Any], Any] = lambda values, keys: immutable_dict(zip(keys, values))  # noqa: E731
    _pytree.register_pytree_node(immutable_list, flatten_list, lambda values, _: immutable_list(values))
    _pytree.register_pytree_node(immutable_dict, flatten_dict, make_dict)


_register()
