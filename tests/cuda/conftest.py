"""Tests of the CUDA device. All but the compilation of sources need one, and are skipped without."""

import pathlib

import pytest

import flambeau as fl

HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items):
    if fl.cuda.is_available():
        return
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("without_device") is None:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch):
    """What is compared with the CPU is not rounded to TF32."""
    monkeypatch.setattr(fl.backends.cudnn, "allow_tf32", False)


def pytest_configure(config):
    config.addinivalue_line("markers", "without_device: runs on a machine without a CUDA device")
