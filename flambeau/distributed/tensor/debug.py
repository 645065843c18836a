"""Counts of the collectives that distributed tensors run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from flambeau.distributed import _collectives as collectives
from flambeau.distributed.tensor.placement_types import Shard

__all__ = ["CommDebugMode", "visualize_sharding"]


def visualize_sharding(dtensor: Any, header: str = "", use_rich: bool = False) -> None:
    """Prints which part of a tensor of one or two dimensions each process holds; on the first process only."""
    if dtensor.numel() == 0 or dtensor.dim() > 2:
        raise RuntimeError(f"[visualize_sharding] expected a tensor of 1 or 2 dimensions, got {tuple(dtensor.shape)}")
    mesh = dtensor.device_mesh
    if mesh.get_coordinate() is None or any(mesh.get_coordinate()):
        return
    if header:
        print(header)
    for place in itertools.product(*(range(size) for size in mesh.shape)):
        sizes, offsets = _part_at(dtensor.shape, mesh.shape, dtensor.placements, place)
        spans = ", ".join(f"{start}:{start + size}" for size, start in zip(sizes, offsets))
        print(f"{mesh.device_type}:{int(mesh.mesh[place])}  [{spans}]")


def _part_at(shape: Any, mesh_shape: Any, placements: Any, place: Any) -> tuple[list[int], list[int]]:
    """Sizes and offsets of the part of the process at a place of the mesh."""
    sizes, offsets = list(shape), [0] * len(shape)
    for placement, count, index in zip(placements, mesh_shape, place):
        if isinstance(placement, Shard):
            size, start = Shard.local_shard_size_and_offset(sizes[placement.dim], count, index)
            offsets[placement.dim] += min(start, sizes[placement.dim])
            sizes[placement.dim] = size
    return sizes, offsets


class CommDebugMode:
    """A `with` block that counts the collectives inside: those of distributed tensors, functional ones and plain ones.

    They are counted for every module that is active as well, apart for forward and backward.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[str, bool, frozenset[str]]] = []
        self._modules: dict[str, Any] = {}
        self._in_hooks: set[str] = set()

    def __enter__(self) -> CommDebugMode:
        from flambeau.nn.modules.module import register_module_forward_pre_hook
        from flambeau.utils.module_tracker import ModuleTracker

        self._seen, self._modules, self._in_hooks = [], {}, set()
        self._tracker = ModuleTracker().__enter__()
        self._naming = register_module_forward_pre_hook(self._enter_module)
        self._watcher = self._note
        collectives.watchers.append(self._watcher)
        return self

    def __exit__(self, *error: object) -> None:
        collectives.watchers.remove(self._watcher)
        self._naming.remove()
        self._tracker.__exit__(*error)

    def _enter_module(self, module: Any, args: Any) -> None:
        name = self._tracker._name(module)
        self._modules[name] = module
        if module._forward_hooks:  # those of a plan communicate, after the tracker has left the module
            self._in_hooks.add(name)

            def leave(*_: Any) -> None:
                self._in_hooks.discard(name)
                handle.remove()

            handle: Any = module.register_forward_hook(leave)

    def _note(self, operator: str) -> None:
        backward = self._tracker.is_bw
        self._seen.append((operator, backward, frozenset(self._tracker.parents | self._in_hooks)))

    def get_total_counts(self) -> int:
        return len(self._seen)

    def get_comm_counts(self) -> Any:
        return _counted([operator for operator, *_ in self._seen])

    @property
    def comm_counts(self) -> Any:
        return self.get_comm_counts()

    @property
    def comm_module_counts(self) -> dict[str, dict[str, Any]]:
        """For each module that communicated: what in forward, and what in backward."""
        names = sorted({name for *_, names in self._seen for name in names})
        return {
            name: {
                direction: _counted([op for op, bw, names in self._seen if bw == backward and name in names])
                for direction, backward in (("forward", False), ("backward", True))
            }
            for name in names
        }

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """The own parameters of every module that ran."""
        own = {name: dict(module.named_parameters(recurse=False)) for name, module in self._modules.items()}
        return {name: parameters for name, parameters in own.items() if parameters}

    def get_sharding_info(self) -> dict[str, Any]:
        """Placements of the parameters that are distributed."""
        return {
            f"{name}.{key}": parameter.placements
            for name, parameters in self.get_parameter_info().items()
            for key, parameter in parameters.items()
            if hasattr(parameter, "placements")
        }

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """The modules as a tree with their collectives; from level 1 on with types and placements of parameters."""
        counts, sharding = self.comm_module_counts, self.get_sharding_info()
        lines = []
        for name in ("Global", *self._modules):
            depth = 0 if name == "Global" else name.count(".") + 1
            lines.append("    " * depth + name)
            module = self._modules.get(name)
            if noise_level > 0 and module is not None:
                lines.append("    " * depth + f"*module type: {type(module).__module__}.{type(module).__qualname__}")
                placed = [key for key in sharding if key.rpartition(".")[0] == name]
                lines += ["    " * depth + f" *{key.rpartition('.')[2]}: {sharding[key]}" for key in placed]
            for direction, title in (("forward", "FORWARD PASS"), ("backward", "BACKWARD PASS")):
                collectives_here = counts.get(name, {}).get(direction, {})
                if collectives_here:
                    lines.append("    " * depth + f"  {title}")
                    lines += ["    " * (depth + 1) + f"*{op}: {count}" for op, count in collectives_here.items()]
        return "\n".join(lines) + "\n"

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        with open(file_name, "w") as file:
            file.write(self.generate_comm_debug_tracing_table(noise_level))

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """The tree of modules with their parameters and collectives."""
        import json

        counts, sharding = self.comm_module_counts, self.get_sharding_info()

        def entry(name: str) -> dict[str, Any]:
            depth = 0 if name == "Global" else name.count(".") + 1
            inside = [n for n in self._modules if n.count(".") == depth and (not depth or n.startswith(f"{name}."))]
            module, own = self._modules.get(name), counts.get(name, {})
            listed = {d: [[str(op), n] for op, n in own.get(d, {}).items()] for d in ("forward", "backward")}
            return {
                "fqn": name,
                "module_type": "" if module is None else str(type(module))[1:-1],
                "parameters": [
                    [k.rpartition(".")[2], str(p)] for k, p in sharding.items() if k.rpartition(".")[0] == name
                ],
                "children": [entry(child) for child in inside],
                "collectives_forward": listed["forward"],
                "collectives_backward": listed["backward"],
            }

        with open(file_name, "w") as file:
            json.dump(entry("Global"), file, indent=4)


def _counted(operators: list[str]) -> Any:
    """How often each operator occurs among names such as `c10d.broadcast_`."""
    import flambeau
    from flambeau.distributed import _functional_collectives  # noqa: F401

    counts: Any = defaultdict(int)
    for operator in operators:
        namespace, _, name = operator.partition(".")
        counts[getattr(getattr(flambeau.ops, namespace), name)] += 1
    return counts
