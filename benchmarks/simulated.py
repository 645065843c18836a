"""The simulator beside measured steps of data-parallel training at 1 to 4 ranks.

    python benchmarks/simulated.py [--ranks 1 2 3 4] [--json FILE]

At each number of ranks the machine is measured first: operations in a second (a step without communication), latency and bandwidth
(all_reduce of 4 bytes and of 16 MB). The simulator then plays the step with communication, which is measured, too. What is compared is
therefore the schedule: how many bytes are reduced, and how much of that runs behind backward.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
WIDTH, BLOCKS, BATCH, BUCKET = 512, 8, 128, 4 * 2**20


def model(fl: Any) -> Any:
    fl.manual_seed(0)
    nn = fl.nn
    block = [nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(BLOCKS)]
    return nn.Sequential(*block)


def best(call: Callable[[], Any], barrier: Callable[[], Any], count: int = 15) -> float:
    times = []
    for _ in range(count):
        barrier()
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return sorted(times)[count // 3]


def serve() -> None:
    import flambeau as fl
    import flambeau.distributed as dist
    from flambeau.distributed.simulator import Cluster, Plan, profile, simulate
    from flambeau.nn.parallel import DistributedDataParallel

    fl.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    net = DistributedDataParallel(model(fl), bucket_cap_mb=BUCKET / 2**20)
    x = fl.randn(BATCH, WIDTH)

    def step() -> None:
        net.zero_grad()
        net(x).square().mean().backward()

    def without_communication() -> None:
        with net.no_sync():
            step()

    small, large = fl.ones(1), fl.ones(4 * 2**20)
    for call in (step, without_communication):
        call()
    compute = best(without_communication, dist.barrier)
    latency = best(lambda: dist.all_reduce(small), dist.barrier)
    reduction = best(lambda: dist.all_reduce(large), dist.barrier, 7)
    measured = best(step, dist.barrier)
    with fl.device("meta"):
        layers = profile(model(fl), (fl.zeros(BATCH, WIDTH),))
    operations = 3 * sum(layer.operations for layer in layers) / compute
    steps = max(1, 2 * (ranks - 1))
    bandwidth = steps / ranks * 16 * 2**20 / max(reduction - latency, 1e-9) if ranks > 1 else 1e12
    cluster = Cluster(1, ranks, 1e12, operations, bandwidth, bandwidth, latency / steps, latency / steps)
    report = simulate(layers, cluster, Plan(data=ranks, bucket=BUCKET))
    if dist.get_rank() == 0:
        result = {
            "ranks": ranks,
            "compute": compute,
            "measured": measured,
            "simulated": report.step,
            "hidden": report.hidden,
        }
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def measure(ranks: int) -> dict[str, float]:
    from tests.launching import free_port

    shared = os.environ | {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve"], env=shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("a process of the benchmark failed")
    answer: dict[str, float] = json.loads(outputs[0].splitlines()[-1])
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--json")
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    results = [measure(ranks) for ranks in options.ranks]
    print(f"{'ranks':>5}{'compute':>12}{'measured':>12}{'simulated':>12}{'ratio':>8}")
    for one in results:
        times = "".join(f"{one[name] * 1e3:>9.1f} ms" for name in ("compute", "measured", "simulated"))
        print(f"{one['ranks']:>5}{times}{one['simulated'] / one['measured']:>8.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
