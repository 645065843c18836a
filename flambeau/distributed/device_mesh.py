"""`DeviceMesh`: the processes of a world as an array whose dimensions are groups.

mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
mesh["shard"].get_group()        # the four processes that share this one's row
"""

from __future__ import annotations

import math
import threading
from typing import Any

import flambeau
from flambeau import _C
from flambeau.distributed import _groups as groups
from flambeau.distributed._mesh_layout import layout_of, ranks_in
from flambeau.utils._python_dispatch import _disable_current_modes

__all__ = ["DeviceMesh", "init_device_mesh"]


class _MeshEnv(threading.local):
    """The meshes that are current in `with mesh:` blocks of this thread."""

    def __init__(self) -> None:
        self.mesh_stack: list[DeviceMesh] = []

    def get_current_mesh(self) -> DeviceMesh:
        if not self.mesh_stack:
            raise RuntimeError("[DeviceMesh] No device mesh is currently active!")
        return self.mesh_stack[-1]

    def get_root_mesh(self, mesh: DeviceMesh) -> DeviceMesh:
        return mesh._root or mesh


_mesh_resources = _MeshEnv()


def _is_prefix(part: Any, whole: Any) -> bool:
    return tuple(part) == tuple(whole)


def _backends_of(override: Any, ndim: int, names: tuple[str, ...] | None) -> list[tuple[str | None, Any]]:
    """For each dimension a backend and options, from what is given by index or name: a backend, options, or both."""
    chosen: dict[int, tuple[str | None, Any]] = {}
    unknown = []
    for key, value in (override or {}).items():
        dim = names.index(key) if names and key in names else key
        if not isinstance(dim, int) or not 0 <= dim < ndim:
            unknown.append(key)
            continue
        if dim in chosen:
            raise RuntimeError(
                f"[DeviceMesh] Found redundant dim index {dim} and name {(names or ())[dim]} in backend_override"
            )
        chosen[dim] = value if isinstance(value, tuple) else (value, None) if isinstance(value, str) else (None, value)
    if unknown:
        raise RuntimeError(
            f"[DeviceMesh] Found invalid keys in backend_override: got {unknown}, expected one of {list(range(ndim))}"
            + (f" or {list(names)}" if names else "")
        )
    return [chosen.get(dim, (None, None)) for dim in range(ndim)]


class DeviceMesh:
    """An array of global ranks. Slices by name are meshes of the processes that agree with this one elsewhere."""

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        backend_override: Any = None,
        _init_backend: bool = True,
        _rank: int | None = None,
    ) -> None:
        self.device_type = device_type
        ranks = mesh.detach() if isinstance(mesh, flambeau.Tensor) else flambeau.tensor(mesh)
        self.mesh = ranks.to(flambeau.int32).cpu()
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.ndim:
            raise RuntimeError(
                f"[DeviceMesh] expected {self.mesh.ndim} names of dimensions, got {len(self.mesh_dim_names)}: mesh_shape and "
                "mesh_dim_names should have same length!"
            )
        self._root: DeviceMesh | None = None
        self._flattened: dict[str, DeviceMesh] = {}
        self._flattened_dims: dict[str, tuple[int, ...]] = {}
        self._dim_groups: list[Any] = []
        if device_type == "meta":
            self._coordinate: list[int] | None = None
            return
        if not groups.is_initialized() and _rank is None:
            groups.init_process_group()
        size = groups.get_world_size()
        if self.mesh.numel() > size:
            raise RuntimeError(
                f"[DeviceMesh] Mesh should not be bigger than default world size {size}, but found {self.mesh.numel()} ranks!"
            )
        self._locate(groups.get_rank() if _rank is None else _rank)
        if _init_backend:
            self._make_groups(_backends_of(backend_override, self.mesh.ndim, self.mesh_dim_names))

    def _locate(self, rank: int) -> None:
        with (
            _disable_current_modes(),
            _C.DisableTorchFunction(),
        ):  # ranks are numbers, also where tensors are made without data
            places = (self.mesh == rank).nonzero().tolist()
        if len(places) > 1:
            raise RuntimeError(f"[DeviceMesh] expected each rank at most once, got rank {rank} {len(places)} times")
        self._coordinate = places[0] if places else None

    def _make_groups(self, backends: list[tuple[str | None, Any]]) -> None:
        world = groups._get_default_group()
        everything = list(range(world.size()))
        if self.mesh.ndim == 1 and self.mesh.tolist() == everything and backends[0] == (None, None):
            self._dim_groups = [world]
            return
        for dim in range(self.mesh.ndim):
            own = None
            for ranks in self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist():
                name = self.mesh_dim_names[dim] if self.mesh_dim_names else f"dim_{dim}"
                backend, options = backends[dim]
                group = groups.new_group(
                    ranks, backend=backend, pg_options=options, group_desc=f"mesh_{name}", sort_ranks=False
                )
                if world.rank() in ranks:
                    own = group
            self._dim_groups.append(own)

    # ------------------------------------------------------------------------------------ questions

    @property
    def ndim(self) -> int:
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        return self.mesh.numel() if mesh_dim is None else self.mesh.shape[mesh_dim]

    def get_rank(self) -> int:
        return groups.get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this process is in the array; None when it is not in it."""
        return tuple(self._coordinate) if self._coordinate is not None else None

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise RuntimeError(
                    f"[DeviceMesh] Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be "
                    "specified when device_mesh.ndim > 1."
                )
            return 0
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"[DeviceMesh] expected one of the dimensions {self.mesh_dim_names}, got {mesh_dim!r}")
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        dim = self._dim(mesh_dim)
        if self._coordinate is None:
            return -1
        return self._coordinate[dim]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        root = self._root or self
        if isinstance(mesh_dim, str) and mesh_dim in root._flattened and mesh_dim not in (self.mesh_dim_names or ()):
            return root._flattened[mesh_dim].get_group()
        dim = self._dim(mesh_dim)
        if not self._dim_groups:
            self._dim_groups = self._existing_groups()
        return self._dim_groups[dim]

    def _existing_groups(self) -> list[Any]:
        """The groups of a mesh that came without them, from a file for instance: those that this process is in already."""
        existing = []
        for dim in range(self.ndim):
            index = tuple(slice(None) if d == dim else at for d, at in enumerate(self._coordinate or ()))
            ranks = self.mesh[index].tolist() if self._coordinate is not None else []
            group = groups._find_pg_by_ranks_and_tag("", ranks) if groups.is_initialized() else None
            if group is None:
                raise RuntimeError(
                    "[DeviceMesh] DeviceMesh process groups not initialized! Expected a group of the ranks "
                    f"{ranks}, got none: make a mesh of this shape first"
                )
            existing.append(group)
        return existing

    def get_all_groups(self) -> list[Any]:
        return [self.get_group(dim) for dim in range(self.ndim)]

    # ------------------------------------------------------------------------------------ slices

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if self.mesh_dim_names is None:
            raise RuntimeError("[DeviceMesh] Cannot slice a DeviceMesh without mesh_dim_names!")
        if wanted == self.mesh_dim_names:
            return self
        root = self._root or self
        if len(wanted) == 1 and wanted[0] in root._flattened:
            return root._flattened[wanted[0]]
        for name in wanted:
            if name not in self.mesh_dim_names and name not in root._flattened:
                raise KeyError(
                    f"[DeviceMesh] Invalid mesh_dim_names {wanted} specified. Valid mesh_dim_names are "
                    f"{[*self.mesh_dim_names, *root._flattened]}."
                )
        if any(name in root._flattened for name in wanted):
            return self._with_flattened(wanted)
        if [name for name in self.mesh_dim_names if name in wanted] != list(wanted):
            raise KeyError(
                f"[DeviceMesh] Invalid mesh_dim_names {wanted} specified: expected the order of {self.mesh_dim_names}."
            )
        return self._of_dims(wanted)

    def _with_flattened(self, names: tuple[str, ...]) -> DeviceMesh:
        """A slice some of whose dimensions are several of the root, flattened before."""
        root = self._root or self
        dims = [root._flattened_dims[n] if n in root._flattened else (root._dim(n),) for n in names]
        inside = [dim for several in dims for dim in several]
        if inside != sorted(set(inside)):
            raise KeyError(
                f"[DeviceMesh] Invalid mesh_dim_names {names} specified: expected the order of {root.mesh_dim_names}, "
                "each dimension once."
            )
        coordinate = root._coordinate or [0] * root.ndim
        with _disable_current_modes(), _C.DisableTorchFunction():
            index = tuple(slice(None) if dim in inside else coordinate[dim] for dim in range(root.ndim))
            sizes = [math.prod(root.mesh.shape[dim] for dim in several) for several in dims]
            part = root.mesh[index].reshape(sizes)
        return self._part(part, names, [root[name].get_group() for name in names])

    def _of_dims(self, names: tuple[str, ...]) -> DeviceMesh:
        """The mesh of some dimensions, in any order."""
        dims = [self.mesh_dim_names.index(name) for name in names]  # type: ignore[union-attr]
        coordinate = self._coordinate or [0] * self.ndim
        index = tuple(slice(None) if dim in dims else coordinate[dim] for dim in range(self.ndim))
        order = sorted(dims)
        with _disable_current_modes(), _C.DisableTorchFunction():
            part = self.mesh[index].permute([order.index(dim) for dim in dims])
        return self._part(part, names, [self._dim_groups[dim] for dim in dims] if self._dim_groups else [])

    def _part(self, ranks: Any, names: tuple[str, ...] | None, members: list[Any]) -> DeviceMesh:
        mesh = DeviceMesh.__new__(DeviceMesh)
        mesh.device_type, mesh.mesh, mesh.mesh_dim_names = self.device_type, ranks, names
        mesh._root, mesh._dim_groups = self._root or self, members
        mesh._flattened, mesh._flattened_dims = {}, {}
        mesh._coordinate = None
        if self.device_type != "meta":
            mesh._locate(groups.get_rank())
        return mesh

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: Any = None) -> DeviceMesh:
        """All dimensions as one."""
        root = self._root or self
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        if self.ndim == 1 and (mesh_dim_name is None or self.mesh_dim_names == (mesh_dim_name,)):
            return self
        if name in root._flattened:
            return root._flattened[name]
        own_dims = self.mesh_dim_names or ()
        flattened_dims = [d for d in range(root.ndim) if root.mesh_dim_names and root.mesh_dim_names[d] in own_dims]
        rest = [d for d in range(root.ndim) if d not in flattened_dims]
        rows = (
            root.mesh.permute([*rest, *flattened_dims])
            .reshape(-1, math.prod(root.mesh.shape[d] for d in flattened_dims))
            .tolist()
        )
        own, members = self.mesh.reshape(-1), None
        ((backend, options),) = _backends_of({0: backend_override} if backend_override else None, 1, None)
        for ranks in rows:
            group = groups.new_group(
                ranks, backend=backend, pg_options=options, group_desc=f"mesh_{name}", sort_ranks=False
            )
            if groups.get_rank() in ranks:
                members = group
        root._flattened[name] = flat = root._part(own, (name,), [members])
        root._flattened_dims[name] = tuple(flattened_dims)
        return flat

    def _unflatten(
        self, dim: int | str, mesh_sizes: tuple[int, ...], mesh_dim_names: tuple[str, ...], backend_override: Any = None
    ) -> DeviceMesh:
        """One dimension as several."""
        at = self._dim(dim)
        shape = (*self.shape[:at], *mesh_sizes, *self.shape[at + 1 :])
        names = self.mesh_dim_names or tuple(f"dim_{i}" for i in range(self.ndim))
        ranks = self.mesh.reshape(shape)
        return DeviceMesh(self.device_type, ranks, mesh_dim_names=(*names[:at], *mesh_dim_names, *names[at + 1 :]))

    def _get_root_mesh(self) -> DeviceMesh:
        return self._root or self

    @staticmethod
    def _concatenate(meshes: list[DeviceMesh]) -> DeviceMesh:
        root = meshes[0]._root or meshes[0]
        names = tuple(name for mesh in meshes for name in mesh.mesh_dim_names or ())
        return root if names == root.mesh_dim_names else root._of_dims(names)

    @staticmethod
    def from_group(
        group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: tuple[str, ...] | None = None
    ) -> DeviceMesh:
        """A mesh over groups that exist already."""
        listed = list(group) if isinstance(group, (list, tuple)) else [group]
        if mesh is None:
            if len(listed) != 1:
                raise ValueError("[DeviceMesh.from_group] Must pass mesh if passing multiple ProcessGroups")
            mesh = groups.get_process_group_ranks(listed[0])
        elif isinstance(group, (list, tuple)):
            shown = mesh.tolist() if isinstance(mesh, flambeau.Tensor) else list(mesh)
            if flambeau.tensor(shown).ndim != len(listed):
                raise ValueError(
                    "[DeviceMesh.from_group] Expects mesh with ndim equal to number of ProcessGroups but got mesh "
                    f"{shown} and {len(listed)} ProcessGroups"
                )
        else:
            shown = mesh.tolist() if isinstance(mesh, flambeau.Tensor) else list(mesh)
            ranks = groups.get_process_group_ranks(group)
            if shown != ranks:
                raise ValueError(f"[DeviceMesh.from_group] Invalid mesh {shown} for ProcessGroup with ranks {ranks}")
        device_mesh = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)
        device_mesh._dim_groups = listed
        return device_mesh

    # ------------------------------------------------------------------------------------ as an object

    def __enter__(self) -> DeviceMesh:
        _mesh_resources.mesh_stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _mesh_resources.mesh_stack.pop()

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, DeviceMesh)
            and self.device_type == other.device_type
            and self.mesh_dim_names == other.mesh_dim_names
            and _is_prefix(self.shape, other.shape)
            and self.mesh.tolist() == other.mesh.tolist()
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.shape, self.mesh_dim_names, tuple(self.mesh.reshape(-1).tolist())))

    def __deepcopy__(self, memo: Any) -> DeviceMesh:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """As PyTorch's: the ranks in a list, and a layout over it. Groups are found again by their ranks."""
        ranks = self.mesh.reshape(-1)
        return {
            "_device_type": self.device_type, "_layout": layout_of(self.shape), "_rank_map": ranks.contiguous(),
            "_mesh_dim_names": self.mesh_dim_names, "_root_mesh": None, "_flatten_rank_map": tuple(ranks.tolist()),
            "_thread_id": None, "_flatten_mapping": {}, "_rank": groups.get_rank() if groups.is_initialized() else 0,
            "_dim_group_names": [group.group_name for group in self._dim_groups if group is not None],
            "_coordinate_on_dim": self.get_coordinate(), "_hash": None,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.device_type = state["device_type"] if "device_type" in state else state["_device_type"]
        names = state["mesh_dim_names"] if "mesh_dim_names" in state else state["_mesh_dim_names"]
        self.mesh_dim_names = tuple(names) if names else None
        if "_layout" in state:
            ranks, shape = ranks_in(state["_layout"], state["_rank_map"].tolist(), state["_rank"])
            self.mesh = flambeau.tensor(ranks, dtype=flambeau.int32).view(shape)
        else:
            self.mesh = state["mesh"].to(flambeau.int32)
        self._root, self._flattened, self._flattened_dims, self._dim_groups = None, {}, {}, []
        self._coordinate = None
        if groups.is_initialized():
            self._locate(groups.get_rank())

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        sizes = str(self.shape) if names is None else f"({', '.join(f'{n}={s}' for n, s in zip(names, self.shape))})"
        return f"DeviceMesh({sizes}, {self.device_type!r}, stride={tuple(self.mesh.stride())})"


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """A mesh of all processes, in the order of their ranks. Starts the default group when there is none."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"[init_device_mesh] Each mesh_dim_name must be unique, got {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                "[init_device_mesh] mesh_shape and mesh_dim_names should have same length! Found "
                f"len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape): {len(mesh_shape)}."
            )
    if device_type and not device_type.isalpha():
        raise RuntimeError(f"[init_device_mesh] Device type with index is not supported but got {device_type}")
    if not groups.is_initialized():
        groups.init_process_group()
    size, world = math.prod(mesh_shape), groups.get_world_size()
    if size > world:
        raise RuntimeError(
            f"[init_device_mesh] expected a mesh of at most {world} processes, got shape {tuple(mesh_shape)}: Mesh should not "
            "be bigger than default world size"
        )
    ranks = flambeau.arange(size, dtype=flambeau.int32).view(tuple(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, backend_override=backend_override)
