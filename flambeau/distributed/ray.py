"""`run`: a function on the workers of a Ray cluster, each with a rank of one group of processes.

    def train(folder):
        dist.init_process_group("gloo")
        ...

    results = flambeau.distributed.ray.run(train, "checkpoints", workers=4, resources={"CPU": 2})

Each rank is an actor in a bundle of one placement group. With `elastic=(min, max)` a lost worker does not end the job: the group is formed
anew of as many workers as the cluster has room for, and the function is called again; it goes on from its checkpoint. Ray is imported
when `run` is called (`pip install ray`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

__all__ = ["WorkersLost", "run"]


class WorkersLost(RuntimeError):
    """Workers were lost, and no attempt is left."""


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("[distributed.ray] expected the package ray, got none: pip install ray") from error
    return ray


class _Worker:
    """One rank. An actor, so that what the function leaves in memory lives as long as the job."""

    def address(self) -> tuple[str, int]:
        """This worker's host, and a port that is free there."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]  # type: ignore[no-untyped-call]

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], environment: dict[str, str]) -> Any:
        os.environ.update(environment)
        return function(*args)


def _placement(ray: Any, count: int, resources: dict[str, float], strategy: str, seconds: float) -> Any:
    """A placement group of so many bundles; None when the cluster has no room in time."""
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group([dict(resources) for _ in range(count)], strategy=strategy)
    if group.wait(seconds):
        return group
    remove_placement_group(group)
    return None


def _start(ray: Any, least: int, most: int, resources: dict[str, float], strategy: str, seconds: float) -> Any:
    """A placement group of as many workers as there is room for."""
    for count in range(most, least - 1, -1):
        group = _placement(ray, count, resources, strategy, seconds if count == least else min(seconds, 2.0))
        if group is not None:
            return group, count
    raise RuntimeError(
        f"[distributed.ray] expected room for {least} workers with {resources}, got a cluster with "
        f"{ray.available_resources()}"
    )


def _attempt(
    ray: Any, placement: Any, count: int, resources: dict[str, float], number: int, call: tuple[Any, tuple[Any, ...]]
) -> list[Any]:
    """Calls the function on every worker once; raises what the first failing one raised."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    actors = [
        ray.remote(_Worker)
        .options(
            num_cpus=resources.get("CPU", 0), num_gpus=resources.get("GPU", 0), resources=others,
            scheduling_strategy=PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=rank),
        )
        .remote()
        for rank in range(count)
    ]  # fmt: skip
    try:
        host, port = ray.get(actors[0].address.remote())
        nodes = ray.get([actor.address.remote() for actor in actors])
        hosts = [node for node, _ in nodes]
        pending = []
        for rank, actor in enumerate(actors):
            environment = {
                "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": host, "MASTER_PORT": str(port),
                "LOCAL_RANK": str(hosts[:rank].count(hosts[rank])), "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
                "FLAMBEAU_ROUND": str(number),
            }  # fmt: skip
            pending.append(actor.run.remote(*call, environment))
        waiting = list(pending)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            ray.get(done[0])  # a failure ends the attempt at once, without waiting for those who wait for the lost one
        return list(ray.get(pending))
    finally:
        for actor in actors:
            ray.kill(actor)


def run(
    fn: Callable[..., Any],
    *args: Any,
    workers: int | None = None,
    resources: dict[str, float] | None = None,
    elastic: tuple[int, int] | None = None,
    max_restarts: int = 3,
    strategy: str = "PACK",
    timeout: float = 60.0,
) -> list[Any]:
    """What `fn(*args)` returns on each of the workers, by rank. In it, `init_process_group` finds the others."""
    ray = _ray()
    if not ray.is_initialized():
        ray.init()
    if (workers is None) == (elastic is None):
        raise ValueError(f"[distributed.ray] expected workers or elastic, got workers={workers} and elastic={elastic}")
    least, most = elastic if elastic is not None else (workers, workers)
    if not 1 <= least <= most:  # type: ignore[operator]
        raise ValueError(f"[distributed.ray] expected 1 <= least <= most workers, got {least} and {most}")
    from ray.exceptions import RayActorError, RayTaskError
    from ray.util.placement_group import remove_placement_group

    needs = dict(resources or {"CPU": 1})
    restarts = max_restarts if elastic is not None else 0
    for number in range(restarts + 1):
        placement, count = _start(ray, least, most, needs, strategy, timeout)  # type: ignore[arg-type]
        try:
            return _attempt(ray, placement, count, needs, number, (fn, args))
        except (RayActorError, RayTaskError) as error:
            lost = isinstance(error, RayActorError) or _is_lost_peer(error)
            if number == restarts or not lost:
                raise (WorkersLost(str(error)) if lost else error) from error
        finally:
            remove_placement_group(placement)
    raise AssertionError("unreachable")


def _is_lost_peer(error: Any) -> bool:
    """Whether a function failed because another worker was lost, and not by itself."""
    from flambeau.distributed import DistError

    return isinstance(getattr(error, "cause", None), DistError)
