"""Groups over several hosts: processes of this machine that go by the names of two hosts, with Gloo between them."""

import pathlib
import sys

import pytest

import flambeau

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import run_ranks

HERE = pathlib.Path(__file__).parent
GLOO = pathlib.Path(flambeau.__file__).parent / "libflambeau_gloo.so"
AS_HOSTS = """
import os, runpy
os.environ["FLAMBEAU_HOST"] = str(int(os.environ["RANK"]) // 2)
runpy.run_path({program!r}, run_name="__main__")
"""
needs_gloo = pytest.mark.skipif(not GLOO.exists(), reason="built without Gloo (libgloo-dev)")


def check(ended):
    report = "\n".join(f"--- rank {rank}: {one.returncode}\n{one.stdout}" for rank, one in enumerate(ended))
    assert all(one.returncode == 0 for one in ended), report


@needs_gloo
@pytest.mark.parametrize(
    ("name", "ranks"), [("collectives", 3), ("objects_and_groups", 4), ("ddp", 3), ("functional", 4)]
)
def test_programs_run_unchanged(tmp_path, name, ranks):
    wrapper = tmp_path / "program.py"
    wrapper.write_text(AS_HOSTS.format(program=str(HERE / "programs" / f"{name}.py")))
    check(run_ranks(wrapper, ranks))


@needs_gloo
def test_random_schedules_between_hosts(tmp_path):
    wrapper = tmp_path / "program.py"
    wrapper.write_text(AS_HOSTS.format(program=str(HERE / "programs" / "random_schedules.py")))
    check(run_ranks(wrapper, 4, SCHEDULES="2", STEPS="30"))


@needs_gloo
def test_mismatches_and_lost_processes_are_told(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import os, signal
os.environ["FLAMBEAU_HOST"] = os.environ["RANK"]
import datetime
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
try:
    dist.all_reduce(torch.ones(2 + rank))
except RuntimeError as error:
    assert "mismatch" in str(error) and "[2]" in str(error) and "[3]" in str(error), error
else:
    raise SystemExit("expected an error")
t = torch.ones(2)
dist.all_reduce(t)
assert t.tolist() == [2, 2]
if rank == 1:
    os._exit(0)
try:
    dist.all_reduce(t)
except dist.DistBackendError:
    pass
else:
    raise SystemExit("expected an error")
""")
    check(run_ranks(program, 2))


def test_without_gloo_the_package_is_named(monkeypatch):
    from flambeau.distributed import _hosts

    monkeypatch.setattr(_hosts, "_library", None)
    monkeypatch.setattr(_hosts.flambeau, "__file__", "/nowhere/flambeau/__init__.py")
    with pytest.raises(NotImplementedError, match="libgloo-dev"):
        _hosts._gloo()
