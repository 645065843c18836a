"""Starts a program in several processes and collects how they ended. `FLAMBEAU_TEST_ORACLE=1` runs it with PyTorch instead."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import time

from flambeau._compat.alias import environment

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def child_environment() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name != "FLAMBEAU_AS_TORCH"}
    if os.environ.get("FLAMBEAU_TEST_ORACLE"):
        plain.pop("PYTHONPATH", None)
        return plain | {"OMP_NUM_THREADS": "1"}
    plain["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), plain.get("PYTHONPATH", ""))))
    return plain | environment(plain) | {"OMP_NUM_THREADS": "1"}


def run_ranks(
    program: pathlib.Path, ranks: int, seconds: float = 120, **variables: str
) -> list[subprocess.CompletedProcess]:
    """Runs the program once for each rank, in the environment that a launcher would set."""
    shared = child_environment() | {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()), **variables,
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(program)], env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=program.parent,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    until = time.monotonic() + seconds
    ended = []
    for process in processes:
        try:
            output, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + f"\n[killed after {seconds} s]"
        ended.append(subprocess.CompletedProcess(program, process.returncode, output))
    return ended
