"""`flambeau plan model.py`: how to divide a model over GPUs that are not here.

flambeau plan model.py --gpus 64                      the fastest plans for 8 hosts of 8 GPUs
flambeau plan model.py:make --gpus 16 --gpus-per-host 4 --between 25

The file has a function (`make` unless another is named) that returns a model and the inputs of one process's batch. It is called with meta as
the default device, so a model of any size fits. Times are modelled (`flambeau.distributed.simulator`).
"""

from __future__ import annotations

import argparse
import runpy
import sys

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="flambeau plan", description="Propose how to divide a model over many GPUs.")
    parser.add_argument("model", help="file.py or file.py:function; the function returns (model, inputs)")
    parser.add_argument("--gpus", type=int, required=True, help="how many there are")
    parser.add_argument("--gpus-per-host", type=int, default=8)
    parser.add_argument("--memory", type=float, default=139.0, help="of a GPU, in GB")
    parser.add_argument("--tflops", type=float, default=400.0, help="that models reach on a GPU")
    parser.add_argument("--inside", type=float, default=450.0, help="bandwidth of a GPU within a host, in GB/s")
    parser.add_argument("--between", type=float, default=50.0, help="bandwidth of a GPU between hosts, in GB/s")
    options = parser.parse_args(arguments)
    path, _, function = options.model.partition(":")
    per_host = min(options.gpus_per_host, options.gpus)
    if options.gpus % per_host:
        print(f"flambeau plan: expected full hosts of {per_host} GPUs, got {options.gpus}", file=sys.stderr)
        return 2

    import flambeau
    from flambeau.distributed.simulator import Cluster, profile, propose

    factory = runpy.run_path(path).get(function or "make")
    if factory is None:
        print(f"flambeau plan: {path} has no function {function or 'make'!r}", file=sys.stderr)
        return 2
    with flambeau.device("meta"):
        answer = factory()
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], flambeau.nn.Module):
        print(
            f"flambeau plan: expected (model, inputs) from {function or 'make'}(), got {type(answer).__name__}",
            file=sys.stderr,
        )
        return 2
    model, inputs = answer
    layers = profile(model, tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,))
    cluster = Cluster(
        options.gpus // per_host, per_host, options.memory * 1e9, options.tflops * 1e12, options.inside * 1e9, options.between * 1e9
    )  # fmt: skip
    parameters = sum(layer.parameters for layer in layers)
    print(
        f"{len(layers)} blocks, {parameters / 1e9:.2f} GB of parameters, {cluster.hosts} hosts of {cluster.gpus} GPUs; modelled times:"
    )
    print(f"{'step':>10} {'a batch':>10} {'hidden':>7} {'idle':>6} {'memory':>9}  plan")
    for report in propose(layers, cluster):
        fits = "" if report.memory <= cluster.memory else "  (does not fit)"
        print(
            f"{report.step * 1e3:>7.2f} ms {report.step / report.plan.data * 1e3:>7.2f} ms {report.hidden:>6.0%} "
            f"{report.idle / report.step:>6.0%} {report.memory / 1e9:>6.1f} GB  {report.plan}{fits}"
        )
    return 0
