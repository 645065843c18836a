"""What is collected, and tests on another device.

Tests that cannot run here are not collected; the header says which and why. `NOT_HERE` lists them.

FLAMBEAU_TEST_DEVICE=cuda makes the device the default, so that tests which name no device run there. Without the
variable nothing changes. `make test-cuda` sets it.
"""

import contextlib
import importlib.util
import os
import pathlib

import pytest

import flambeau as fl

DEVICE = os.environ.get("FLAMBEAU_TEST_DEVICE", "")
ELSEWHERE = DEVICE not in ("", "cpu")
HERE = pathlib.Path(__file__).resolve().parent
# Part of the tests -> whether it can run, and why not.
NOT_HERE = {
    "parity": (False, "comparisons with PyTorch, which `make parity` runs"),
    "cuda": (fl.cuda.is_available(), "no CUDA device; what needs none is run"),
    "inductor/test_triton.py": (importlib.util.find_spec("triton") is not None, "Triton is not installed"),
}


def named(part, config):
    """Whether the command line asks for a part of the tests, or for something in it."""
    arguments = [(config.invocation_params.dir / str(arg).partition("::")[0]).resolve() for arg in config.args]
    return any(path.is_relative_to(HERE / part) for path in arguments)


def pytest_ignore_collect(collection_path, config):
    for part, (runs, _) in NOT_HERE.items():
        if runs or not collection_path.is_relative_to(HERE / part) or named(part, config):
            continue
        needs_no_device = part == "cuda" and (
            collection_path.is_dir() or "without_device" in collection_path.read_text(errors="ignore")
        )
        return None if needs_no_device else True
    return None


def pytest_report_header(config):
    absent = [f"tests/{part} ({why})" for part, (runs, why) in NOT_HERE.items() if not runs and not named(part, config)]
    return f"not run: {'; '.join(absent)}" if absent else None


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
    finally:
        if DEVICE:  # which a test may have changed
            fl.set_default_device(DEVICE)
    wait()
    return result
