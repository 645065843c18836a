"""What a pass knows of operators is on their records: no lists of operator names outside of flambeau/ops."""

import importlib
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = 79  # lists that are still to be replaced by tags; this number only falls


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


def test_no_list_of_operator_names_outside_of_ops(detector, names):
    lists = detector.refused(names, ROOT)
    assert len(lists) <= MOST, "\n".join(map(str, lists))


def test_every_exception_is_needed(detector, names):
    assert {found.path for found in detector.op_lists(names, ROOT)} >= set(detector.ALLOWED)


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
