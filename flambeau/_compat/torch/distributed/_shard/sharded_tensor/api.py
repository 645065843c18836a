"""`ShardedTensor`: a tensor whose shards lie on the processes of a group.

It knows its shape and its shards; computing is up to the program, with the local shards. `DTensor` is what replaces it.
"""

from __future__ import annotations

import copy
from typing import Any

import flambeau
from flambeau.distributed import _groups as groups
from flambeau.distributed._objects import all_gather_object, gather_object
from flambeau.distributed._shard.metadata import ShardMetadata
from flambeau.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from flambeau.distributed._shard.sharded_tensor.shard import Shard
from flambeau.distributed._shard.sharding_spec import _internals, api

__all__ = ["ShardedTensor"]

custom_ops: dict[Any, Any] = {}  # by function, from `custom_sharded_op_impl`


def _member(process_group: Any) -> Any:
    return process_group if process_group is not None else groups._get_default_group()


def _place(whole: Any, shards: list[Shard]) -> None:
    for shard in shards:
        index = tuple(slice(o, o + n) for o, n in zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes))
        whole[index] = shard.tensor.detach().to(whole.dtype)


class ShardedTensor(flambeau.Tensor):
    """A tensor in shards. `local_shards()` are those of this process."""

    _metadata: ShardedTensorMetadata
    _local_shards: list[Shard]
    _sharding_spec: Any
    _process_group: Any

    @staticmethod
    def __new__(cls, sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
        group, fill = _member(options.pop("process_group", None)), options.pop("_fill", flambeau.empty)
        options.pop("init_rrefs", None)
        sizes = flambeau.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
        properties = TensorProperties(**{k: v for k, v in options.items() if v is not None})
        if not isinstance(sharding_spec, api.ShardingSpec):
            raise ValueError(f"[ShardedTensor] Expecting ShardingSpec but got: {type(sharding_spec)}")
        metadata = sharding_spec.build_metadata(sizes, properties)
        kind = {"dtype": properties.dtype, "requires_grad": properties.requires_grad}
        own = [m for m in metadata.shards_metadata if m.placement.rank() == group.rank()]
        shards = [Shard(fill(m.shard_sizes, device=m.placement.device(), **kind), m) for m in own]
        return cls._assemble(metadata, shards, sharding_spec, group)

    @classmethod
    def _assemble(cls, metadata: Any, shards: list[Shard], spec: Any, group: Any) -> ShardedTensor:
        properties = metadata.tensor_properties
        device = shards[0].tensor.device if shards else flambeau.device("cpu")
        self = flambeau.Tensor._make_wrapper_subclass(
            cls,  # type: ignore[arg-type]
            tuple(metadata.size), dtype=properties.dtype, device=device, requires_grad=properties.requires_grad,
        )  # fmt: skip
        self._metadata, self._local_shards, self._sharding_spec, self._process_group = metadata, shards, spec, group
        return self

    @classmethod
    def _of_whole(cls, tensor: Any, spec: Any, process_group: Any) -> ShardedTensor:
        """The division of a tensor that every process has whole."""
        group = _member(process_group)
        metadata = spec.build_metadata(tensor.shape, TensorProperties.create_from_tensor(tensor))
        shards = []
        for own in metadata.shards_metadata:
            if own.placement.rank() == group.rank():
                index = tuple(slice(o, o + n) for o, n in zip(own.shard_offsets, own.shard_sizes))
                shards.append(Shard(tensor[index].clone().to(own.placement.device()), own))
        return cls._assemble(metadata, shards, spec, group)

    # ------------------------------------------------------------------------------------ from shards

    @classmethod
    def _init_from_local_shards(
        cls, local_shards: list[Shard], *global_size: Any, process_group: Any = None, init_rrefs: bool = False
    ) -> ShardedTensor:
        group = _member(process_group)
        sizes = flambeau.Size(
            global_size[0] if len(global_size) == 1 and not isinstance(global_size[0], int) else global_size
        )
        own = [TensorProperties.create_from_tensor(shard.tensor) for shard in local_shards]
        gathered: list[Any] = [None] * group.size()
        all_gather_object(gathered, (list(sizes), [s.metadata for s in local_shards], own), group=group)
        if any(other[0] != list(sizes) for other in gathered):
            raise ValueError(
                f"[init_from_local_shards] ShardedTensor global_size property does not match from different ranks! Found "
                f"{[other[0] for other in gathered]}"
            )
        properties = [one for other in gathered for one in other[2]]
        for name in ("dtype", "layout", "requires_grad"):
            values = {str(getattr(one, name)) for one in properties}
            if len(values) > 1:
                raise ValueError(
                    f"[init_from_local_shards] ShardedTensor {name} property does not match from different ranks! Found {values}"
                )
        listed = [one for other in gathered for one in other[1]]
        if not listed:
            raise ValueError("[init_from_local_shards] expected shards on some process, got none")
        metadata = ShardedTensorMetadata(listed, sizes, properties[0])
        return cls._init_from_local_shards_and_global_metadata(local_shards, metadata, group)

    @classmethod
    def _init_from_local_shards_and_global_metadata(
        cls,
        local_shards: list[Shard],
        sharded_tensor_metadata: ShardedTensorMetadata,
        process_group: Any = None,
        init_rrefs: bool = False,
        sharding_spec: Any = None,
    ) -> ShardedTensor:
        listed = sharded_tensor_metadata.shards_metadata
        group = process_group if process_group is not None else groups.GroupMember.WORLD  # none is needed
        rank = 0 if group is None else group.rank()
        if not listed:
            raise ValueError("[ShardedTensor] shards_metadata must not be empty!")
        _internals.validate_non_overlapping_shards_metadata(listed)
        _internals.check_tensor(listed, sharded_tensor_metadata.size)
        expected = [one for one in listed if one.placement is not None and one.placement.rank() == rank]
        if len(expected) != len(local_shards):
            raise RuntimeError(
                f"[ShardedTensor] Number of local shards ({len(local_shards)}) does not match number of local shards metadata in "
                f"sharded_tensor_metadata ({len(expected)}) on rank ({rank})"
            )
        spec = sharding_spec or api._infer_sharding_spec_from_shards_metadata(listed)
        return cls._assemble(sharded_tensor_metadata, list(local_shards), spec, group)

    @classmethod
    def _init_from_local_tensor(
        cls,
        local_tensor: Any,
        sharding_spec: Any,
        *global_size: Any,
        process_group: Any = None,
        init_rrefs: bool = False,
    ) -> ShardedTensor:
        group = _member(process_group)
        sizes = flambeau.Size(
            global_size[0] if len(global_size) == 1 and not isinstance(global_size[0], int) else global_size
        )
        metadata = sharding_spec.build_metadata(sizes, TensorProperties.create_from_tensor(local_tensor))
        own = [one for one in metadata.shards_metadata if one.placement.rank() == group.rank()]
        return cls._assemble(metadata, [Shard(local_tensor, one) for one in own], sharding_spec, group)

    # ------------------------------------------------------------------------------------ questions

    def metadata(self) -> ShardedTensorMetadata:
        return self._metadata

    def local_shards(self) -> list[Shard]:
        return self._local_shards

    def local_tensor(self) -> Any:
        if len(self._local_shards) != 1:
            raise NotImplementedError(
                f"[ShardedTensor.local_tensor] Only single local shard is supported, got {len(self._local_shards)}"
            )
        return self._local_shards[0].tensor

    def sharding_spec(self) -> Any:
        return self._sharding_spec

    def remote_shards(self) -> Any:
        raise RuntimeError(
            "[ShardedTensor] ShardedTensor created with init_rrefs=False, no RRefs to remote shards available"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"ShardedTensor({self._metadata})"

    __hash__ = flambeau.Tensor.__hash__

    # ------------------------------------------------------------------------------------ moving

    def gather(  # type: ignore[override]
        self, dst: int = 0, out: Any = None, enforce_dtype: bool = False, dtype: Any = None
    ) -> None:
        """The whole, on rank `dst`."""
        rank = groups.get_rank(self._process_group)
        if rank == dst and out is None:
            raise ValueError("[ShardedTensor.gather] `out` Tensor must be provided on dst rank!")
        if rank == dst and enforce_dtype and dtype not in (None, out.dtype):
            raise ValueError(f"[ShardedTensor.gather] expected out of {dtype}, got {out.dtype}")
        gathered: list[Any] | None = [None] * self._process_group.size() if rank == dst else None
        own = [Shard(shard.tensor.detach().cpu(), _on_host(shard.metadata)) for shard in self._local_shards]
        gather_object(own, gathered, group_dst=dst, group=self._process_group)
        for shards in gathered or ():
            with flambeau.no_grad():
                _place(out, shards)

    def reshard(self, resharding_spec: Any) -> ShardedTensor:
        """Divided in another way, in place."""
        if not isinstance(resharding_spec, api.ChunkShardingSpec) or not isinstance(
            self._sharding_spec, api.ChunkShardingSpec
        ):
            raise NotImplementedError("[ShardedTensor.reshard] Only ChunkShardingSpec supported for reshard.")
        gathered: list[Any] = [None] * self._process_group.size()
        all_gather_object(gathered, self._local_shards, group=self._process_group)
        properties = self._metadata.tensor_properties
        whole = flambeau.empty(tuple(self._metadata.size), dtype=properties.dtype)
        for shards in gathered:
            _place(whole, shards)
        divided = ShardedTensor._of_whole(whole, resharding_spec, self._process_group)
        divided._metadata.tensor_properties = properties
        self._metadata, self._local_shards = divided._metadata, divided._local_shards
        self._sharding_spec = resharding_spec
        return self

    def _mapped(self, change: Any) -> ShardedTensor:
        """A tensor of changed shards, each where it was, on the device that it came to."""
        changed, renamed = [], {}
        for shard in self._local_shards:
            tensor, placed = change(shard.tensor), copy.copy(shard.metadata)
            if placed.placement is not None and placed.placement.device() != tensor.device:
                placed = ShardMetadata(
                    placed.shard_offsets, placed.shard_sizes, f"rank:{placed.placement.rank()}/{tensor.device}"
                )
            renamed[shard.metadata] = placed
            changed.append(Shard(tensor, placed))
        properties = copy.copy(self._metadata.tensor_properties)
        if changed:
            properties.dtype, properties.requires_grad = changed[0].tensor.dtype, changed[0].tensor.requires_grad
        listed = [renamed.get(one, one) for one in self._metadata.shards_metadata]
        metadata = ShardedTensorMetadata(listed, self._metadata.size, properties)
        return ShardedTensor._assemble(metadata, changed, self._sharding_spec, self._process_group)

    def cpu(self, memory_format: Any = None, process_group: Any = None) -> ShardedTensor:  # type: ignore[override]
        return self._mapped(lambda tensor: tensor.cpu())

    def to(self, *arguments: Any, **options: Any) -> ShardedTensor:
        options.pop("process_group", None)
        return self._mapped(lambda tensor: tensor.to(*arguments, **options))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self._metadata, self._local_shards, self._sharding_spec)

    # ------------------------------------------------------------------------------------ calls

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if func in custom_ops:
            group = next((a._process_group for a in args if isinstance(a, ShardedTensor)), None)
            return custom_ops[func](types, args, kwargs, group)
        call = vars(_Calls).get(name)
        if isinstance(call, staticmethod) and isinstance(args[0], ShardedTensor):
            return call.__func__(*args, **kwargs)
        others = (*args[1:], *kwargs.values())
        writes = name.endswith("_") and not name.endswith("__")
        if writes and isinstance(args[0], ShardedTensor) and not any(isinstance(v, flambeau.Tensor) for v in others):
            return _written(name, args[0], args[1:], kwargs)
        if name in _AS_USUAL:
            with flambeau._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        raise RuntimeError(
            f"[ShardedTensor] torch function '{name}', with args: {args} and kwargs: {kwargs} not supported for ShardedTensor!"
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(
            f"[ShardedTensor] A ShardedTensor object is being used from a function that is not supported: {func}"
        )


def _rebuild(metadata: Any, shards: list[Shard], spec: Any) -> ShardedTensor:
    return ShardedTensor._assemble(metadata, shards, spec, groups.GroupMember.WORLD)


def _on_host(metadata: ShardMetadata) -> ShardMetadata:
    rank = None if metadata.placement is None else metadata.placement.rank()
    return ShardMetadata(metadata.shard_offsets, metadata.shard_sizes, None if rank is None else f"rank:{rank}/cpu")


def _alike(question: Any, first: ShardedTensor, second: ShardedTensor, **options: Any) -> bool:
    """Whether the shards of all processes are alike."""
    pairs = list(zip(first.local_shards(), second.local_shards()))
    same = all(a.metadata == b.metadata and question(a.tensor, b.tensor, **options) for a, b in pairs)
    answers: list[Any] = [None] * first._process_group.size()
    all_gather_object(answers, same and first.shape == second.shape, group=first._process_group)
    return all(answers)


class _Calls:
    """What functions of tensors do with one in shards, by their names."""

    gather = staticmethod(ShardedTensor.gather)
    cpu, to = staticmethod(ShardedTensor.cpu), staticmethod(ShardedTensor.to)

    @staticmethod
    def detach(tensor: ShardedTensor) -> ShardedTensor:
        return tensor._mapped(lambda part: part.detach())

    @staticmethod
    def clone(tensor: ShardedTensor, **options: Any) -> ShardedTensor:
        return tensor._mapped(lambda part: part.clone(**options))

    @staticmethod
    def type(tensor: ShardedTensor, dtype: Any) -> ShardedTensor:
        return tensor._mapped(lambda part: part.type(dtype))

    @staticmethod
    def cuda(tensor: ShardedTensor, *arguments: Any) -> ShardedTensor:
        return tensor._mapped(lambda part: part.cuda(*arguments))

    @staticmethod
    def requires_grad_(tensor: ShardedTensor, requires_grad: bool = True) -> ShardedTensor:
        with flambeau._C.DisableTorchFunctionSubclass():
            flambeau.Tensor.requires_grad_(tensor, requires_grad)
        for shard in tensor.local_shards():
            shard.tensor.requires_grad_(requires_grad)
        tensor._metadata.tensor_properties.requires_grad = requires_grad
        return tensor

    @staticmethod
    def equal(first: ShardedTensor, second: ShardedTensor) -> bool:
        return _alike(flambeau.equal, first, second)

    @staticmethod
    def allclose(first: ShardedTensor, second: ShardedTensor, **options: Any) -> bool:
        return _alike(flambeau.allclose, first, second, **options)

    @staticmethod
    def is_pinned(tensor: ShardedTensor) -> bool:
        return False

    @staticmethod
    def __deepcopy__(tensor: ShardedTensor, memo: Any) -> ShardedTensor:
        return tensor._mapped(lambda part: part.detach().clone())


def _written(name: str, tensor: ShardedTensor, arguments: Any, options: Any) -> ShardedTensor:
    """Each shard, written by a method such as `uniform_`."""
    with flambeau.no_grad():
        for shard in tensor.local_shards():
            getattr(shard.tensor, name)(*arguments, **options)
    return tensor


_AS_USUAL = frozenset(
    ("__get__", "__set__", "__delete__", "size", "dim", "ndimension", "is_floating_point", "is_complex", "_make_subclass",
     "__hash__", "register_hook", "__format__", "numel", "stride", "element_size", "__len__", "is_contiguous")
)  # fmt: skip
