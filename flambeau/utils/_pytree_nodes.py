"""What pytrees know of containers: the table of their kinds, how each is taken apart, and the keys of paths.

A container type is known by an entry in `SUPPORTED_NODES`, which `register_pytree_node` adds to; everything else,
None included, is a leaf. `_pytree.py` is the public module.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import flambeau

PyTree = Any
Context = Any
IsLeaf = Callable[[Any], bool]
FlattenFunc = Callable[[Any], tuple[Iterable[Any], Context]]
UnflattenFunc = Callable[[Iterable[Any], Context], Any]


# ---------------------------------------------------------------------------------------------- paths to leaves


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """Position in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Sequence[Any]) -> Any:
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """Key of a mapping."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Mapping[Any, Any]) -> Any:
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """Name of an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]


def keystr(kp: KeyPath) -> str:
    """The path as it would be written in Python: `['a'][0].weight`."""
    return "".join(str(key) for key in kp)


def key_get(obj: Any, kp: KeyPath) -> Any:
    """Follow a path into a container."""
    for key in kp:
        obj = key.get(obj)
    return obj


# ---------------------------------------------------------------------------------------------- kinds of nodes


class NodeDef(NamedTuple):
    """How one container type is taken apart and put together."""

    type: Any
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[KeyEntry, Any]], Context]] | None
    serialized_type_name: str
    to_dumpable_context: Callable[[Context], Any] | None
    from_dumpable_context: Callable[[Any], Context] | None


SUPPORTED_NODES: dict[Any, NodeDef] = {}
CONSTANT_NODES: set[type] = set()
BUILTIN_TYPES: frozenset[Any] = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
STANDARD_DICT_TYPES: frozenset[type] = frozenset({dict, OrderedDict, defaultdict})


def register_pytree_node(
    cls: Any,
    flatten_fn: FlattenFunc,
    unflatten_fn: UnflattenFunc,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Context], Any] | None = None,
    from_dumpable_context: Callable[[Any], Context] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[KeyEntry, Any]], Context]] | None = None,
) -> None:
    """Make `cls` a container.

    flatten_fn(obj) gives its children and a context; unflatten_fn(children, context) builds it again. The context must
    be comparable; to be serialised it must be JSON or come with the two functions that convert it. flatten_with_keys_fn
    gives (key, child) pairs instead of children, for paths.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    SUPPORTED_NODES[cls] = NodeDef(
        cls, flatten_fn, unflatten_fn, flatten_with_keys_fn, name, to_dumpable_context, from_dumpable_context
    )


def _register_pytree_node(
    cls: type, flatten_fn: FlattenFunc, unflatten_fn: UnflattenFunc, *unused: Any, **options: Any
) -> None:
    """The older name of `register_pytree_node`; registering again replaces."""
    SUPPORTED_NODES.pop(cls, None)
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


_private_register_pytree_node = _register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    """Make `cls` a leaf again."""
    del SUPPORTED_NODES[cls]
    CONSTANT_NODES.discard(cls)


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make a dataclass a container of its fields, less those in `drop_field_names`."""
    if not dataclasses.is_dataclass(cls) and field_names is None:
        raise ValueError(f"field_names must be specified with a list of all fields: {cls} is not a dataclass")
    dropped = list(drop_field_names or ())
    if dataclasses.is_dataclass(cls):
        initial = [field.name for field in dataclasses.fields(cls) if field.init]
        names = initial if field_names is None else list(field_names)
        if field_names is not None and set(initial) - set(names) - set(dropped):
            missing = sorted(set(initial) - set(names) - set(dropped))
            raise ValueError(f"fields {missing} of {cls} are neither in field_names nor in drop_field_names")
        names = [name for name in names if name not in dropped]
    else:
        names = [name for name in field_names or () if name not in dropped]

    def split(obj: Any) -> tuple[list[str], list[str]]:
        present = [name for name in names if getattr(obj, name, None) is not None]
        return present, [name for name in names if name not in present]

    def flatten(obj: Any) -> tuple[list[Any], Context]:
        present, absent = split(obj)
        return [getattr(obj, name) for name in present], [present, absent]

    def flatten_with_keys(obj: Any) -> tuple[list[tuple[KeyEntry, Any]], Context]:
        present, absent = split(obj)
        return [(GetAttrKey(name), getattr(obj, name)) for name in present], [present, absent]

    def unflatten(values: Iterable[Any], context: Context) -> Any:
        present, absent = context
        return cls(**dict(zip(present, values)), **dict.fromkeys(absent))

    register_pytree_node(
        cls,
        flatten,
        unflatten,
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=flatten_with_keys,
    )


@dataclasses.dataclass(frozen=True)
class ConstantNode:
    """Context that carries a constant's value."""

    value: Any


def register_constant(cls: type) -> None:
    """Make `cls` a container without children: its instances are part of the structure, compared with ==."""
    if cls.__dict__.get("__eq__", cls.__eq__) is object.__eq__:
        raise TypeError(f"register_constant(cls) expects {cls} to define __eq__")
    if cls.__hash__ is None:
        raise TypeError(f"register_constant(cls) expects {cls} to define __hash__")
    register_pytree_node(
        cls,
        lambda obj: ([], ConstantNode(obj)),
        lambda _, context: context.value,
        flatten_with_keys_fn=lambda obj: ([], ConstantNode(obj)),
    )
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: type) -> bool:
    """Whether `register_constant` knows the class."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def is_namedtuple_class(cls: type) -> bool:
    """Whether a class was made by `namedtuple` or derives from one."""
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        return False
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(fields, tuple)
        and all(type(name) is str for name in fields)
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether a class is one of the interpreter's struct sequences, like `time.struct_time`."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(
            isinstance(getattr(cls, name, None), int) for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields")
        )
    )


def is_structseq_instance(obj: Any) -> bool:
    """Whether an object is a struct sequence."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether an object is a struct sequence or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


# The children of a sequence and of a mapping, with and without their keys.


def _sequence_with_keys(values: Iterable[Any]) -> list[tuple[KeyEntry, Any]]:
    return [(SequenceKey(index), value) for index, value in enumerate(values)]


def _mapping_with_keys(mapping: Mapping[Any, Any]) -> list[tuple[KeyEntry, Any]]:
    return [(MappingKey(key), value) for key, value in mapping.items()]


def _namedtuple_with_keys(values: Any) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return [(GetAttrKey(name), value) for name, value in zip(values._fields, values)], type(values)


register_pytree_node(
    tuple,
    lambda values: (values, None),
    lambda children, _: tuple(children),
    flatten_with_keys_fn=lambda values: (_sequence_with_keys(values), None),
)
register_pytree_node(
    list,
    lambda values: (values, None),
    lambda children, _: list(children),
    flatten_with_keys_fn=lambda values: (_sequence_with_keys(values), None),
)
register_pytree_node(
    dict,
    lambda mapping: (list(mapping.values()), list(mapping)),
    lambda children, keys: dict(zip(keys, children)),
    flatten_with_keys_fn=lambda mapping: (_mapping_with_keys(mapping), list(mapping)),
)
register_pytree_node(
    OrderedDict,
    lambda mapping: (list(mapping.values()), list(mapping)),
    lambda children, keys: OrderedDict(zip(keys, children)),
    flatten_with_keys_fn=lambda mapping: (_mapping_with_keys(mapping), list(mapping)),
)
register_pytree_node(
    defaultdict,
    lambda mapping: (list(mapping.values()), [mapping.default_factory, list(mapping)]),
    lambda children, context: defaultdict(context[0], zip(context[1], children)),
    flatten_with_keys_fn=lambda mapping: (_mapping_with_keys(mapping), [mapping.default_factory, list(mapping)]),
    to_dumpable_context=lambda context: {"default_factory": _name_of(context[0]), "keys": context[1]},
    from_dumpable_context=lambda dumped: [_find_class(dumped["default_factory"]), dumped["keys"]],
)
register_pytree_node(
    deque,
    lambda values: (values, values.maxlen),
    lambda children, maxlen: deque(children, maxlen=maxlen),
    flatten_with_keys_fn=lambda values: (_sequence_with_keys(values), values.maxlen),
)

register_pytree_node(
    flambeau.Size,
    lambda size: (size, None),
    lambda children, _: tuple(children),  # mapped sizes need not be integers
    flatten_with_keys_fn=lambda size: (_sequence_with_keys(size), None),
)


class structseq(tuple):
    """Stands in SUPPORTED_NODES for every struct sequence class, as `namedtuple` does for every named tuple class."""


register_pytree_node(
    namedtuple,
    lambda values: (values, type(values)),
    lambda children, cls: cls(*children),
    serialized_type_name="collections.namedtuple",
    flatten_with_keys_fn=_namedtuple_with_keys,
    to_dumpable_context=lambda cls: _name_of(cls),
    from_dumpable_context=lambda dumped: _find_class(dumped),
)
register_pytree_node(
    structseq,
    lambda values: (values, type(values)),
    lambda children, cls: cls(children),
    flatten_with_keys_fn=lambda values: (_sequence_with_keys(values), type(values)),
    to_dumpable_context=lambda cls: _name_of(cls),
    from_dumpable_context=lambda dumped: _find_class(dumped),
)


def _get_node_type(tree: Any) -> Any:
    """The key in SUPPORTED_NODES for an object's type, or the type itself when it is a leaf's."""
    cls = type(tree)
    if cls in SUPPORTED_NODES:
        return cls
    if isinstance(tree, tuple):
        if is_namedtuple_class(cls):
            return namedtuple
        # The library's own results with named fields; foreign ones, such as times, are values.
        if is_structseq_class(cls) and cls.__module__.startswith(("flambeau", "torch.return_types")):
            return structseq
    return cls


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf | None = None) -> bool:
    """Whether a tree is a single leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


# ---------------------------------------------------------------------------------------------- classes as text


def _name_of(cls: Any) -> str | None:
    return None if cls is None else f"{cls.__module__}:{cls.__qualname__}"


def _find_class(name: str | None) -> Any:
    """The class that `_name_of` named. Only classes are accepted, since the text may come from anywhere."""
    if name is None:
        return None
    module, _, path = name.partition(":")
    cls: Any = importlib.import_module(module)
    for part in path.split("."):
        cls = getattr(cls, part)
    if not isinstance(cls, type):
        raise TypeError(f"[treespec_loads] expected the name of a class, got {name!r}")
    return cls
