"""The examples in the docstrings of distributions and transforms run, and every public class has one."""

import doctest
import importlib

import pytest

import flambeau
from flambeau import distributions

MODULES = "_composed _continuous _discrete _gamma _multivariate _transformed transforms".split()


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(f"flambeau.distributions.{name}")
    names = {"flambeau": flambeau, "distributions": distributions}
    assert doctest.testmod(module, extraglobs=names).failed == 0


def test_every_class_has_an_example():
    bases = {"Distribution", "ExponentialFamily", "Transform"}
    classes = {n: getattr(distributions, n) for n in distributions.__all__ if n not in bases}
    assert [n for n, c in classes.items() if isinstance(c, type) and ">>>" not in (c.__doc__ or "")] == []
