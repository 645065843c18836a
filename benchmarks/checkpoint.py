"""A resharded load beside the time of the disk: a checkpoint of four ranks, read by three.

    python benchmarks/checkpoint.py [--gigabytes 1] [--rounds 3] [--folder DIR] [--json FILE]

Four processes save tensors divided by rows. Three processes then load them, divided by rows over three. The disk's time is what the
same three processes take to read a third of the files' bytes each, with plain reads into memory they have touched before. The page
cache is emptied of the files before each measurement (`posix_fadvise`); with `--warm` it is not. The target is 1.5.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
TENSORS, TARGET = 8, 1.5


def start(ranks: int, role: str, folder: str, size: int) -> Any:
    import flambeau as fl
    import flambeau.distributed as dist
    from flambeau.distributed.device_mesh import init_device_mesh
    from flambeau.distributed.tensor import Shard, zeros

    fl.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    rows = size // TENSORS // (1024 * 4) // 12 * 12
    return dist, {f"weight{i}": zeros(rows, 1024, device_mesh=mesh, placements=[Shard(0)]) for i in range(TENSORS)}


def save(folder: str, size: int) -> None:
    import flambeau.distributed.checkpoint as dcp

    dist, state = start(4, "save", folder, size)
    for value in state.values():
        value._local_tensor.fill_(dist.get_rank() + 1)
    dcp.save(state, checkpoint_id=folder)
    dist.destroy_process_group()


def measure(folder: str, size: int, rounds: int, warm: bool) -> None:
    import flambeau.distributed.checkpoint as dcp

    dist, state = start(3, "load", folder, size)
    files = sorted(pathlib.Path(folder).glob("*.distcp"))
    share = sum(file.stat().st_size for file in files) // 3
    memory = bytearray(share)
    for _ in range(rounds):
        for name, action in (
            ("disk", lambda: read(files, share, memory)),
            ("load", lambda: dcp.load(state, checkpoint_id=folder)),
        ):
            if not warm:
                forget(files)
            dist.barrier()
            begun = time.perf_counter()
            action()
            dist.barrier()
            if dist.get_rank() == 0:
                print(json.dumps({name: time.perf_counter() - begun}), flush=True)
    dist.destroy_process_group()


def forget(files: list[pathlib.Path]) -> None:
    for file in files:
        with open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(files: list[pathlib.Path], share: int, memory: bytearray) -> None:
    """This rank's third of all bytes."""
    position, target, first = 0, memoryview(memory), int(os.environ["RANK"]) * share
    done = 0
    for file in files:
        length = file.stat().st_size
        begin, end = max(first - position, 0), min(first + share - position, length)
        if begin < end:
            with open(file, "rb", buffering=0) as opened:
                opened.seek(begin)
                while begin < end:
                    count = opened.readinto(target[done : done + end - begin])
                    begin, done = begin + count, done + count
        position += length


def launch(ranks: int, arguments: list[str]) -> str:
    from tests.launching import free_port

    shared = os.environ | {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, __file__, *arguments]
    processes = [
        subprocess.Popen(command, env=shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("a process of the benchmark failed")
    return outputs[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--role")
    options = parser.parse_args()
    size = int(options.gigabytes * 2**30)
    if options.role == "save":
        save(options.folder, size)
        return 0
    if options.role == "load":
        measure(options.folder, size, options.rounds, options.warm)
        return 0
    folder = options.folder or tempfile.mkdtemp()
    arguments = ["--folder", folder, "--gigabytes", str(options.gigabytes), "--rounds", str(options.rounds)]
    try:
        launch(4, [*arguments, "--role", "save"])
        lines = launch(3, [*arguments, "--role", "load", *(["--warm"] if options.warm else [])]).splitlines()
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    times: dict[str, list[float]] = {"disk": [], "load": []}
    for line in lines:
        for name, seconds in json.loads(line).items():
            times[name].append(seconds)
    best = {name: min(values) for name, values in times.items()}
    ratio = best["load"] / best["disk"]
    print(
        f"disk {best['disk']:.3f} s   resharded load {best['load']:.3f} s   {ratio:.2f} of the disk's time, at most {TARGET}"
    )
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({**best, "ratio": ratio}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
