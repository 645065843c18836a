"""Docstrings: every operator has a section with an example that runs, `help` and completion work."""

from __future__ import annotations

import doctest
import operator
import pydoc
import rlcompleter
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


@pytest.mark.parametrize("family", FAMILIES)
def test_examples_of_a_family_run(family):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    path = Path(documentation.__file__).parent / family / "documentation.md"
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


def test_sections_name_what_exists():
    for name in documentation.sections():
        try:
            operator.attrgetter(name)(flambeau)
        except AttributeError:
            assert hasattr(flambeau.Tensor, name), name


def test_function_method_and_in_place_form_share_a_section():
    for documented in (flambeau.sin, flambeau.Tensor.sin, flambeau.Tensor.sin_, flambeau.ones(1).sin):
        assert documentation.sections()["sin"].splitlines()[0] in documented.__doc__


@pytest.mark.parametrize("thing", ["", "Tensor", "nn", "nn.functional", "linalg", "sin", "optim", "Tensor.sin"])
def test_help_of_public_things(thing):
    target = operator.attrgetter(thing)(flambeau) if thing else flambeau
    assert pydoc.render_doc(target)


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
