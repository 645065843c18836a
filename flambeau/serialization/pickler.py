"""The pickle inside a checkpoint, written so that PyTorch reads it.

Objects of this package are named as their counterparts in PyTorch, storages are left out of the stream and referred to
by key. Plain tensors and parameters, of which a checkpoint consists, are written by a short path; all else goes the way
pickle has for it.
"""

from __future__ import annotations

import pickle
import sys
from struct import pack
from typing import Any, ClassVar

from flambeau import _C
from flambeau._C import Tensor
from flambeau._tensor.quantized_types import qscheme
from flambeau.serialization import packed_objects
from flambeau.storage import STORAGE_NAMES, TypedStorage, UntypedStorage, storage_of

# Where PyTorch keeps what has another place here.
_MOVED = {
    ("torch._utils", "_rebuild_from_type_v2"): ("torch._tensor", "_rebuild_from_type_v2"),
    **{
        ("torch.distributed.tensor._spec", name): ("torch.distributed.tensor._dtensor_spec", name)
        for name in ("DTensorSpec", "ShardOrderEntry", "TensorMeta")
    },
}


def torch_name(module: str, name: str) -> tuple[str, str]:
    """The name by which PyTorch knows an object of this package."""
    if module == "flambeau" or module.startswith("flambeau."):
        module = "torch" + module[8:]
    return _MOVED.get((module, name), (module, name))


def location_tag(storage: Any) -> str:
    """The place of a storage, as checkpoints record it."""
    device = storage.device
    if device.type in ("cpu", "meta", "cuda") or device.index is not None:
        return str(device)
    return f"{device.type}:0"


class CheckpointPickler(pickle._Pickler):
    """Writes one object; `storages` maps the keys in the stream to the storages they stand for."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)
    whole_storages = False  # references say that they are to all of a storage, as the format before 1.6 has it

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.storages: dict[str, UntypedStorage] = {}
        self.items: dict[str, int] = {}  # bytes of an element of each
        self._keys: dict[int, str] = {}
        self._dtypes: dict[int, Any] = {}
        self._names: dict[tuple[str, str], bytes] = {}

    # -- names

    def write_name(self, module: str, name: str) -> None:
        """A reference to a global, remembered so that the second one is short."""
        known = self._names.get((module, name))
        if known is not None:
            self.write(known)
            return
        self.write(b"c" + module.encode() + b"\n" + name.encode() + b"\n")
        index = len(self.memo)
        self.memo[-1 - len(self._names)] = index, name  # keys below zero are no object's id
        self.write(self.put(index) if self.proto < 4 else b"\x94")
        self._names[module, name] = self.get(index)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        if "<locals>" in name.split(".") and sys.version_info < (3, 14):
            raise AttributeError(f"Can't pickle local object {name!r}")  # as pickle's own pickler in C does
        module = pickle.whichmodule(obj, name)
        moved = torch_name(module, name)
        if moved == (module, name) and module.partition(".")[0] != "torch":
            super().save_global(obj, name)  # type: ignore[misc]
            return
        self.write_name(*moved)

    for _kind in (type, type(lambda: None)):
        dispatch[_kind] = save_global

    def save_type(self, obj: Any) -> None:
        if obj in (type(None), type(NotImplemented), type(...)):
            super().save_type(obj)  # type: ignore[misc]
        else:
            self.save_global(obj)

    dispatch[type] = save_type

    def save_operator(self, obj: Any) -> None:
        """A function of the library, such as the activation of a layer: by the name that PyTorch has it under, too."""
        self.write_name(obj.__module__, obj.__qualname__)
        self.memoize(obj)

    dispatch[_C.Function] = save_operator

    # -- storages and tensors

    def write_storage(self, storage: UntypedStorage, dtype: Any, class_name: str | None = None) -> None:
        """The reference to a storage: its element type, key, place and length."""
        identity = storage._cdata
        # What has no memory is shared by nobody.
        known = self._dtypes.setdefault(storage.data_ptr(), dtype) if storage.nbytes() and storage.data_ptr() else dtype
        if known is not None and dtype is not None and known != dtype:
            raise RuntimeError(
                f"[save] expected one dtype for all views of a storage, got {known} and {dtype}: Cannot save multiple tensors or storages that view the same data as different types; "
                "save a clone() of one of them"
            )
        if identity not in self._keys:
            key = str(len(self._keys))
            self._keys[identity] = key
            self.storages[key] = storage
        if dtype is None:
            module, name, count = "torch.storage", "UntypedStorage", storage.nbytes()
        else:
            module, name, count = "torch", class_name or STORAGE_NAMES[dtype], storage.nbytes() // dtype.itemsize
        write = self.write
        write(b"(X\x07\x00\x00\x00storage")
        self.write_name(module, name)
        name_of_key = self._keys[identity].encode()
        place = location_tag(storage).encode()
        write(pack("<cI", b"X", len(name_of_key)) + name_of_key + pack("<cI", b"X", len(place)) + place)
        self.save_long(count)
        self.items[self._keys[identity]] = 1 if dtype is None else dtype.itemsize
        write(b"NtQ" if self.whole_storages else b"tQ")

    def write_ints(self, values: Any) -> None:
        if len(values) > 3:
            self.write(b"(")
        for value in values:
            self.save_long(value)
        self.write((b")", b"\x85", b"\x86", b"\x87")[len(values)] if len(values) < 4 else b"t")

    def write_tensor(self, tensor: Tensor, requires_grad: bool) -> None:
        self.write_name("torch._utils", "_rebuild_tensor_v2")
        self.write(b"(")
        self.write_storage(storage_of(tensor), tensor.dtype)
        self.save_long(tensor.storage_offset())
        self.write_ints(tensor.shape)
        self.write_ints(tensor.stride())
        self.write(b"\x88" if requires_grad else b"\x89")
        self.write_no_hooks()
        self.write(b"tR")

    def write_no_hooks(self) -> None:
        self.write_name("collections", "OrderedDict")
        self.write(b")R")

    def save_tensor(self, tensor: Tensor) -> None:
        special = tensor.is_meta or tensor.layout is not _C.strided or tensor.dtype not in STORAGE_NAMES
        special = special or tensor.is_conj() or tensor.is_neg()
        if tensor.__dict__ or special or getattr(tensor, "_backward_hooks", None):
            self.save_reduce(*tensor.__reduce_ex__(self.proto), obj=tensor)
            return
        self.write_tensor(tensor, tensor.requires_grad)
        self.memoize(tensor)

    dispatch[Tensor] = save_tensor

    def save_quantized(self, tensor: Any) -> None:
        integers = tensor.int_repr()
        self.write_name("torch._utils", "_rebuild_qtensor")
        self.write(b"(")
        self.write_storage(storage_of(integers), integers.dtype, tensor.dtype.storage_name)
        self.save_long(integers.storage_offset())
        self.write_ints(integers.shape)
        self.write_ints(integers.stride())
        self.save(tensor.quantizer())
        self.write(b"\x89")
        self.write_no_hooks()
        self.write(b"tR")
        self.memoize(tensor)

    def save_quantized_name(self, kind: Any) -> None:
        self.write_name("torch", kind.name)

    def save_layout(self, kind: Any) -> None:
        self.write_name("torch.serialization", "_get_layout")
        self.save((str(kind),))
        self.write(b"R")
        self.memoize(kind)

    dispatch[_C.layout] = save_layout

    def save_parameter(self, parameter: Any) -> None:
        if parameter.__dict__ or parameter.is_meta or getattr(parameter, "_backward_hooks", None):
            self.save_reduce(*parameter.__reduce_ex__(self.proto), obj=parameter)
            return
        self.write_name("torch._utils", "_rebuild_parameter")
        self.write_tensor(parameter, False)
        self.write(b"\x88" if parameter.requires_grad else b"\x89")
        self.write_no_hooks()
        self.write(b"\x87R")
        self.memoize(parameter)

    def save_typed_storage(self, storage: TypedStorage) -> None:
        self.write_storage(storage.untyped(), storage.dtype)

    dispatch[TypedStorage] = save_typed_storage

    def save_untyped_storage(self, storage: UntypedStorage) -> None:
        self.write_storage(storage, None)

    dispatch[UntypedStorage] = save_untyped_storage

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if type(obj) not in self.dispatch:
            self._teach(type(obj))
        return super().save(obj, save_persistent_id)  # type: ignore[misc]

    def _teach(self, kind: type) -> None:
        """Classes that are imported late: parameters, the storages of one dtype, quantized tensors, their dtypes, packed weights."""
        if kind is getattr(sys.modules.get("flambeau.nn.parameter"), "Parameter", None):
            self.dispatch[kind] = CheckpointPickler.save_parameter
        elif issubclass(kind, TypedStorage):
            self.dispatch[kind] = CheckpointPickler.save_typed_storage
        elif (kind.__module__, kind.__name__) == ("flambeau.ao.quantized_tensor", "QuantizedTensor"):
            self.dispatch[kind] = CheckpointPickler.save_quantized
        elif issubclass(kind, qscheme):
            self.dispatch[kind] = CheckpointPickler.save_quantized_name
        elif hasattr(kind, "script_state"):
            self.dispatch[kind] = packed_objects.write


def pickler_over(module: Any) -> type[CheckpointPickler]:
    """The pickler for checkpoints on top of another module's, which may know how to write more kinds of objects."""
    base = module.Pickler
    if module is pickle or issubclass(CheckpointPickler, base):
        return CheckpointPickler
    if not issubclass(base, pickle._Pickler):
        raise TypeError(f"[save] expected a pickle_module with a Pickler written in Python, got {module.__name__}")
    own = {kind: CheckpointPickler.dispatch[kind] for kind in (Tensor, TypedStorage, UntypedStorage)}
    return type("CheckpointPickler", (CheckpointPickler, base), {"dispatch": {**base.dispatch, **own}})
