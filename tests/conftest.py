"""Tests on another device: FLAMBEAU_TEST_DEVICE=cuda makes it the default, so that tests which name no device run there.

Without the variable nothing changes. `make test-cuda` sets it.
"""

import contextlib
import os

import pytest

import flambeau as fl

DEVICE = os.environ.get("FLAMBEAU_TEST_DEVICE", "")
ELSEWHERE = DEVICE not in ("", "cpu")


def pytest_configure(config):
    config.addinivalue_line("markers", "host: is about the CPU alone: skipped where FLAMBEAU_TEST_DEVICE names another")
    if DEVICE:
        fl.set_default_device(DEVICE)
        fl.backends.cudnn.allow_tf32 = False  # results are compared with others to more digits


def pytest_collection_modifyitems(items):
    for item in items if ELSEWHERE else ():
        if item.get_closest_marker("host"):
            item.add_marker(pytest.mark.skip(reason="about the CPU alone"))


def wait():
    """For the default device: what kernels report shows in the test that called them."""
    if DEVICE.startswith("cuda"):
        fl.cuda.synchronize()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    """NumPy's arrays lie in the host's memory: what asks for one of a tensor elsewhere is about the CPU alone, too."""
    try:
        result = yield
    except BaseException as error:
        with contextlib.suppress(Exception):
            wait()
        if ELSEWHERE and isinstance(error, TypeError) and "[numpy] expected a CPU tensor" in str(error):
            pytest.skip("about arrays in the host's memory")
        raise
    wait()
    return result
