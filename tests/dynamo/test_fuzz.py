"""Some of the fuzzer's programs, always the same ones: those that once differed, and the first hundred and fifty."""

import importlib
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
fuzz = importlib.import_module("fuzz")
same = importlib.import_module("test_corpus").same


def test_random_programs_agree():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in [1618, 1945, *range(150)]:
            problem = fuzz.check(seed, same)
            assert problem is None, problem
