"""Damaged DEFLATE streams, under AddressSanitizer and UBSan where the compiler has them."""

import pathlib
import random
import shutil
import subprocess
import zlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [ROOT / name for name in ("tests/native/inflate_fuzz.cpp", "csrc/core/inflate.cpp", "csrc/core/dtype.cpp")]


def streams():
    """Stored blocks, fixed codes and codes of their own; long matches and none."""
    source = random.Random(1)
    text = (ROOT / "README.md").read_bytes()
    noise = source.randbytes(5000)
    few = bytes(source.choices(range(4), k=30000))
    for data, level, strategy in (
        (b"", 9, 0), (b"a" * 100_000, 9, 0), (noise, 0, 0), (noise, 9, 0), (text, 9, 0), (text, 1, 0), (text, 9, zlib.Z_FIXED), (few, 6, 2),
    ):  # fmt: skip
        compressor = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
        yield b"%08d" % len(data) + compressor.compress(data) + compressor.flush()


def test_damaged_streams_inflate_or_are_refused(tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("this test needs a C++ compiler")
    files = []
    for k, stream in enumerate(streams()):
        files.append(tmp_path / f"stream{k}")
        files[-1].write_bytes(stream)
    program = tmp_path / "fuzz"
    command = [compiler, "-std=c++17", "-O1", "-g", "-w", f"-I{ROOT / 'csrc'}", *map(str, SOURCES), "-o", str(program)]
    if subprocess.run([*command, "-fsanitize=address,undefined"], capture_output=True).returncode:
        subprocess.run(command, check=True)
    done = subprocess.run([str(program), "3000", "1", *map(str, files)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    inflated, refused = (int(part.split()[0]) for part in done.stdout.split(":")[1].split(","))
    assert inflated > 300 and refused > 300
