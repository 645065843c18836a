"""What a pass knows of operators is on their records: no lists of operator names outside of flambeau/ops."""

import collections
import importlib
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Lists that are still to be replaced by tags; these numbers only fall.
PENDING = {
    "flambeau/_inductor/heads.py": 1,
    "flambeau/_inductor/in_place.py": 1,
}


@pytest.fixture(scope="module")
def detector():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("op_lists")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def names(detector):
    from flambeau.backends import records

    return detector.operator_names(records._all())


def test_no_list_of_operator_names_outside_of_ops_but_the_allowed(detector, names):
    lists = detector.op_lists(names, ROOT)
    refused = [found for found in lists if found.path not in detector.ALLOWED]
    counts = collections.Counter(found.path for found in refused)
    assert all(count <= PENDING.get(path, 0) for path, count in counts.items()), "\n".join(map(str, refused))
    assert {found.path for found in lists} >= set(detector.ALLOWED), "an exception that nothing needs"


def test_every_tag_is_used_and_documented():
    from flambeau.backends import records
    from flambeau.ops.record import TAGS

    assert {tag for record in records._all().values() for tag in record.tags} == set(TAGS)
    text = (ROOT / "docs" / "internals" / "operators.md").read_text()
    assert not [tag for tag in TAGS if f"`{tag}`" not in text]


def test_tags_are_read_without_importing_records():
    from flambeau.backends import records
    from flambeau.ops import tags
    from flambeau.ops.record import KINDS, TAGS

    by_tag = {tag: {n for n, r in records._all().items() if tag in (r.kind, *r.tags)} for tag in (*TAGS, *KINDS)}
    assert {tag: tags.operators(tag) for tag in by_tag} == by_tag


def test_functions_have_a_tag_if_all_of_their_overloads_do():
    from flambeau.ops import tags

    assert {"add", "clamp", "relu6"} <= tags.functions("pointwise", "elementwise")
    assert "max.other" in tags.operators("pointwise") and "max" not in tags.functions("pointwise")


def test_a_tag_that_nothing_explains_is_refused():
    from flambeau.ops import record

    with pytest.raises(ValueError, match="expected a tag that"):
        record.native("_some_operator(Tensor self) -> Tensor", tags=("unknown",))
    with pytest.raises(ValueError, match="expected a record of"):
        record.tag("view", "no_such_operator")


def lists_in(detector, folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    names = {"sin", "cos", "tanh", "matmul", "add", "mul", "sub", "float", "double", "half"}
    return [found.names for found in detector.op_lists(names, folder)]


@pytest.mark.parametrize(
    "text",
    [
        'KNOWN = frozenset(("sin", "cos", "tanh"))',
        'KNOWN = "sin cos tanh".split()',
        'RULES = {"sin": f, "cos": g, "tanh": h}',
        'NAMES = {f: "sin", g: "cos", h: "tanh"}',
        'def is_known(name):\n    return name == "sin" or name == "cos" or name == "tanh"',
        'def rule(name):\n    match name:\n        case "sin" | "cos":\n            return f\n        case "tanh":\n            return g',
    ],
)
def test_lists_in_python_are_found(detector, tmp_path, text):
    assert lists_in(detector, tmp_path, "flambeau/some/pass.py", text) == [("sin", "cos", "tanh")]


@pytest.mark.parametrize(
    "text",
    [
        '__all__ = ["sin", "cos", "tanh"]',  # re-exports
        'KNOWN = ("sin", "cos")',  # a comparison reads as well
        'MODULES = {"sin": 1, "cos": 2, "tanh": 3, "a": 4, "b": 5, "c": 6, "d": 7}',  # other words, mostly
        'BINARY = ("add", "mul", "sub")',  # Python's operators
        'DTYPES = ("float", "double", "half")',
    ],
)
def test_what_is_no_list_of_operators_is_not_found(detector, tmp_path, text):
    assert lists_in(detector, tmp_path, "flambeau/some/pass.py", text) == []


@pytest.mark.parametrize(
    "text",
    [
        'static const std::set<std::string> known = {"sin", "cos", "tanh"};',
        'static const std::map<std::string, Rule> rules = {{"sin", f}, {"cos", f}, {"tanh", g}};',
        'bool known(const std::string& name) { return name == "sin" || name == "cos" || name == "tanh"; }',
        'if (is("sin", "cos", "tanh")) return f;',
    ],
)
def test_lists_in_native_code_are_found(detector, tmp_path, text):
    assert lists_in(detector, tmp_path, "csrc/some/pass.cpp", text) == [("sin", "cos", "tanh")]


def test_calls_of_operators_in_native_code_are_no_list(detector, tmp_path):
    text = 'Tensor f(const Tensor& x) { return CALL("sin", CALL("cos", CALL("tanh", x))); }'
    assert lists_in(detector, tmp_path, "csrc/some/kernel.cpp", text) == []
