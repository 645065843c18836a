"""Docstrings: every operator has a section with an example that runs, `help` and completion work."""

from __future__ import annotations

import doctest
import functools
import inspect
import operator
import pydoc
import re
import rlcompleter
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import flambeau
from flambeau.ops import documentation, record, rules

FAMILIES = [family.rpartition(".")[2] for family in rules.families()]


def public_places(entry: record.Record) -> list[tuple[str, str]]:
    """The modules in which a program finds the function of a record, and its name there; none for private ones."""
    name = entry.public or entry.schema.name
    places = [module for module in entry.module.split(";") if module != "_ops"]
    if name.startswith("_") or not (entry.function or entry.method):
        return []
    return [
        (f"torch.{m}" if m else "torch", name if entry.public else name.removeprefix(m.rpartition(".")[2] + "_"))
        for m in places
    ]


def family_names(family: str) -> set[tuple[str, str]]:
    home = f"flambeau.ops.{family}."
    return {place for e in record.load().values() if e.where.startswith(home) for place in public_places(e)}


@pytest.mark.parametrize("family", [*FAMILIES, "_tensor"])
def test_examples_of_a_family_run(family):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    ops = Path(documentation.__file__).parent
    path = (ops.parent if family == "_tensor" else ops) / family / "documentation.md"
    for heading, text in documentation.read(path) if path.exists() else ():
        scope = {"flambeau": flambeau, "nn": flambeau.nn, "F": flambeau.nn.functional}
        test = doctest.DocTestParser().get_doctest(text, scope, heading, None, 0)
        failures = doctest.DocTestRunner(verbose=False, optionflags=flags).run(test).failed
        assert failures == 0, f"an example of {heading} failed"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operator_of_a_family_is_documented(family):
    lacking = sorted(
        f"{module}.{name}"
        for module, name in family_names(family)
        if ">>>" not in (documentation.find(module, name) or "")
    )
    assert not lacking


def test_every_method_has_a_docstring():
    methods = [
        name for name in dir(flambeau.Tensor) if not name.startswith("_") and callable(getattr(flambeau.Tensor, name))
    ]
    assert [name for name in methods if not getattr(flambeau.Tensor, name).__doc__] == []


def test_every_property_of_a_tensor_has_a_docstring():
    values = {name: inspect.getattr_static(flambeau.Tensor, name) for name in dir(flambeau.Tensor) if name[0] != "_"}
    assert [name for name, value in values.items() if not callable(value) and not inspect.getdoc(value)] == []


def test_sections_name_what_exists():
    for name in documentation.sections():
        try:
            operator.attrgetter(name)(flambeau)
        except AttributeError:
            assert hasattr(flambeau.Tensor, name), name


def test_function_method_and_in_place_form_share_a_section():
    for documented in (flambeau.sin, flambeau.Tensor.sin, flambeau.Tensor.sin_, flambeau.ones(1).sin):
        assert documentation.sections()["sin"].splitlines()[0] in documented.__doc__


@pytest.mark.parametrize("thing", ["", "Tensor", "nn", "nn.functional", "linalg", "optim"])
def test_help_of_public_things(thing):
    target = operator.attrgetter(thing)(flambeau) if thing else flambeau
    assert pydoc.render_doc(target)


@pytest.mark.parametrize(
    "thing",
    "sin linalg.svd nn.functional.cross_entropy einsum unique nn.Linear Tensor.sin Tensor.sin_ Tensor.squeeze Tensor.norm "
    "Tensor.backward Tensor.unique".split(),
)
def test_help_shows_the_example(thing):
    assert ">>>" in pydoc.render_doc(operator.attrgetter(thing)(flambeau))


@pytest.mark.parametrize(
    "typed, completed",
    [
        ("torch.sof", "torch.softmax("),
        ("torch.nn.Lin", "torch.nn.Linear("),
        ("x.squee", "x.squeeze("),
        ("torch.autoc", "torch.autocast("),
    ],
)
def test_completion_at_the_prompt(typed, completed):
    complete = rlcompleter.Completer({"torch": flambeau, "x": flambeau.ones(1)}).complete
    matches = []
    while (match := complete(typed, len(matches))) is not None:
        matches.append(match)
    assert completed in matches


def test_names_that_a_module_imports_when_asked_are_listed():
    program = """
import importlib, pkgutil, warnings, flambeau
warnings.simplefilter("ignore")
for found in pkgutil.walk_packages(flambeau.__path__, "flambeau."):
    if not found.name.startswith(("flambeau._compat", "flambeau.static", "flambeau.lib")) and "__main__" not in found.name:
        module = importlib.import_module(found.name)
        if "__getattr__" in vars(module) and (missing := set(getattr(module, "__all__", ())) - set(dir(module))):
            print(found.name, sorted(missing))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr


# Packages whose public classes and functions carry their documentation in their sources.
PACKAGES = "nn nn.init nn.utils optim optim.lr_scheduler func utils.data autograd".split()
# Classes to inherit from or to ask about, and names that are kept for old programs: they have no example.
WITHOUT_EXAMPLE = {
    "factory_kwargs", "clip_grad_norm", "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_weights", "fuse_linear_bn_weights", "DistributedSampler", "GradcheckError", "NestedIOFunction",
    "Variable",
    "set_multithreading_enabled", "constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal",
    "sparse", "uniform", "xavier_normal", "xavier_uniform", "Tensor", "Any", "Callable", "import_module",
}  # fmt: skip


def package_members(package: str) -> dict[str, object]:
    module = operator.attrgetter(package)(flambeau)
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {name: value for name, value in found.items() if callable(value) and name not in WITHOUT_EXAMPLE}


@pytest.mark.parametrize("package", PACKAGES)
def test_members_of_a_package_have_examples(package):
    assert [name for name, value in package_members(package).items() if ">>>" not in (value.__doc__ or "")] == []


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_examples_of_a_package_run(package):
    for name, value in package_members(package).items():
        scope = {"flambeau": flambeau, "nn": flambeau.nn, "F": flambeau.nn.functional}
        test = doctest.DocTestParser().get_doctest(inspect.getdoc(value), scope, name, None, 0)
        failures = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed
        assert failures == 0, f"an example of {package}.{name} failed"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("owner", [flambeau, flambeau.Tensor], ids=["functions", "methods"])
def test_examples_of_functions_written_in_python_run(owner):
    """The others are operators, whose examples lie beside their records."""
    members = {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}
    kinds = (inspect.isfunction, inspect.isbuiltin, lambda value: isinstance(value, functools.partial))
    python = {
        name: inspect.getdoc(value) or ""
        for name, value in members.items()
        if any(is_kind(value) for is_kind in kinds) or hasattr(value, "__code__")
    }
    examples = {name: text for name, text in python.items() if ">>>" in text}
    if find_spec("torch") is None:  # the examples have tensors of PyTorch
        for name in ("from_torch", "to_torch"):
            examples.pop(name, None)
    scope = {"flambeau": flambeau, "nn": flambeau.nn, "F": flambeau.nn.functional}
    assert len(examples) >= (110 if owner is flambeau else 20)
    for name, text in examples.items():
        test = doctest.DocTestParser().get_doctest(text, dict(scope), name, None, 0)
        flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        assert doctest.DocTestRunner(verbose=False, optionflags=flags).run(test).failed == 0, name


def test_nearly_every_public_callable_has_an_example():  # in a process where no test has added names
    tool = Path(__file__).parent.parent / "tools/docstring_share.py"
    done = subprocess.run([sys.executable, tool, "--missing"], capture_output=True, text=True, timeout=300)
    total = re.search(r"all +\d+ callables +([\d.]+)% described +([\d.]+)% with an example", done.stdout)
    assert total is not None and float(total[1]) == 100 and float(total[2]) >= 98, done.stdout + done.stderr
