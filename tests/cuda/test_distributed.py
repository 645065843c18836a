"""Groups of processes with CUDA tensors: NCCL with one process, gloo with two on one GPU."""

import pathlib
import sys

import pytest

from flambeau.distributed import is_nccl_available

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import run_ranks

FOLDER = pathlib.Path(__file__).parent


def passes(program, ranks):
    ended = run_ranks(FOLDER / program, ranks)
    assert all(one.returncode == 0 and "through" in one.stdout for one in ended), "\n".join(one.stdout for one in ended)


@pytest.mark.skipif(not is_nccl_available(), reason="needs libnccl.so.2 (nvidia-nccl-cu13)")
def test_nccl_with_one_process():
    passes("distributed_nccl.py", 1)


def test_gloo_with_two_processes_on_one_gpu():
    passes("distributed_gloo.py", 2)
