"""The launcher: `python -m flambeau.distributed.run [options] program.py [its arguments]`, with torchrun's options.

    python -m flambeau.distributed.run --standalone --nproc-per-node 4 train.py
    python -m flambeau.distributed.run --nnodes 2:4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint host0:29400 train.py

An option that is not given is read from the environment: `--nproc-per-node` from PET_NPROC_PER_NODE, and so on.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

from flambeau.distributed.elastic._agent import SignalException, fresh_run_id
from flambeau.distributed.elastic.multiprocessing import LogsSpecs, Std
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError
from flambeau.distributed.launcher.api import LaunchConfig, elastic_launch

__all__ = ["config_from_args", "get_args_parser", "main", "parse_args", "run"]


class _FromEnvironment(argparse.Action):
    """An option whose default is the variable PET_NAME."""

    def __init__(self, dest: str, default: Any = None, required: bool = False, **options: Any) -> None:
        default = os.environ.get(f"PET_{dest.upper()}", default)
        super().__init__(dest=dest, default=default, required=False, **options)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, values)


class _FlagFromEnvironment(_FromEnvironment):
    def __init__(self, dest: str, default: Any = False, **options: Any) -> None:
        super().__init__(dest=dest, default=default, nargs=0, **options)
        self.default = str(self.default).lower() in ("1", "true")

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, True)


def _name(*parts: str) -> list[str]:
    """Both spellings of an option."""
    return [f"--{'-'.join(parts)}"] + ([f"--{'_'.join(parts)}"] if len(parts) > 1 else [])


def get_args_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flambeau launch", description="Starts a program in several processes on one or more nodes."
    )

    def option(
        *parts: str, kind: Any = str, default: Any = None, help: str = "", short: str | None = None, **more: Any
    ) -> None:
        names = [short] if short else []
        parser.add_argument(
            *names, *_name(*parts), action=_FromEnvironment, type=kind, default=default, help=help, **more
        )

    def flag(*parts: str, help: str = "", short: str | None = None) -> None:
        parser.add_argument(*([short] if short else []), *_name(*parts), action=_FlagFromEnvironment, help=help)

    option("nnodes", default="1:1", help="number of nodes, or minimum:maximum")
    option("nproc", "per", "node", default="1", help="workers of each node: a number, auto, cpu or gpu")
    option("rdzv", "backend", default="static", help="how nodes meet: static, c10d or file")
    option("rdzv", "endpoint", default="", help="host:port at which they meet, or a file that they share")
    option("rdzv", "id", default="none", help="name of the job")
    option("rdzv", "conf", default="", help="key=value,key=value: timeout, join_timeout, last_call_timeout")
    flag("standalone", help="one node, at a free port")
    option("max", "restarts", kind=int, default=0, help="how often failed workers are started again")
    option("monitor", "interval", kind=float, default=0.1, help="seconds between looks at the workers")
    option(
        "start",
        "method",
        default="spawn",
        help="how processes of functions are started",
        choices=["spawn", "fork", "forkserver"],
    )
    option("event", "log", "handler", default="null")
    option("role", default="default", help="name of the workers' role")
    flag("module", short="-m", help="the program is a module, as with python -m")
    flag("no", "python", help="the program is no Python program")
    flag("run", "path", help="run the program with runpy.run_path")
    option("log", "dir", help="folder for the output of workers")
    option(
        "redirects",
        short="-r",
        default="0",
        help="streams that go to files: 1 output, 2 errors, 3 both; or rank:streams,…",
    )
    option("tee", short="-t", default="0", help="streams that go to files and are shown")
    option("local", "ranks", "filter", default="", help="local ranks whose output is shown")
    option("duplicate", "stdout", "filters", default="")
    option("duplicate", "stderr", "filters", default="")
    option("node", "rank", kind=int, default=0, help="number of this node (static)")
    option("master", "addr", default="127.0.0.1", help="host of node 0 (static)")
    option("master", "port", kind=int, default=None, help="port of node 0 (static; 29500)")
    option("local", "addr")
    option("logs", "specs")
    option("numa", "binding", choices=["node", "socket", "exclusive", "core-complex"])
    option("signals", "to", "handle", default="SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    option("shutdown", "timeout", kind=int, default=30, help="seconds that workers have to end before they are killed")
    flag("virtual", "local", "rank")
    parser.add_argument("training_script", help="program that each worker runs")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: Any) -> argparse.Namespace:
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    parts = [int(part) for part in str(nnodes).split(":")]
    if len(parts) > 2:
        raise RuntimeError(f'[launch] nnodes={nnodes} is not in "MIN:MAX" format')
    return parts[0], parts[-1]


def determine_local_world_size(nproc_per_node: str) -> int:
    import flambeau

    try:
        return int(nproc_per_node)
    except ValueError:
        pass
    cores = os.cpu_count() or 1
    gpus = flambeau.cuda.device_count()
    if nproc_per_node == "cpu":
        return cores
    if nproc_per_node == "gpu":
        if not gpus:
            raise ValueError("[launch] Cuda is not available.")
        return gpus
    if nproc_per_node == "auto":
        return gpus or cores
    raise ValueError(f"[launch] Unsupported nproc_per_node value: {nproc_per_node}")


def _configuration(text: str) -> dict[str, Any]:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {key.strip(): value.strip() for key, _, value in pairs}


def config_from_args(args: Any) -> tuple[LaunchConfig, Callable[..., Any] | str, list[str]]:
    """What to launch with: the configuration, the program, its arguments."""
    least, most = parse_min_max_nnodes(args.nnodes)
    if not 0 < least <= most:
        raise AssertionError(f"[launch] expected 0 < minimum <= maximum of nodes, got {args.nnodes}")
    workers = determine_local_world_size(args.nproc_per_node)
    options = _configuration(args.rdzv_conf)
    if "timeout" not in options and "join_timeout" not in options:
        options["join_timeout"] = 600
    endpoint, run_id = args.rdzv_endpoint, args.rdzv_id
    if args.standalone:
        endpoint, run_id, least, most = "127.0.0.1:0", fresh_run_id(), 1, 1
        options["is_host"] = True
    elif args.rdzv_backend == "static":
        if most == 1 and not endpoint and args.master_port is None:
            endpoint = "127.0.0.1:0"
        elif not endpoint:
            endpoint = f"{args.master_addr}:{args.master_port or 29500}"
        options |= {"rank": args.node_rank, "is_host": args.node_rank == 0}
    elif args.rdzv_backend not in ("c10d", "file"):
        raise ValueError(f"[launch] expected one of the backends static, c10d and file, got {args.rdzv_backend!r}")
    elif "is_host" in options:
        options["is_host"] = str(options["is_host"]).lower() in ("1", "true", "yes")
    chosen = {int(rank) for rank in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    logs = LogsSpecs(args.log_dir or ("/tmp" if args.redirects != "0" or args.tee != "0" else None),
                     Std.from_str(args.redirects), Std.from_str(args.tee), chosen)  # fmt: skip
    config = LaunchConfig(
        least, most, workers, logs, run_id, args.role, endpoint, args.rdzv_backend, options,
        max_restarts=args.max_restarts, monitor_interval=args.monitor_interval, start_method=args.start_method,
        signals_to_handle=args.signals_to_handle, shutdown_timeout=args.shutdown_timeout, local_addr=args.local_addr,
    )  # fmt: skip
    return (config, *_command(args))


def run_script_path(training_script: str, *training_script_args: str) -> None:
    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def _command(args: Any) -> tuple[Callable[..., Any] | str, list[str]]:
    rest = list(args.training_script_args)
    if args.run_path:
        return run_script_path, [args.training_script, *rest]
    if args.no_python:
        if args.module:
            raise ValueError("[launch] Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return args.training_script, rest
    return sys.executable, ["-u", *(["-m"] if args.module else []), args.training_script, *rest]


def run(args: Any) -> None:
    """Starts the workers. In them `import torch` means flambeau: PyTorch's own could not talk to this launcher's store."""
    from flambeau._compat.alias import environment

    os.environ.update(environment(os.environ))
    config, command, arguments = config_from_args(args)
    elastic_launch(config=config, entrypoint=command)(*arguments)


def main(args: Any = None) -> None:
    try:
        run(parse_args(args))
    except ChildFailedError as error:
        kind = type(error)
        print(f"{kind.__module__}.{kind.__qualname__}: {error.format_msg()}", file=sys.stderr)
        sys.exit(1)
    except SignalException as error:
        sys.exit(128 + int(error.sigval))


if __name__ == "__main__":
    main()
