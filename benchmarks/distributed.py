"""Two processes of flambeau beside two of PyTorch (gloo): collectives, and a data-parallel training step.

    python benchmarks/distributed.py [--rounds 5] [--only REGEX] [--json FILE]

Both pairs of processes live at the same time and take turns, case by case and round by round, so that noise falls on both; the best
round of each counts in the table. The share of communication that is hidden is taken from a GPT with 100 MB of gradients in buckets
of 25 MB. It is computed from medians over the rounds, and its parts are printed with it:

    1 - (step with DDP - step with DDP whose hook completes at once) / (all_reduces of the same buckets alone)

The two steps do the same but for communication: in both gradients are views of the buckets, so that neither copies to and from them.
(Without views flambeau reduces gradients where they lie, and a hook would bring in copies that the step without one does not have.)
They end with an all_reduce of 4 bytes, so that waiting for the slower rank is in both. The share is not clamped: it is negative where
communication costs the step more than it takes alone. With as many busy ranks as cores that is to be expected, since copies in
shared memory take the time of a core wherever they run. What the reducer hides on a transport that waits is measured in
tests/distributed/programs/ddp_reducer.py. A killed rank is timed from the kill to the error in the other one.
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
FINISHED_HOOK, VIEWS, ALONE = (
    "wide gpt step DDP, views, finished hook", "wide gpt step DDP, views", "wide gpt buckets all_reduce"
)  # fmt: skip
STEPS = ("gpt step alone", "gpt step DDP", "wide gpt step DDP", "wide gpt step DDP, no_sync", FINISHED_HOOK, VIEWS)
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
        self._bucket_sizes: list[int] = []
        self._zeros: list[Any] = []

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
            model: Any = task.model
            if not name.endswith("alone"):
                model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=" views" in name)
            if name == FINISHED_HOOK:
                model.register_comm_hook(None, lambda state, bucket: self._finished(bucket))
            self._steps[name] = self._training(task, model, name.startswith("wide"), name.endswith("no_sync"))
        self._steps[ALONE] = lambda: [self.dist.all_reduce(bucket) for bucket in self._buckets()]

    def _finished(self, bucket: Any) -> Any:
        """A communication hook that leaves the bucket as it is: a future that holds it already."""
        if bucket.index() == 0:
            self._bucket_sizes.clear()  # the first step may have other buckets
        self._bucket_sizes.append(bucket.buffer().numel())
        done = self.torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def _buckets(self) -> list[Any]:
        """Tensors as large as the buckets that the hook got in the last steps."""
        if not self._zeros:
            if not self._bucket_sizes:
                self._steps[FINISHED_HOOK]()
                self._steps[FINISHED_HOOK]()
            self._zeros = [self.torch.zeros(size) for size in self._bucket_sizes]
        return self._zeros

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
        seconds = worker.lose_the_other() if name == "lost rank" else worker.time(name)
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
    cases += [*STEPS, ALONE]
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
        if all(case in cases for case in (FINISHED_HOOK, VIEWS, ALONE)):
            best[library]["hidden share"] = hidden(library, own)
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


def hidden(library: str, rounds: list[dict[str, float]]) -> float:
    """The share of communication that does not lengthen the step, from medians over the rounds; prints its parts."""
    silent, step, alone = (statistics.median(one[case] for one in rounds) for case in (FINISHED_HOOK, VIEWS, ALONE))
    share = 1 - (step - silent) / alone
    parts = (
        f"step {step * 1e3:.1f} ms, without communication {silent * 1e3:.1f} ms, all_reduces alone {alone * 1e3:.1f} ms"
    )
    print(f"{library}: {share:.0%} of communication hidden ({parts}; medians of {len(rounds)} rounds)")
    return share


if __name__ == "__main__":
    sys.exit(main())
