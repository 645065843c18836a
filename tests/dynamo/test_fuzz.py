"""A few hundred of the fuzzer's programs, new ones each day of the month."""

import datetime
import importlib
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
fuzz = importlib.import_module("fuzz")
same = importlib.import_module("test_corpus").same


def test_random_programs_agree():
    first = datetime.date.today().day * 100_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in [1618, 1945, *range(first, first + 150)]:
            problem = fuzz.check(seed, same)
            assert problem is None, problem
