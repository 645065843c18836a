"""Pytrees: nested containers seen as a list of leaves and a description of the nesting.

`tree_flatten` takes a container apart into its leaves and a `TreeSpec`; `tree_unflatten` puts it together again. A
container type is known by an entry in `SUPPORTED_NODES`, which `register_pytree_node` adds to; everything else,
None included, is a leaf.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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
        kept = [name for name in names if getattr(obj, name, None) is not None]
        return kept, [name for name in names if name not in kept]

    def flatten(obj: Any) -> tuple[list[Any], Context]:
        kept, absent = split(obj)
        return [getattr(obj, name) for name in kept], [kept, absent]

    def flatten_with_keys(obj: Any) -> tuple[list[tuple[KeyEntry, Any]], Context]:
        kept, absent = split(obj)
        return [(GetAttrKey(name), getattr(obj, name)) for name in kept], [kept, absent]

    def unflatten(values: Iterable[Any], context: Context) -> Any:
        kept, absent = context
        return cls(**dict(zip(kept, values)), **dict.fromkeys(absent))

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
        if is_structseq_class(cls) and cls.__module__.startswith("flambeau"):
            return structseq
    return cls


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf | None = None) -> bool:
    """Whether a tree is a single leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


# ---------------------------------------------------------------------------------------------- structure


class TreeSpec:
    """The nesting of a container: a type, its context, and the children's specs. A leaf's type is None."""

    __slots__ = ("type", "context", "_children", "num_nodes", "num_leaves", "num_children")

    def __init__(self, type: Any, context: Context = None, children_specs: Iterable[TreeSpec] = ()) -> None:
        children = list(children_specs)
        self.type, self.context, self._children = type, context, children
        self.num_children = len(children)
        if type is None:
            self.num_nodes, self.num_leaves = 1, 1
        else:
            self.num_nodes = 1 + sum(child.num_nodes for child in children)
            self.num_leaves = sum(child.num_leaves for child in children)

    @property
    def children_specs(self) -> list[TreeSpec]:
        return self._children

    def children(self) -> list[TreeSpec]:
        """The children's specs."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """One child's spec."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """Whether this describes a single leaf."""
        return self.type is None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type is other.type
            and self.num_nodes == other.num_nodes
            and self.context == other.context
            and self._children == other._children
        )

    def __hash__(self) -> int:
        context = tuple(self.context) if isinstance(self.context, list) else self.context
        try:
            own = hash(context)
        except TypeError:
            own = 0
        return hash((self.type, own, tuple(self._children)))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        separator = ",\n" + " " * (indent + 2)
        children = separator.join(child.__repr__(indent + 2) for child in self._children)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{children}])"

    def __reduce__(self) -> Any:
        return (TreeSpec, (self.type, self.context, self._children))

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """Build the container with these leaves."""
        values = leaves if isinstance(leaves, (list, tuple)) else list(leaves)
        if len(values) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(values)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return _build(self, iter(values))

    def flatten_up_to(self, tree: PyTree) -> list[PyTree]:
        """The subtrees of `tree` that stand where this spec has leaves."""
        subtrees: list[PyTree] = []
        _collect_up_to(self, tree, subtrees)
        return subtrees


_LEAF_SPEC = TreeSpec(None)


class _LeafSpecMeta(type):
    """Makes every spec of a single leaf an instance of LeafSpec."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TreeSpec) and instance.is_leaf()


class LeafSpec(TreeSpec, metaclass=_LeafSpecMeta):
    """The spec of a single leaf."""

    __slots__ = ()

    def __new__(cls) -> Any:
        return _LEAF_SPEC


def treespec_leaf() -> TreeSpec:
    """The spec of a leaf."""
    return _LEAF_SPEC


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The spec of a tuple with these children."""
    return TreeSpec(tuple, None, iterable)


def treespec_dict(
    mapping: Mapping[Any, TreeSpec] | Iterable[tuple[Any, TreeSpec]] = (), /, **named: TreeSpec
) -> TreeSpec:
    """The spec of a dict with these children."""
    children = dict(mapping, **named)
    return TreeSpec(dict, list(children), children.values())


def _build(spec: TreeSpec, leaves: Iterator[Any]) -> PyTree:
    if spec.type is None:
        return next(leaves)
    children = [next(leaves) if child.type is None else _build(child, leaves) for child in spec._children]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def _matching_children(spec: TreeSpec, tree: PyTree) -> list[PyTree]:
    """The children of `tree`, in the order of `spec`'s; raises ValueError where the two are different containers."""
    kind = _get_node_type(tree)
    if spec.type in STANDARD_DICT_TYPES and kind in STANDARD_DICT_TYPES:
        # Kinds and orders of dicts mix freely as long as the keys are the same.
        keys = spec.context[1] if spec.type is defaultdict else spec.context
        if len(tree) != spec.num_children:
            raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(tree)}.")
        wanted, got = set(keys), set(tree)
        if wanted != got:
            missing = f"; missing key(s): {wanted - got}" if wanted - got else ""
            extra = f"; extra key(s): {got - wanted}" if got - wanted else ""
            raise ValueError(f"Node keys mismatch{missing}{extra}.")
        return [tree[key] for key in keys]
    if kind is not spec.type:
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {kind!r}.")
    flattened, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    children = list(flattened)
    if len(children) != spec.num_children:
        raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}.")
    # A deque's context is its capacity, which does not change what it holds.
    if kind is not deque and context != spec.context:
        raise ValueError(f"Node context mismatch for custom node type {spec.type!r}.")
    return children


def _collect_up_to(spec: TreeSpec, tree: PyTree, subtrees: list[PyTree]) -> None:
    if spec.type is None:
        subtrees.append(tree)
        return
    for child_spec, child in zip(spec._children, _matching_children(spec, tree)):
        _collect_up_to(child_spec, child, subtrees)


# ---------------------------------------------------------------------------------------------- taking apart


def _flatten_into(tree: PyTree, leaves: list[Any], is_leaf: IsLeaf | None) -> TreeSpec:
    """Append the leaves of `tree` and return its spec."""
    if is_leaf is not None and is_leaf(tree):
        leaves.append(tree)
        return _LEAF_SPEC
    kind = type(tree)
    if kind not in SUPPORTED_NODES and (
        not isinstance(tree, tuple) or (kind := _get_node_type(tree)) not in SUPPORTED_NODES
    ):
        leaves.append(tree)
        return _LEAF_SPEC
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten_into(child, leaves, is_leaf) for child in children])


def tree_flatten(tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a container, in order, and its structure. `is_leaf(x)` true makes a container count as a leaf."""
    leaves: list[Any] = []
    spec = _flatten_into(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The container with this structure and these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type "
            f"{type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: PyTree, is_leaf: IsLeaf | None = None) -> Iterator[Any]:
    """The leaves of a container, one at a time."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
    else:
        children, _ = SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)
        for child in children:
            yield from tree_iter(child, is_leaf)


def _leaves_into(tree: PyTree, leaves: list[Any], is_leaf: IsLeaf | None) -> None:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return
    for child in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
        _leaves_into(child, leaves, is_leaf)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a container, in order."""
    leaves: list[Any] = []
    _leaves_into(tree, leaves, is_leaf)
    return leaves


def tree_structure(tree: PyTree, is_leaf: IsLeaf | None = None) -> TreeSpec:
    """The structure of a container."""
    return tree_flatten(tree, is_leaf)[1]


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of a call's arguments."""
    leaves: list[Any] = []
    for argument in (*args, *kwargs.values()):
        _leaves_into(argument, leaves, None)
    return leaves


# ---------------------------------------------------------------------------------------------- mapping


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf | None = None) -> PyTree:
    """The container of func(leaf, ...), with the matching subtrees of `rests` as further arguments."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten([func(*arguments) for arguments in zip(leaves, *map(spec.flatten_up_to, rests))])


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf | None = None) -> PyTree:
    """Call func on the leaves for its effect; returns the container itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for arguments in zip(leaves, *map(spec.flatten_up_to, rests)):
        func(*arguments)
    return tree


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function applies to values of these types, or accepted by this predicate, only."""
    if isinstance(type_or_types_or_pred, (type, tuple, types.UnionType)):

        def accepts(value: Any) -> bool:
            return isinstance(value, type_or_types_or_pred)
    elif callable(type_or_types_or_pred):
        accepts = type_or_types_or_pred
    else:
        raise TypeError("Argument must be a type, a tuple of types, or a callable.")

    def wrap(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda value: func(value) if accepts(value) else value

    return wrap


def tree_map_only(
    type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf | None = None
) -> PyTree:
    """tree_map on the leaves of these types, or accepted by this predicate; the others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf | None = None
) -> PyTree:
    """tree_map_ on the leaves of these types, or accepted by this predicate."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None) -> bool:
    """Whether every leaf satisfies a predicate."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None) -> bool:
    """Whether some leaf satisfies a predicate."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None
) -> bool:
    """Whether every leaf of these types satisfies a predicate."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None
) -> bool:
    """Whether some leaf of these types satisfies a predicate."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf | None = None) -> list[Any] | None:
    """The leaves of a prefix of `treespec`, each repeated for every leaf below it; None where it is no prefix."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf():
        return None
    try:
        children = _matching_children(treespec, tree)
    except ValueError:
        return None
    leaves: list[Any] = []
    for child, spec in zip(children, treespec._children):
        part = _broadcast_to_and_flatten(child, spec, is_leaf)
        if part is None:
            return None
        leaves += part
    return leaves


# ---------------------------------------------------------------------------------------------- with paths


def _with_path(tree: PyTree, path: KeyPath, is_leaf: IsLeaf | None) -> Iterator[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    kind = _get_node_type(tree)
    flatten = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if flatten is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass one to register_pytree_node."
        )
    for key, child in flatten(tree)[0]:
        yield from _with_path(child, (*path, key), is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[tuple[KeyPath, Any]]:
    """(path, leaf) for each leaf."""
    return list(_with_path(tree, (), is_leaf))


def tree_flatten_with_path(tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """As tree_flatten, with (path, leaf) in place of each leaf."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf | None = None) -> PyTree:
    """As tree_map, with the leaf's path as first argument."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    further = map(spec.flatten_up_to, rests)
    return spec.unflatten([func(path, leaf, *others) for (path, leaf), *others in zip(pairs, *further)])


# ---------------------------------------------------------------------------------------------- as text

DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1


def _name_of(cls: Any) -> str | None:
    return None if cls is None else f"{cls.__module__}:{cls.__qualname__}"


def _find_class(name: str | None) -> Any:
    """The class that `_name_of` named. Only classes are accepted, since the text may come from anywhere."""
    if name is None:
        return None
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise TypeError(f"[treespec_loads] expected the name of a class, got {name!r}")
    return found


def _to_json(spec: TreeSpec) -> dict[str, Any]:
    if spec.type is None:
        return {"type": None, "context": None, "children_spec": []}
    node = SUPPORTED_NODES[spec.type]
    context = spec.context if node.to_dumpable_context is None else node.to_dumpable_context(spec.context)
    try:
        text = json.dumps(context)
    except TypeError as error:
        raise TypeError(
            f"Unable to serialize context {spec.context!r} of {spec.type}; give register_pytree_node a "
            "to_dumpable_context"
        ) from error
    return {
        "type": node.serialized_type_name,
        "context": text,
        "children_spec": [_to_json(child) for child in spec._children],
    }


def _from_json(data: Mapping[str, Any]) -> TreeSpec:
    if data["type"] is None:
        return _LEAF_SPEC
    for node in SUPPORTED_NODES.values():
        if node.serialized_type_name == data["type"]:
            break
    else:
        raise ValueError(f"Deserializing {data['type']} in pytree is not registered.")
    context = json.loads(data["context"])
    if node.from_dumpable_context is not None:
        context = node.from_dumpable_context(context)
    return TreeSpec(node.type, context, [_from_json(child) for child in data["children_spec"]])


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A spec as JSON text."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"treespec_dumps(treespec): Expected `treespec` to be TreeSpec, got {type(treespec)}.")
    if protocol not in (None, DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return json.dumps((DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL, _to_json(treespec)))


def treespec_loads(serialized: str) -> TreeSpec:
    """The spec that `treespec_dumps` wrote."""
    protocol, data = json.loads(serialized)
    if protocol != DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return _from_json(data)


def treespec_pprint(treespec: TreeSpec) -> str:
    """A spec as the container it describes, with * for each leaf."""

    class Star:
        def __repr__(self) -> str:
            return "*"

    return repr(treespec.unflatten([Star()] * treespec.num_leaves))
