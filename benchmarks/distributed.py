"""Two processes of flambeau beside two of PyTorch (gloo): collectives, and a data-parallel training step.

    python benchmarks/distributed.py [--rounds 5] [--only REGEX] [--json FILE]

Both pairs of processes live at the same time and take turns, case by case and round by round, so that noise falls on both; the best
round of each counts. The share of communication that is hidden is taken from a GPT with 100 MB of gradients (buckets of 25 MB), as
the median over the rounds of

    1 - (time from the end of backward's computation to the last reduced gradient) / (time of the same all_reduces alone)

The first time is the difference of `backward_comm_time_end` and `backward_compute_time_end` in `_get_ddp_logging_data()`.
What communication takes from computation is another matter: with as many busy ranks as cores, copies in shared memory take the
time of a core wherever they run, so a step with DDP is longer than one in no_sync by about the time of the all_reduces.
Both steps end with an all_reduce of 4 bytes, so that waiting for the slower rank is in neither. The step whose
communication hook returns the bucket at once shows what copying to and from buckets costs. What the reducer hides on a
transport that waits is measured in tests/distributed/programs/ddp_reducer.py. A killed rank is timed from the kill to the
error in the other one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
SIZES = {"4 B": 1, "1 KB": 256, "64 KB": 16_384, "1 MB": 262_144, "64 MB": 16_777_216}
STEPS = (
    "gpt step alone", "gpt step DDP", "wide gpt step DDP", "wide gpt step DDP, no communication",
    "wide gpt step DDP, no_sync",
)  # fmt: skip
EXPOSED = "wide gpt gradients after backward"
TARGETS = {"all_reduce 4 B": 3e-6, "all_reduce 64 MB": 12e-3}


class Worker:
    """One rank: runs the cases that its parent names on standard input."""

    def __init__(self, library: str, rank: int, place: str) -> None:
        if library == "flambeau":
            import flambeau.as_torch  # noqa: F401
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank = torch, dist, rank
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
        self.tensors = {name: torch.ones(count) for name, count in SIZES.items()}
        self._steps: dict[str, Callable[[], Any]] = {}

    def case(self, name: str) -> Callable[[], Any]:
        if name.startswith("all_reduce "):
            tensor = self.tensors[name.removeprefix("all_reduce ")]
            tensor.fill_(0)
            return lambda: self.dist.all_reduce(tensor)
        if not self._steps:
            self._make_steps()
        return self._steps[name]

    def _make_steps(self) -> None:
        import models

        torch = self.torch
        for name in STEPS:
            torch.manual_seed(0)
            task = models.make(torch, name.partition(" step")[0])
            model: Any = task.model if name.endswith("alone") else torch.nn.parallel.DistributedDataParallel(task.model)
            if name.endswith("no communication"):
                model.register_comm_hook(None, lambda state, bucket: self._finished(bucket.buffer()))
            if name == "wide gpt step DDP":
                self._parallel = model
            self._steps[name] = self._training(task, model, name.startswith("wide"), name.endswith("no_sync"))
        flat = torch.zeros(sum(p.numel() for p in task.model.parameters()))
        buckets = flat.split(25 * 2**20 // 4)
        self._steps["wide gpt gradients all_reduce"] = lambda: [self.dist.all_reduce(bucket) for bucket in buckets]

    def _finished(self, value: Any) -> Any:
        """A future that holds the value already."""
        done = self.torch.futures.Future()
        done.set_result(value)
        return done

    def _training(self, task: Any, model: Any, meets: bool, local: bool) -> Callable[[], Any]:
        """A step, without averaging gradients where it is local; where the ranks meet, it ends with waiting for each other."""
        optimizer = self.torch.optim.SGD(model.parameters(), lr=0.0)
        x, y = task.batch(0)
        flag = self.torch.zeros(1)

        def step() -> None:
            optimizer.zero_grad()
            with model.no_sync() if local else contextlib.nullcontext():
                task.loss(model(x), y).backward()
            optimizer.step()
            if meets:
                self.dist.all_reduce(flag)

        return step

    def time(self, name: str) -> float:
        call = self.case(name)
        for _ in range(2):
            call()
        self.dist.barrier()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        # Both ranks have to repeat equally often.
        count = self.torch.tensor([max(1, min(20_000, int(0.15 / max(once, 1e-7))))], dtype=self.torch.int64)
        self.dist.broadcast(count, 0)
        start = time.perf_counter()
        for _ in range(int(count)):
            call()
        return (time.perf_counter() - start) / int(count)

    def exposed(self) -> float:
        """How long a step waits for communication after backward has computed everything."""
        step, seconds = self.case("wide gpt step DDP"), []
        for _ in range(8):
            step()
            facts = self._parallel._get_ddp_logging_data()
            seconds.append((facts["backward_comm_time_end"] - facts["backward_compute_time_end"]) / 1e9)
        return statistics.median(seconds)

    def lose_the_other(self) -> float:
        """Rank 1 ends itself; rank 0 measures how long it takes to know."""
        box: list[Any] = [None]
        self.dist.barrier()
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.perf_counter()
        try:
            while time.perf_counter() < start + 60:
                self.dist.all_reduce(self.tensors["4 B"])
        except RuntimeError:
            box[0] = time.perf_counter() - start
        return float(box[0] or 60.0)


def serve(library: str, rank: int, place: str) -> None:
    worker = Worker(library, rank, place)
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        special = {"lost rank": worker.lose_the_other, EXPOSED: worker.exposed}.get(name)
        seconds = special() if special else worker.time(name)
        print(seconds, flush=True)
        if name == "lost rank":
            os._exit(0)


class Pair:
    def __init__(self, library: str) -> None:
        place = tempfile.mktemp()
        variables = {k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_AS_TORCH", "PYTHONPATH")}
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--serve", library, str(rank), place], env=variables | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for rank in (0, 1)
        ]  # fmt: skip
        for process in self.processes:
            self._answer(process, "ready")

    @staticmethod
    def _answer(process: Any, what: str | None = None) -> str:
        while line := process.stdout.readline():
            text = line.strip()
            if (what is None and re.fullmatch(r"[\d.e-]+", text)) or text == what:
                return str(text)
        raise RuntimeError("a process of the benchmark ended early")

    def time(self, name: str) -> float:
        for process in self.processes:
            process.stdin.write(name + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        answers = self.processes[:1] if name == "lost rank" else self.processes
        return max(float(self._answer(process)) for process in answers)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    cases = [f"all_reduce {size}" for size in SIZES]
    cases += [*STEPS, "wide gpt gradients all_reduce", EXPOSED]
    cases = [case for case in cases if re.search(options.only, case)]
    pairs = {library: Pair(library) for library in ("flambeau", "torch")}
    rounds: dict[str, list[dict[str, float]]] = {library: [] for library in pairs}
    for _ in range(options.rounds):
        for library in pairs:
            rounds[library].append({})
        for case in cases:
            for library, pair in pairs.items():
                rounds[library][-1][case] = pair.time(case)
    best = {library: {case: min(one[case] for one in own) for case in cases} for library, own in rounds.items()}
    if re.search(options.only, "lost rank"):
        best["flambeau"]["lost rank"] = pairs["flambeau"].time("lost rank")
    for pair in pairs.values():
        pair.close()
    report(best)
    for library, own in rounds.items():
        if (share := hidden(own)) is not None:
            print(f"{library}: {share:.0%} of communication hidden")
            best[library]["hidden share"] = share
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(best, indent=1))
    return 0


def report(best: dict[str, dict[str, float]]) -> None:
    print(f"{'case':<38}{'flambeau':>12}{'PyTorch':>12}{'ratio':>8}")
    for case, seconds in best["flambeau"].items():
        other = best["torch"].get(case)
        ratio = f"{seconds / other:8.2f}" if other else ""
        theirs = f"{other * 1e6:>10.1f} µs" if other else ""
        target = f"   at most {TARGETS[case] * 1e6:.0f} µs" if case in TARGETS else ""
        print(f"{case:<38}{seconds * 1e6:>9.1f} µs{theirs:>13}{ratio}{target}")


def hidden(rounds: list[dict[str, float]]) -> float | None:
    """The share of communication that runs behind backward, by the median round; None where a case was left out."""
    needed = (EXPOSED, "wide gpt gradients all_reduce")
    if not rounds or any(case not in rounds[0] for case in needed):
        return None
    exposed = statistics.median(one[needed[0]] / one[needed[1]] for one in rounds)
    return 1 - min(1.0, max(0.0, exposed))


if __name__ == "__main__":
    sys.exit(main())
