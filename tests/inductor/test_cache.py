"""The kernels on disk: shared by processes, checked when read, built again when spoilt."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from flambeau._inductor import build

ROOT = pathlib.Path(build.__file__).resolve().parents[2]  # of the package under test
PROGRAM = """
import flambeau as fl
from flambeau._inductor.compile_fx import compile_tensor_function
import flambeau.nn.functional as F
x, w = fl.arange(40.).view(5, 8) / 7, fl.arange(8.) / 3
def f(x, w): return [F.gelu(x * w + {0}).sum(0), F.softmax(x, -1) * {0}]
for a, b in zip(compile_tensor_function(f, 2)(x, w), f(x, w)):
    fl.testing.assert_close(a, b)
print("right")
"""


def start(cache, number=3):
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM.format(number)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process):
    out, err = process.communicate(timeout=1200)
    assert out == "right\n", err


def test_a_second_process_builds_nothing(tmp_path):
    result(start(tmp_path))
    before = {f: f.stat().st_ino for f in (tmp_path / "kernels").glob("*.so")}
    result(start(tmp_path))
    assert before == {f: f.stat().st_ino for f in (tmp_path / "kernels").glob("*.so")}


@pytest.mark.parametrize(
    "spoil", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:500] + b"\xff" * 64 + b[564:]]
)
def test_spoilt_objects_are_built_again(tmp_path, spoil):
    result(start(tmp_path))
    for file in (tmp_path / "kernels").glob("*.so"):
        file.write_bytes(spoil(file.read_bytes()))
    for file in (tmp_path / "kernels").glob("k_*"):
        file.write_text(spoil(file.read_bytes()).decode(errors="replace"))
    result(start(tmp_path))


def test_processes_killed_while_building_leave_a_usable_cache(tmp_path):
    """Eight start on an empty cache and every other one is killed at some moment: whichever it is, those that are left
    are right, what is on disk is whole, and nobody is kept waiting."""
    moments = random.Random(0)
    running = [start(tmp_path) for _ in range(8)]
    for process in running[::2]:
        time.sleep(moments.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    for process in running[1::2]:
        result(process)
    found = build.cached(tmp_path / "kernels")
    assert found and all(build.intact(entry) for entry in found)
    before = {entry.path: entry.path.stat().st_ino for entry in found}
    result(start(tmp_path))
    assert before == {entry.path: entry.path.stat().st_ino for entry in build.cached(tmp_path / "kernels")}


def test_what_killed_processes_left_is_swept_up(tmp_path):
    old, new = tmp_path / "tmpold", tmp_path / "tmpnew"
    for folder in (old, new):
        folder.mkdir()
        (folder / "kernels.cpp").touch()
    (tmp_path / "tmpfile").touch()
    for path in (old, tmp_path / "tmpfile"):
        os.utime(path, (1, 1))
    build.prune(tmp_path, build.MOST_BYTES)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tmpnew"]


def test_an_entry_that_names_another_object_is_not_believed(tmp_path):
    result(start(tmp_path))
    result(start(tmp_path, 4.5))
    objects = sorted((tmp_path / "kernels").glob("*.so"))
    for entry in (tmp_path / "kernels").glob("k_*"):
        file, digest = entry.read_text().split()
        other = next(o.name for o in objects if o.name != file)
        entry.write_text(f"{other} {digest}")
    result(start(tmp_path))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
def test_a_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "mine"))
    mine = build.cache_dir()
    assert mine == tmp_path / "mine" / "kernels" and mine.stat().st_mode & 0o077 == 0
    mine.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="other users can write it"):
        assert build.cache_dir() != mine
    if os.getuid() == 0:
        mine.chmod(0o700)
        os.chown(mine, 12345, 12345)
        with pytest.warns(RuntimeWarning, match="belongs to the user"):
            assert build.cache_dir() != mine


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
def test_a_folder_that_others_can_replace_is_not_used(tmp_path, monkeypatch):
    base = tmp_path / "open to all"
    base.mkdir()
    base.chmod(0o777)
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(base))
    with pytest.warns(RuntimeWarning, match="could put another folder there"):
        assert build.cache_dir() != base / "kernels"
    base.chmod(0o1777)  # as /tmp: nobody removes what belongs to others
    assert build.cache_dir() == base / "kernels"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_in_the_cache_is_not_waited_for(tmp_path):
    result(start(tmp_path))
    for path in (tmp_path / "kernels").iterdir():
        path.unlink()
        os.mkfifo(path)
    result(start(tmp_path))
