"""Every example runs: in a process of its own, with --quick, as a newcomer would start it."""

import os
import pathlib
import subprocess
import sys
import zlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULES = {"curves.py"}  # imported by examples
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name not in MODULES)


def run(name, *arguments, folder):
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "char_gpt.py"])
def test_example_runs(name, tmp_path):
    assert run(name, "--quick", folder=tmp_path)
    assert not list(tmp_path.iterdir()), "an example leaves no files behind"


def test_character_gpt_draws_its_curve_and_writes(tmp_path):
    printed = run("char_gpt.py", "--quick", "--picture", "curve.png", folder=tmp_path)
    assert "tokens/s" in printed and "compiled / eager" in printed and "When I " in printed
    png = (tmp_path / "curve.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.endswith(b"IEND" + zlib.crc32(b"IEND").to_bytes(4, "big"))
    size = int.from_bytes(png[33:37], "big")
    assert len(zlib.decompress(png[41 : 41 + size])) == 360 * (1 + 3 * 640)
