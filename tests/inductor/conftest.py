"""Kernels that tests build go to a folder of their own, shared by the run, and every stage is held to its rules."""

import pytest

import flambeau as fl
from flambeau._inductor import compile_fx, config


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(config, "verify_stages", True)
        yield


@pytest.fixture
def calls_of():
    """calls_of(compiled, *inputs, title="inference"): the operators of the programs with a title that a call makes."""
    return _calls_of


def _calls_of(compiled, *inputs, title="inference"):
    seen = []
    made = compile_fx._program

    def watching(calls, inputs, trace, outputs, printer, name, *rest):
        if name == title:
            seen.extend(call.op._full_name for call in calls)
        return made(calls, inputs, trace, outputs, printer, name, *rest)

    with pytest.MonkeyPatch.context() as patch, fl.no_grad():
        patch.setattr(compile_fx, "_program", watching)
        compiled(*inputs)
    return seen
