"""Random functions compiled against eager: some seeds, and every one that ever differed."""

import importlib
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
compiler_fuzz = importlib.import_module("compiler_fuzz")
dynamic_fuzz = importlib.import_module("dynamic_fuzz")


@pytest.mark.parametrize("seed", [*range(12), 34, 41, 95, 103, 110, 180])
def test_random_functions_agree(seed):
    assert compiler_fuzz.run(seed) is None


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_of_all_kinds_agree(seed):
    assert compiler_fuzz.run(seed, compiler_fuzz.random_programs.program) is None


@pytest.mark.host  # inputs are made from lists, on the CPU
@pytest.mark.parametrize("seed", [*range(12), 2156])
def test_random_calls_agree(seed):
    assert compiler_fuzz.run(seed, compiler_fuzz.calls) is None


@pytest.mark.parametrize("seed", [0, 1, 2, 24])
def test_source_text_agrees_for_several_sizes(seed):
    assert dynamic_fuzz.run(seed) is None


@pytest.mark.parametrize("seed", range(8))
def test_random_functions_of_many_sizes(seed):
    """Most of their graphs are made from those of other sizes."""
    try:
        problem = dynamic_fuzz.run(seed, many=True)
    except compiler_fuzz.Refused as reason:
        pytest.skip(str(reason))
    assert problem is None or problem.startswith(dynamic_fuzz.UNSTABLE)
