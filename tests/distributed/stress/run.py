"""Long tests of distributed training: random schedules of collectives, and processes killed at random.

python tests/distributed/stress/run.py schedules 1000
python tests/distributed/stress/run.py kills 200
python tests/distributed/stress/run.py recovery 20

Prints one line of results, which `--record FILE` also appends to a file.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent)]
from launching import child_environment, free_port, run_ranks  # noqa: E402

RANKS, STEPS = 6, 150


def schedules(count: int) -> tuple[int, int]:
    """Schedules over groups of 3 and 4 processes that agreed with the reference, of how many."""
    passed, portion = 0, 50
    for first in range(0, count, portion):
        here = min(portion, count - first)
        ranks = 3 + (first // portion) % 2
        program = HERE.parent / "programs" / "random_schedules.py"
        ended = run_ranks(program, ranks, 600, SEED=str(1000 + first), SCHEDULES=str(here), STEPS="40")
        if all(one.returncode == 0 for one in ended):
            passed += here
        else:
            print("\n".join(one.stdout[-2000:] for one in ended), file=sys.stderr)
    return passed, count


def start(ranks: int, steps: int) -> list[subprocess.Popen[str]]:
    shared = child_environment() | {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    return [
        subprocess.Popen(
            [sys.executable, str(HERE / "training.py"), str(steps)], env=shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def result_of(process: subprocess.Popen[str]) -> tuple[float | None, str]:
    try:
        output = process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0] + "\n[killed: it hung]"
    ended = re.search(r"^ended (\S+)$", output, re.M)
    return (float(ended[1]) if ended else None), output


def kills(count: int, seed: int) -> tuple[int, int]:
    """Kills after which all survivors ended with the result of training without kills, of how many."""
    draws = random.Random(seed)
    (reference,) = start(1, STEPS)
    expected, _ = result_of(reference)
    assert expected is not None
    survived = done = 0
    while done < count:
        processes = start(RANKS, STEPS)
        for process in processes:
            process.stdout.readline()  # type: ignore[union-attr]
        victims = draws.sample(range(RANKS), min(RANKS - 1, count - done))
        for victim in victims:
            time.sleep(draws.random() * 0.15)
            processes[victim].send_signal(signal.SIGKILL)
        results = [result_of(process) for rank, process in enumerate(processes) if rank not in victims]
        good = all(value is not None and abs(value - expected) < 1e-3 for value, _ in results)
        for rank in victims:
            processes[rank].wait()
        done += len(victims)
        survived += len(victims) if good else 0
        if not good:
            print(f"expected {expected}\n" + "\n".join(output[-1500:] for _, output in results), file=sys.stderr)
    return survived, done


def recovery(count: int, seed: int) -> tuple[int, int, str]:
    """Tries in which the survivors of a killed process notice it within 2 s, train again within 10 s and end with the right result;
    and the longest times."""
    draws = random.Random(seed)
    (reference,) = start(1, STEPS)
    expected, _ = result_of(reference)
    assert expected is not None
    good, slowest = 0, {"noticed": 0.0, "again": 0.0}
    for _ in range(count):
        processes = start(3, STEPS)
        for process in processes:
            process.stdout.readline()  # type: ignore[union-attr]
        time.sleep(draws.random() * 0.2)
        victim = draws.randrange(3)
        killed = time.monotonic()
        processes[victim].send_signal(signal.SIGKILL)
        results = [result_of(process) for rank, process in enumerate(processes) if rank != victim]
        processes[victim].wait()
        right = all(value is not None and abs(value - expected) < 1e-3 for value, _ in results)
        for name, most in (("noticed", 2.0), ("again", 10.0)):
            times = [float(t) - killed for _, output in results for t in re.findall(rf"^{name} (\S+)$", output, re.M)]
            right = right and len(times) >= 2 and max(times) <= most
            slowest[name] = max(slowest[name], *times) if times else float("inf")
        good += right
    return good, count, f", noticed within {slowest['noticed']:.2f} s, training within {slowest['again']:.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("schedules", "kills", "recovery"))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record")
    options = parser.parse_args()
    begin = time.monotonic()
    details = ""
    if options.kind == "recovery":
        passed, total, details = recovery(options.count, options.seed)
    else:
        passed, total = schedules(options.count) if options.kind == "schedules" else kills(options.count, options.seed)
    line = f"{datetime.date.today()} {options.kind}: {passed} of {total} in {time.monotonic() - begin:.0f} s{details}"
    print(line)
    if options.record:
        with open(options.record, "a") as file:
            file.write(line + "\n")
    return 0 if passed == total else 1


if __name__ == "__main__":
    sys.exit(main())
