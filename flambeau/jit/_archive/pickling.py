"""The pickles of archives, written opcode by opcode as PyTorch's reader expects them, and read without running anything."""

from __future__ import annotations

import enum
import struct
from typing import Any

import flambeau
from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit import _values
from flambeau.jit._schemas import parse_type
from flambeau.serialization import unpickler
from flambeau.storage import STORAGE_NAMES

_TAGGED = {T.INT: "build_intlist", T.FLOAT: "build_doublelist", T.BOOL: "build_boollist", T.TENSOR: "build_tensorlist"}


class PickleWriter:
    """One pickle; tensors are gathered in `storages` by key."""

    def __init__(self, storages: dict[int, tuple[str, Any]] | None = None) -> None:
        self.out = bytearray(b"\x80\x02")
        self.storages: dict[int, tuple[str, Any]] = {} if storages is None else storages
        self.memo: dict[int, int] = {}
        self.alive: list[Any] = []
        self.unfinished: set[int] = set()
        self.types: list[T.JitType] = []

    def finish(self) -> bytes:
        return bytes(self.out + b".")

    # ------------------------------------------------------------------ primitives

    def text(self, value: str) -> None:
        data = value.encode()
        self.out += b"X" + struct.pack("<I", len(data)) + data

    def integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif -(2**31) <= value < 2**31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            self.out += b"\x8a\x08" + struct.pack("<q", value)

    def name(self, module: str, name: str) -> None:
        self.out += b"c" + module.encode() + b"\n" + name.encode() + b"\n"

    def class_name(self, qualified: str) -> None:
        module, _, name = qualified.rpartition(".")
        self.name(module, name)

    def remember(self, value: Any) -> None:
        """Number what was written last: complete, for readers make objects when they have their attributes."""
        index = len(self.memo)
        self.memo[id(value)] = index
        self.alive.append(value)
        self.out += b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)

    def recall(self, value: Any) -> bool:
        index = self.memo.get(id(value))
        if index is None:
            return False
        self.out += b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)
        return True

    # ------------------------------------------------------------------ values

    def value(self, value: Any, kind: T.JitType) -> None:
        value = _values.enumerated(value)
        if value is None:
            self.out += b"N"
        elif isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int) and not isinstance(value, enum.Enum):
            self.integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, complex):
            self.name("builtins", "complex")
            self.out += b"(G" + struct.pack(">d", value.real) + b"G" + struct.pack(">d", value.imag) + b"tR"
        elif isinstance(value, str) and not isinstance(value, enum.Enum):
            self.text(value)
        elif isinstance(value, _C.Tensor):
            self.tensor(value)
        else:
            self._object(value, _member(kind, value))

    def _object(self, value: Any, kind: T.JitType) -> None:
        if isinstance(value, tuple):
            self._tuple(value, kind)
        elif isinstance(value, list):
            self._list(value, kind)
        elif isinstance(value, dict):
            self._dict(value, kind)
        elif isinstance(value, flambeau.device):
            self.name("torch", "device")
            self.text(value.type)
            if value.index is not None:
                self.integer(value.index)
            self.out += b"\x86R" if value.index is not None else b"\x85R"
        elif isinstance(value, enum.Enum):
            from flambeau.jit._frontend.annotations import type_of_enum

            enum_type = kind if isinstance(kind, T.EnumType) else type_of_enum(type(value))
            self.types.append(enum_type)
            self.class_name(enum_type.name)
            self.value(value.value, enum_type.value)
            self.out += b"R"
        else:
            self.object(value)

    def _tuple(self, value: Any, kind: T.JitType) -> None:
        kinds = kind.contained() if isinstance(kind, T.TupleType) else ()
        if isinstance(kind, T.TupleType) and kind.name is not None:
            self.types.append(kind)
            self.class_name(kind.name)
        self.out += b"("
        for index, item in enumerate(value):
            self.value(item, kinds[index] if index < len(kinds) else _values.infer_type(item))
        self.out += b"t"
        if isinstance(kind, T.TupleType) and kind.name is not None:
            self.out += b"R"

    def _list(self, value: list[Any], kind: T.JitType) -> None:
        if self.recall(value):
            return
        element = kind.element if isinstance(kind, T.ListType) else _values.infer_type(value).contained()[0]
        tag = _TAGGED.get(element)
        self.name("torch.jit._pickle", tag or "restore_type_tag")
        if tag is not None:
            self.out += b"("
        self.out += b"]("
        for item in value:
            self.value(item, element)
        self.out += b"e"
        if tag is not None:
            self.out += b"tR"
        else:
            self.types.append(element)
            self.text(T.ListType(element).annotation_str)
            self.out += b"\x86R"
        self.remember(value)

    def _dict(self, value: dict[Any, Any], kind: T.JitType) -> None:
        if self.recall(value):
            return
        kind = kind if isinstance(kind, T.DictType) else _values.infer_type(value)
        assert isinstance(kind, T.DictType)
        self.name("torch.jit._pickle", "restore_type_tag")
        self.out += b"}("
        for key, item in value.items():
            self.value(key, kind.key)
            self.value(item, kind.value)
        self.out += b"u"
        self.types += [kind.key, kind.value]
        self.text(kind.annotation_str)
        self.out += b"\x86R"
        self.remember(value)

    def object(self, value: Any) -> None:
        """A module or an instance of a scripted class: its type's name, then its attributes in order."""
        if self.recall(value):
            return
        if hasattr(value, "script_class"):
            self._native_object(value)
            return
        kind = value._type() if isinstance(value, _values.ScriptObject) else value.__dict__.get("_script_type")
        if not isinstance(kind, T.ClassType):
            raise RuntimeError(f"[jit.save] expected a value that archives can hold, got {type(value).__name__}")
        if id(value) in self.unfinished:
            raise RuntimeError(f"[jit.save] expected objects without cycles, got a {kind.name} that contains itself")
        self.unfinished.add(id(value))
        self.types.append(kind)
        self.class_name(kind.name)
        self.out += b")\x81"
        if "__getstate__" in kind.methods and "__setstate__" in kind.methods:
            state = kind.methods["__getstate__"].run()(value)
            self.value(state, kind.methods["__getstate__"].schema.result_type())
            self.out += b"b"
        else:
            self.out += b"}("
            for name, part in kind.attributes.items():
                self.text(name)
                self.value(getattr(value, name), part)
            self.out += b"ub"
        self.unfinished.remove(id(value))
        self.remember(value)

    def _native_object(self, value: Any) -> None:
        """An object of a class of the library: its name and its state."""
        self.class_name(value.script_class)
        self.out += b")\x81"
        self.value(value.script_state(), parse_type(value.STATE_TYPE))
        self.out += b"b"
        self.remember(value)

    # ------------------------------------------------------------------ tensors

    def tensor(self, tensor: Any) -> None:
        if self.recall(tensor):
            return
        if tensor.is_quantized:
            self._quantized(tensor)
        else:
            self._dense(tensor)
        self.remember(tensor)

    def _dense(self, tensor: Any) -> None:
        plain = tensor.detach()
        if plain.layout is not flambeau.strided:
            raise RuntimeError(f"[jit.save] expected dense tensors, got one with the layout {plain.layout}")
        if plain.is_conj() or plain.is_neg():
            plain = plain.clone()
        storage = plain.untyped_storage()
        pointer = storage._cdata if hasattr(storage, "_cdata") else storage.data_ptr()
        key, _ = self.storages.setdefault(pointer or id(tensor), (str(len(self.storages)), plain))
        self.alive.append(plain)
        name = STORAGE_NAMES.get(plain.dtype)
        if name is None:
            raise RuntimeError(f"[jit.save] expected a dtype that archives can hold, got {plain.dtype}")
        self.name("torch._utils", "_rebuild_tensor_v2")
        self._elements(plain, storage, key, name)
        self.out += b"\x88" if tensor.requires_grad else b"\x89"
        self.name("collections", "OrderedDict")
        self.out += b")RtR"

    def _elements(self, plain: Any, storage: Any, key: str, storage_name: str) -> None:
        """The opening of a tuple: storage, offset, sizes and strides."""
        self.out += b"(("
        self.text("storage")
        self.name("torch", storage_name)
        self.text(key)
        self.text(str(plain.device))
        self.integer(storage.nbytes() // plain.dtype.itemsize)
        self.out += b"tQ"
        self.integer(plain.storage_offset())
        for numbers in (plain.shape, plain.stride()):
            self.out += b"("
            for number in numbers:
                self.integer(number)
            self.out += b"t"

    def _quantized(self, tensor: Any) -> None:
        integers = tensor.int_repr()
        storage = integers.untyped_storage()
        key, _ = self.storages.setdefault(storage.data_ptr() or id(tensor), (str(len(self.storages)), integers))
        self.alive.append(integers)
        scheme, *grid = tensor.quantizer()
        self.name("torch._utils", "_rebuild_qtensor")
        self._elements(integers, storage, key, tensor.dtype.storage_name)
        self.out += b"("
        self.name("torch", scheme.name)
        for part in grid:
            self.value(part, _values.infer_type(part))
        self.out += b"t\x89"
        self.name("collections", "OrderedDict")
        self.out += b")RtR"


def _member(kind: T.JitType, value: Any) -> T.JitType:
    """The part of an Optional or Union that a value is of."""
    parts = [p for p in T.members_of(kind) if p != T.NONE]
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        try:
            _values.convert(value, part)
            return part
        except _values.Mismatch:
            continue
    return kind


# ---------------------------------------------------------------------------------------------- reading


class _Tag:
    """A function that pickles of archives may call; it only passes its argument on."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> Any:
        if not args:
            raise unpickler.UnpicklingError(f"[jit.load] expected arguments for {self.name}, got none")
        return args[0]


def native_object(name: str) -> Any:
    """An object of a class of the library, without its state."""
    from flambeau.ao.quantized_operators import packed_class

    kind = packed_class(name.removeprefix(T.NativeClassType.PREFIX))
    if kind is None:
        raise unpickler.UnpicklingError(f"[jit.load] expected a class that flambeau has, got {name}")
    return kind.__new__(kind)


class ClassName:
    """A class of the archive's own code, named in a pickle."""

    def __init__(self, kind: T.JitType) -> None:
        self.kind = kind


class ArchiveUnpickler(unpickler.SafeUnpickler):
    """Reads `data.pkl`: besides tensors and plain values it may make objects of classes that `code/` defines."""

    def __init__(self, data: bytes, load_storage: Any, find_type: Any, make: Any) -> None:
        super().__init__(data, load_storage)
        self._find_type, self._make = find_type, make
        self._objects: dict[int, Any] = {}
        self._parameters: dict[int, Any] = {}  # made of tensors, which several modules may hold

    def operations(self) -> Any:
        known = unpickler._OPERATIONS
        own = {ord("b"): ArchiveUnpickler.build, ord("R"): ArchiveUnpickler.reduce}
        if isinstance(known, dict):
            return {**known, **own}
        return [own.get(code, operation) for code, operation in enumerate(known)]

    def find(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle":
            return _Tag(name)
        if f"{module}.".startswith(T.NativeClassType.PREFIX):
            return ClassName(T.NativeClassType(f"{module}.{name}"))
        if module.partition(".")[0] == "__torch__":
            kind = self._find_type(f"{module}.{name}")
            if kind is None:
                raise unpickler.UnpicklingError(f"[jit.load] expected a class of the archive, got {module}.{name}")
            return ClassName(kind)
        return super().find(module, name)

    def _may_call(self, function: Any) -> bool:
        return isinstance(function, _Tag) or super()._may_call(function)

    def reduce(self) -> None:
        args, function = self.pop(), self.pop()
        if isinstance(function, ClassName):
            self._stack.append(self._named(function.kind, args if type(args) is tuple else (args,)))
            return
        self._stack += [function, args]
        super().reduce()

    def _named(self, kind: T.JitType, args: tuple[Any, ...]) -> Any:
        if isinstance(kind, T.EnumType):
            for member in kind.members.values():
                if member.value == args[0] and type(member.value) is type(args[0]):
                    return member
            raise unpickler.UnpicklingError(f"[jit.load] expected a value of {kind.name}, got {args[0]!r}")
        if isinstance(kind, T.TupleType):
            items = args[0] if len(args) == 1 and type(args[0]) is tuple and len(kind.fields) == len(args[0]) else args
            if len(items) != len(kind.fields):
                raise unpickler.UnpicklingError(
                    f"[jit.load] expected {len(kind.fields)} values for {kind.name}, got {len(items)}"
                )
            return _values.named_tuple_class(kind)(*items)
        raise unpickler.UnpicklingError(f"[jit.load] expected an enumeration or named tuple, got {kind}")

    def _new(self, kind: Any, args: Any, keywords: dict[str, Any]) -> Any:
        if isinstance(kind, ClassName) and isinstance(kind.kind, T.NativeClassType):
            return self._remembered(native_object(kind.kind.name))
        if isinstance(kind, ClassName):
            if not isinstance(kind.kind, T.ClassType):
                raise unpickler.UnpicklingError(f"[jit.load] expected a class, got {kind.kind}")
            return self._remembered(self._make(kind.kind))
        return super()._new(kind, args, keywords)

    def _remembered(self, obj: Any) -> Any:
        self._objects[id(obj)] = obj
        return obj

    def build(self) -> None:
        obj = self._stack[-2] if len(self._stack) > 1 else None
        if id(obj) not in self._objects:
            super().build()
            return
        state = self.pop()
        _fill(obj, state, self._parameters)


def _fill(obj: Any, state: Any, parameters: dict[int, Any]) -> None:
    """Set the attributes of an object; those of a class with `__setstate__` by that method."""
    if hasattr(type(obj), "script_class"):
        obj.set_script_state(state)
        return
    kind = obj._type() if isinstance(obj, _values.ScriptObject) else obj.__dict__["_script_type"]
    if "__setstate__" in kind.methods and "__getstate__" in kind.methods:
        kind.methods["__setstate__"].run()(obj, state)
        return
    if not isinstance(state, dict):
        raise unpickler.UnpicklingError(
            f"[jit.load] expected the attributes of {kind.name}, got {type(state).__name__}"
        )
    for name, part in kind.attributes.items():
        if name not in state:
            if any(p == T.NONE for p in T.members_of(part)):
                set_attribute(obj, kind, name, None, parameters)
                continue
            raise unpickler.UnpicklingError(
                f"[jit.load] expected the attribute {name!r} of {kind.name}, got an object without it"
            )
        try:
            value = _values.convert(state[name], part)
        except _values.Mismatch:
            raise unpickler.UnpicklingError(
                f"[jit.load] expected {part.annotation_str} for the attribute {name!r} of {kind.name}, got {type(state[name]).__name__}"
            ) from None
        set_attribute(obj, kind, name, value, parameters)


def set_attribute(obj: Any, kind: T.ClassType, name: str, value: Any, parameters: dict[int, Any]) -> None:
    """Store one attribute of a module or object as its class says: parameter, buffer, submodule or plain."""
    from flambeau.nn import Module, Parameter

    if isinstance(obj, _values.ScriptObject):
        object.__setattr__(obj, name, value)
    elif name in kind.parameters:
        if value is not None and not isinstance(value, Parameter):
            tensor = value
            if id(tensor) not in parameters:
                parameters[id(tensor)] = tensor, Parameter(tensor.detach(), requires_grad=tensor.requires_grad)
            value = parameters[id(tensor)][1]
        obj._parameters[name] = value
    elif name in kind.buffers:
        obj._buffers[name] = value
    elif isinstance(value, Module):
        obj._modules[name] = value
    elif isinstance(kind.attributes[name], T.ClassType) and kind.attributes[name].is_module:
        obj._modules[name] = None
    else:
        obj.__dict__[name] = value
