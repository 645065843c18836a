"""Pytrees: nested containers seen as a list of leaves and a description of the nesting.

`tree_flatten` takes a container apart into its leaves and a `TreeSpec`; `tree_unflatten` puts it together again. Which
types are containers, and how they come apart, is in `_pytree_nodes.py`.
"""

from __future__ import annotations

import json
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flambeau.utils._pytree_nodes import (  # noqa: F401
    BUILTIN_TYPES,
    CONSTANT_NODES,
    STANDARD_DICT_TYPES,
    SUPPORTED_NODES,
    ConstantNode,
    Context,
    FlattenFunc,
    GetAttrKey,
    IsLeaf,
    KeyEntry,
    KeyPath,
    MappingKey,
    NodeDef,
    PyTree,
    SequenceKey,
    UnflattenFunc,
    _deregister_pytree_node,
    _find_class,
    _get_node_type,
    _is_leaf,
    _mapping_with_keys,
    _name_of,
    _namedtuple_with_keys,
    _private_register_pytree_node,
    _register_pytree_node,
    _sequence_with_keys,
    is_constant_class,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    key_get,
    keystr,
    register_constant,
    register_dataclass,
    register_pytree_node,
    structseq,
    tree_is_leaf,
)

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


_NAMEDTUPLES: dict[str, type] = {}  # registered, by the name that files have for them


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """The name that files have for a named tuple class."""
    _NAMEDTUPLES[serialized_type_name] = cls


def _namedtuple_name(cls: type) -> str:
    known = next((name for name, one in _NAMEDTUPLES.items() if one is cls), None)
    return f"{cls.__module__}.{cls.__qualname__}" if known is None else known


def _namedtuple_class(name: str) -> type:
    """The class of that name, where it is registered or its module is imported."""
    if name.startswith('"'):
        name = json.loads(name).replace(":", ".")
    known = _NAMEDTUPLES.get(name)
    if known is None:
        module, _, leaf = name.rpartition(".")
        known = getattr(sys.modules.get(module), leaf, None)
    if known is None:
        raise ValueError(f"Deserializing named tuple {name} in pytree: it is neither registered nor imported.")
    if not isinstance(known, type) or not is_namedtuple_class(known):
        raise TypeError(f"[treespec_loads] expected the name of a class of named tuples, got {name!r}")
    return known


def _to_json(spec: TreeSpec) -> dict[str, Any]:
    if spec.type is None:
        return {"type": None, "context": None, "children_spec": []}
    node = SUPPORTED_NODES[spec.type]
    if node.serialized_type_name == "collections.namedtuple":  # named as text, without quotes
        children = [_to_json(child) for child in spec._children]
        return {"type": node.serialized_type_name, "context": _namedtuple_name(spec.context), "children_spec": children}
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
    if node.serialized_type_name == "collections.namedtuple":
        namedtuple_class = _namedtuple_class(data["context"])
        return TreeSpec(node.type, namedtuple_class, [_from_json(child) for child in data["children_spec"]])
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


# ---------------------------------------------------------------------------------------------- for other libraries
# How the standard containers come apart, for classes that are registered as relatives of them.


def _dict_flatten(d: Mapping[Any, Any]) -> tuple[list[Any], Context]:
    return list(d.values()), list(d.keys())


def _dict_flatten_with_keys(d: Mapping[Any, Any]) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: Context) -> dict[Any, Any]:
    return dict(zip(context, values))


def _list_flatten(d: Iterable[Any]) -> tuple[list[Any], Context]:
    return list(d), None


def _list_flatten_with_keys(d: Iterable[Any]) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return [(SequenceKey(i), value) for i, value in enumerate(d)], None


def _list_unflatten(values: Iterable[Any], context: Context) -> list[Any]:
    return list(values)


def _tuple_unflatten(values: Iterable[Any], context: Context) -> tuple[Any, ...]:
    return tuple(values)


_tuple_flatten, _tuple_flatten_with_keys = _list_flatten, _list_flatten_with_keys
