"""Pytrees: taking containers apart and putting them together."""

import dataclasses
import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

from flambeau.utils import _pytree as pytree

Point = namedtuple("Point", "x y")

TREES = [
    3,
    None,
    [],
    (1, [2, {"a": 3, "b": (4,)}]),
    {"b": 1, "a": [2, None]},
    Point(1, Point([2], 3)),
    OrderedDict(z=1, a=2),
    defaultdict(list, {"k": [1]}),
    deque([1, (2,)], maxlen=4),
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_a_tree_survives_being_taken_apart(tree):
    leaves, spec = pytree.tree_flatten(tree)
    rebuilt = pytree.tree_unflatten(leaves, spec)
    assert rebuilt == tree and type(rebuilt) is type(tree)
    assert leaves == pytree.tree_leaves(tree) == list(pytree.tree_iter(tree))
    assert spec.num_leaves == len(leaves)


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_a_spec_survives_pickling_and_text(tree):
    spec = pytree.tree_structure(tree)
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec and hash(copy) == hash(spec)
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_paths_lead_to_leaves(tree):
    for path, leaf in pytree.tree_leaves_with_path(tree):
        assert pytree.key_get(tree, path) is leaf


def test_paths_read_as_python():
    tree = {"a": [1, Point(2, 3)]}
    paths = [pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(tree)]
    assert paths == ["['a'][0]", "['a'][1].x", "['a'][1].y"]
    named = pytree.tree_map_with_path(lambda path, leaf: pytree.keystr(path), tree)
    assert named == {"a": ["['a'][0]", Point("['a'][1].x", "['a'][1].y")]}


def test_spec_text():
    assert repr(pytree.tree_structure({"a": [1, (2,)]})) == (
        "TreeSpec(dict, ['a'], [TreeSpec(list, None, [*,\n    TreeSpec(tuple, None, [*])])])"
    )
    assert pytree.treespec_pprint(pytree.tree_structure({"a": [1, (2,)]})) == "{'a': [*, (*,)]}"


def test_a_leaf_is_an_instance_of_leaf_spec():
    assert isinstance(pytree.tree_structure(1), pytree.LeafSpec)
    assert not isinstance(pytree.tree_structure([1]), pytree.LeafSpec)
    assert pytree.LeafSpec() == pytree.treespec_leaf()


def test_map_over_several_trees():
    assert pytree.tree_map(lambda a, b: a + b, [1, {"k": 2}], [10, {"k": 20}]) == [11, {"k": 22}]
    # Dicts match by key, whatever their order.
    assert pytree.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}) == {"a": (1, 4), "b": (2, 3)}


@pytest.mark.parametrize(
    "other, message",
    [([1], "arity mismatch"), ((1, 2), "type mismatch"), ({"a": 1}, "type mismatch")],
    ids=["length", "tuple", "dict"],
)
def test_map_over_trees_that_differ(other, message):
    with pytest.raises(ValueError, match=message):
        pytree.tree_map(lambda a, b: a, [1, 2], other)


def test_map_over_dicts_with_other_keys():
    with pytest.raises(ValueError, match="missing key"):
        pytree.tree_map(lambda a, b: a, {"a": 1}, {"b": 1})


def test_wrong_number_of_leaves():
    with pytest.raises(ValueError, match="has length 1 but the spec refers to a pytree that holds 2"):
        pytree.tree_unflatten([1], pytree.tree_structure([1, 2]))


def test_map_only_some_leaves():
    assert pytree.tree_map_only(int, lambda x: x + 1, [1, "a", 2.0]) == [2, "a", 2.0]
    assert pytree.tree_map_only((int, float), lambda x: x * 2, [1, "a", 2.0]) == [2, "a", 4.0]
    assert pytree.tree_map_only(lambda x: x == "a", str.upper, [1, "a"]) == [1, "A"]


def test_map_for_effect_returns_the_tree():
    seen, tree = [], [1, (2,)]
    assert pytree.tree_map_(seen.append, tree) is tree and seen == [1, 2]


def test_predicates():
    assert pytree.tree_all(lambda x: x > 0, [1, (2,)]) and not pytree.tree_all(lambda x: x > 1, [1, (2,)])
    assert pytree.tree_any(lambda x: x > 1, [1, (2,)]) and not pytree.tree_any(lambda x: x > 2, [1, (2,)])
    assert pytree.tree_all_only(int, lambda x: x > 0, [1, "a"]) and pytree.tree_any_only(str, str.islower, [1, "a"])


def test_is_leaf_stops_the_descent():
    assert pytree.tree_leaves([1, (2, 3)], is_leaf=lambda x: isinstance(x, tuple)) == [1, (2, 3)]


def test_a_prefix_is_broadcast():
    spec = pytree.tree_structure(((1, 2), 3))
    assert pytree._broadcast_to_and_flatten((7, 8), spec) == [7, 7, 8]
    assert pytree._broadcast_to_and_flatten((7, 8, 9), spec) is None


def test_a_registered_class_is_a_container():
    class Pair:
        def __init__(self, left, right):
            self.left, self.right = left, right

    pytree.register_pytree_node(Pair, lambda pair: ((pair.left, pair.right), None), lambda values, _: Pair(*values))
    try:
        doubled = pytree.tree_map(lambda x: 2 * x, [Pair(1, (2,))])
        assert (doubled[0].left, doubled[0].right) == (2, (4,))
        with pytest.raises(ValueError, match="already registered"):
            pytree.register_pytree_node(Pair, None, None)
    finally:
        pytree._deregister_pytree_node(Pair)
    assert pytree.tree_is_leaf(Pair(1, 2))


def test_a_registered_dataclass_is_a_container():
    @dataclasses.dataclass
    class State:
        weight: int
        bias: int | None = None

    pytree.register_dataclass(State)
    try:
        assert pytree.tree_map(lambda x: x + 1, [State(1, 2), State(3)]) == [State(2, 3), State(4)]
        assert pytree.keystr(pytree.tree_leaves_with_path(State(1))[0][0]) == ".weight"
    finally:
        pytree._deregister_pytree_node(State)


def test_loading_a_spec_runs_nothing():
    text = pytree.treespec_dumps(pytree.tree_structure(Point(1, 2))).replace("Point", "__name__")
    with pytest.raises(TypeError, match="expected the name of a class"):
        pytree.treespec_loads(text)


def test_named_results_of_operators_are_containers():
    import flambeau as fl

    found = fl.max(fl.eye(2), 0)
    leaves, spec = pytree.tree_flatten(found)
    assert len(leaves) == 2 and all(isinstance(x, fl.Tensor) for x in leaves)
    assert type(pytree.tree_unflatten(leaves, spec)) is type(found)
