"""Packages for a GPU on machines without one: an accelerator of the host's memory writes down what is launched."""

import os
import pathlib
import subprocess
import sys

import pytest

import flambeau as fl
from flambeau._inductor import build, triton_build

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(fl.__file__).parent
SOURCES = HERE.parents[1] / "csrc"
pytestmark = [
    pytest.mark.skipif(build.compiler() is None or not SOURCES.is_dir(), reason="it is built from the sources"),
    pytest.mark.skipif(not triton_build.available(), reason="kernels for GPUs are compiled by Triton"),
]


def test_packages_launch_what_compile_launches(tmp_path):
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{SOURCES}", f"-I{PACKAGE / 'include'}"]
    library, driver = tmp_path / "libhost.so", tmp_path / "libcuda.so.1"
    link = [str(HERE / "host_accelerator.cpp"), f"-L{PACKAGE}", "-lflambeau", f"-Wl,-rpath,{PACKAGE}"]
    subprocess.run([build.compiler(), *flags, *link, "-o", library], check=True)
    subprocess.run([build.compiler(), *flags, "-x", "c++", "/dev/null", "-o", driver], check=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        "FLAMBEAU_CUDA_LIB": str(library),
        "LAUNCHES": str(tmp_path / "launches"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, HERE / "accelerator_package.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("refused: [package] expected x on cuda:0, got cpu") == 2
