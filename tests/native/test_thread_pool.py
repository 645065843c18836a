"""The thread pool by itself, under ThreadSanitizer where the compiler has it."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [
    ROOT / "tests/native/thread_pool_stress.cpp", ROOT / "csrc/core/thread_pool.cpp", ROOT / "csrc/core/thread_limits.cpp",
]  # fmt: skip


def test_the_pool_has_no_races(tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("this test needs a C++ compiler")
    program = tmp_path / "stress"
    command = [
        compiler,
        "-std=c++17",
        "-O1",
        "-g",
        "-w",
        f"-I{ROOT / 'csrc'}",
        *map(str, SOURCES),
        "-o",
        str(program),
        "-lpthread",
    ]
    if subprocess.run([*command, "-fsanitize=thread"], capture_output=True).returncode:
        subprocess.run(command, check=True)  # without a sanitizer it still finds deadlocks
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer cannot run on this kernel")
    assert done.returncode == 0, done.stderr[-4000:]
