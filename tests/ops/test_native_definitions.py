"""Definitions evaluated by native code, without Python's functions: the results of the same text run by Python."""

import pathlib
import sys

import pytest

import flambeau as fl
from flambeau import _C
from flambeau.ops import samples

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import sampled

# Their definitions pass values of any kind to other definitions, which only one language can do at a time.
MIXED = {"nn_upsample", "nn_upsample_nearest", "nn_upsample_bilinear", "inner", "norm_except_dim"}
NAMES = [n for n in sampled.NAMES if sampled.RECORDS[n].kind == "composite" and n not in MIXED]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_native_code_gives_the_results_of_python(name):
    for call in sampled.calls(name, fl.float32)[:3]:
        args, kwargs = samples.plain((list(call.args), call.kwargs))
        expected = sampled.run(sampled.operator(name), call, lambda t: t.clone())
        fl.manual_seed(0)
        found = _C._run_definition(name, *sampled.walk(args, lambda t: t.clone()), **kwargs)
        fl.testing.assert_close(found, expected, equal_nan=True, check_stride=False)
