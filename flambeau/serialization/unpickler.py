"""Reading the pickle of a checkpoint without running what it says.

A pickle is a program for a stack machine that may call anything importable. This interpreter knows the opcodes but
imports nothing: a global is looked up in a fixed table, and only what is in the table can be called. Values that could
cost more than their bytes in the file (hashes of nested tuples, huge arrays, windows outside a storage) are checked.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

import flambeau
from flambeau import _ops, _utils
from flambeau._C import Tensor
from flambeau.serialization import packed_objects
from flambeau.storage import STORAGE_NAMES, TypedStorage, UntypedStorage

_MARK = object()
_MAX_TUPLE_NODES = 10_000


# ---------------------------------------------------------------------------------------------- what may be made


class StorageKind:
    """The element type of a storage, as the stream names it; None for plain bytes."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype


def _window(dtype: Any, source: Tensor, offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over bytes, inside them."""
    whole = all(type(n) is int for n in (offset, *size, *stride))
    if not whole or len(size) != len(stride) or len(size) > 64 or offset < 0:
        raise UnpicklingError("[load] expected sizes, strides and an offset, got other values")
    if any(not 0 <= n < 1 << 62 for n in (offset, *size, *stride)):
        raise UnpicklingError(f"[load] expected a window with sizes that fit, got sizes {size} and strides {stride}")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    room = source._storage_bytes() // dtype.itemsize
    if 0 not in size and last >= room:
        raise UnpicklingError(
            f"[load] expected a window inside its storage of {room} elements, got offset {offset}, "
            f"sizes {tuple(size)} and strides {tuple(stride)}"
        )
    window = flambeau.empty(0, dtype=dtype, device=source.device)
    return _ops._set_storage_(window, source, offset, tuple(size), tuple(stride))


def rebuild_tensor(storage: Any, storage_offset: Any, size: Any, stride: Any) -> Tensor:
    if not isinstance(storage, TypedStorage):
        raise UnpicklingError(f"[load] expected a storage, got {type(storage).__name__}")
    return _window(storage.dtype, storage._untyped_storage._bytes, storage_offset, size, stride)


def rebuild_tensor_v2(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> Tensor:
    tensor = _utils._as_noted(rebuild_tensor(storage, storage_offset, size, stride), metadata)
    return tensor.requires_grad_() if requires_grad is True else tensor


def rebuild_tensor_v3(
    storage: Any,
    storage_offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Tensor:
    if not isinstance(storage, (TypedStorage, UntypedStorage)) or not isinstance(dtype, flambeau.dtype):
        raise UnpicklingError("[load] expected a storage and a dtype, got other values")
    tensor = _utils._as_noted(_window(dtype, storage.untyped()._bytes, storage_offset, size, stride), metadata)
    return tensor.requires_grad_() if requires_grad is True else tensor


def _need_tensor(data: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise UnpicklingError(f"[load] expected a tensor, got {type(data).__name__}")
    return data


def rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Any:
    return flambeau.nn.Parameter(_need_tensor(data).detach(), bool(requires_grad))


def rebuild_parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    parameter = rebuild_parameter(data, requires_grad, hooks)
    return _set_attributes(parameter, state)


def rebuild_meta_tensor(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    if not isinstance(dtype, flambeau.dtype):
        raise UnpicklingError(f"[load] expected a dtype, got {type(dtype).__name__}")
    tensor = flambeau.empty_strided(size, stride, dtype=dtype, device="meta")
    return tensor.requires_grad_() if requires_grad is True else tensor


def rebuild_device_tensor(data: Any, dtype: Any, device: Any, requires_grad: Any) -> Tensor:
    tensor = _need_tensor(data).to(device=device, dtype=dtype)
    return tensor.requires_grad_() if requires_grad is True else tensor


def rebuild_quantized_tensor(
    storage: Any, offset: Any, size: Any, stride: Any, quantizer: Any, requires_grad: Any, hooks: Any
) -> Any:
    from flambeau.ao.quantized_tensor import rebuild

    if not isinstance(quantizer, tuple):
        raise UnpicklingError(f"[load] expected a grid, got {type(quantizer).__name__}")
    return rebuild(storage, offset, size, stride, quantizer)


def _set_attributes(target: Any, state: Any) -> Any:
    """Plain attributes; a name of the class is not one, so that a file cannot replace methods."""
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for part in (attributes, slots):
        if part is None:
            continue
        if not isinstance(part, dict):
            raise UnpicklingError(f"[load] expected a dict of attributes, got {type(part).__name__}")
        for name, value in part.items():
            if not isinstance(name, str) or (hasattr(type(target), name) and name.startswith("__")):
                raise UnpicklingError(f"[load] expected names of attributes, got {name!r}")
            setattr(target, name, value)
    return target


def encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How bytes are written by protocol 2."""
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise UnpicklingError("[load] expected text in latin1, got something else to encode")
    return text.encode("latin1")


def make_bytearray(data: Any = b"", encoding: Any = "latin1") -> bytearray:
    if type(data) is str:
        data = encode(data, encoding)
    if not isinstance(data, (bytes, bytearray)):
        raise UnpicklingError(f"[load] expected bytes for a bytearray, got {type(data).__name__}")
    return bytearray(data)


def _checked_items(items: Any) -> Any:
    for item in items:
        check_key(item)
    return items


def make_set(items: Any = ()) -> set[Any]:
    return set(_checked_items(_need_sequence(items)))


def make_frozenset(items: Any = ()) -> frozenset[Any]:
    return frozenset(_checked_items(_need_sequence(items)))


def _need_sequence(items: Any) -> Any:
    if not isinstance(items, (list, tuple, set, frozenset)):
        raise UnpicklingError(f"[load] expected a sequence, got {type(items).__name__}")
    return items


def make_ordered_dict(items: Any = ()) -> OrderedDict[Any, Any]:
    if isinstance(items, dict):
        return OrderedDict(items)
    return OrderedDict((check_key(key), value) for key, value in _need_sequence(items))


def make_counter(items: Any = ()) -> Counter[Any]:
    return Counter(items if isinstance(items, dict) else _checked_items(_need_sequence(items)))


def make_size(items: Any = ()) -> Any:
    return flambeau.Size(_need_sequence(items))


def make_complex(real: Any = 0.0, imaginary: Any = 0.0) -> complex:
    if not isinstance(real, (int, float)) or not isinstance(imaginary, (int, float)):
        raise UnpicklingError("[load] expected two numbers for a complex one, got other values")
    return complex(real, imaginary)


def make_device(*where: Any) -> Any:
    return flambeau.device(*where)


def get_layout(name: Any) -> Any:
    if name not in _LAYOUTS:
        raise UnpicklingError(f"[load] expected one of the layouts {sorted(_LAYOUTS)}, got {name!r}")
    return _LAYOUTS[name]


def rebuild_sparse_tensor(layout: Any, data: Any) -> Tensor:
    """`_rebuild_sparse_tensor`: the parts are checked as if the user had given them."""
    if layout not in _LAYOUTS.values() or type(data) is not tuple or len(data) not in (3, 4):
        raise UnpicklingError("[load] expected the layout and the parts of a sparse tensor, got other values")
    tensors = data[:2] if layout is flambeau.sparse_coo else data[:3]
    for part in tensors:
        _need_tensor(part)
    from flambeau.sparse.methods import rebuild

    return rebuild(layout, data)


def check_key(key: Any) -> Any:
    """A value that can be hashed at a cost in proportion to the file: tuples that share parts can be exponential."""
    if type(key) in (str, int, float, bool, bytes, type(None)):
        return key
    left = _MAX_TUPLE_NODES
    waiting = [key]
    while waiting:
        item = waiting.pop()
        left -= 1
        if left < 0:
            raise UnpicklingError("[load] expected simple keys, got a tuple with too many parts")
        if isinstance(item, (tuple, frozenset)):
            waiting.extend(item)
    try:
        hash(key)
    except TypeError:
        raise UnpicklingError(f"[load] expected keys that can be hashed, got {type(key).__name__}") from None
    return key


class _FromType:
    """`_rebuild_from_type_v2`: a tensor made by a known function and given a known class and attributes."""

    def __call__(self, function: Any, kind: Any, args: Any, state: Any) -> Any:
        if id(function) not in _CALLABLE_IDS or function is self or type(args) is not tuple:
            raise UnpicklingError("[load] expected a tensor made by a known function, got another one")
        tensor = _need_tensor(function(*args))
        if kind is not Tensor and kind is not type(tensor):
            if not (isinstance(kind, type) and issubclass(kind, Tensor)):
                raise UnpicklingError("[load] expected a class of tensors, got something else")
            tensor = tensor.as_subclass(kind)
        if getattr(type(tensor), "__setstate__", Tensor.__setstate__) is not Tensor.__setstate__:
            tensor.__setstate__(state)  # of a class that the caller allowed
            return tensor
        return _set_attributes(tensor, state)


def rebuild_wrapper_subclass(
    kind: Any, dtype: Any, size: Any, stride: Any, offset: Any, layout: Any, device: Any, requires_grad: Any
) -> Any:
    """A tensor without memory of its own, of a class that was allowed."""
    if not (isinstance(kind, type) and issubclass(kind, Tensor) and _is_named(kind)):
        raise UnpicklingError("[load] expected a class of tensors that was allowed, got another one")
    return _utils._rebuild_wrapper_subclass(kind, dtype, size, stride, offset, layout, device, requires_grad)


# Dtypes that have no typed storage: their tensors name the dtype beside the bytes.
STORED_DTYPES = (
    "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    "complex32",
)  # fmt: skip
_LAYOUTS = {
    str(kind): kind
    for kind in (
        flambeau.strided,
        flambeau.sparse_coo,
        flambeau.sparse_csr,
        flambeau.sparse_csc,
        flambeau.sparse_bsr,
        flambeau.sparse_bsc,
    )
}
CONTAINERS = (make_ordered_dict, make_counter, make_set, make_frozenset)
_CALLABLE: dict[str, Any] = {
    "torch._utils._rebuild_qtensor": rebuild_quantized_tensor,
    "torch._utils._rebuild_sparse_tensor": rebuild_sparse_tensor,
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": rebuild_parameter_with_state,
    "torch._utils._rebuild_meta_tensor_no_storage": rebuild_meta_tensor,
    "torch._utils._rebuild_wrapper_subclass": rebuild_wrapper_subclass,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": rebuild_device_tensor,
    "torch._tensor._rebuild_from_type_v2": _FromType(),
    "torch._utils._rebuild_from_type_v2": _FromType(),
    "torch.serialization._get_layout": get_layout,
    "torch.Size": make_size,
    **dict.fromkeys(packed_objects.NAMES, packed_objects.PackedObject),
    "torch.device": make_device,
    "collections.OrderedDict": make_ordered_dict,
    "collections.Counter": make_counter,
    "builtins.set": make_set,
    "builtins.frozenset": make_frozenset,
    "builtins.bytearray": make_bytearray,
    "builtins.complex": make_complex,
    "_codecs.encode": encode,
}
_VALUES: dict[str, Any] = {
    "torch.Tensor": Tensor,
    "torch.storage.UntypedStorage": StorageKind(None),
}
_VALUES.update(_LAYOUTS)
_VALUES.update((f"torch.{name}", getattr(flambeau, name)) for name in STORED_DTYPES)
for _dtype, _name in STORAGE_NAMES.items():
    _VALUES[f"torch.{_name}"] = StorageKind(_dtype)
    _VALUES[f"torch.cuda.{_name}"] = StorageKind(_dtype)
    _VALUES[str(_dtype)] = _dtype
for _name, _dtype in (
    ("QInt8", flambeau.int8), ("QUInt8", flambeau.uint8), ("QInt32", flambeau.int32), ("QUInt4x2", flambeau.uint8)
):  # fmt: skip
    _VALUES[f"torch.{_name}Storage"] = StorageKind(_dtype)  # integers; what the tensor is says its grid
_QUANTIZED_NAMES = frozenset(
    f"torch.{name}"
    for name in (
        "qint8 quint8 qint32 quint4x2 quint2x4 per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric "
        "per_channel_affine_float_qparams"
    ).split()
)  # found in the package when a file has them, which is seldom
_CALLABLE_IDS = frozenset(id(value) for value in _CALLABLE.values())


# ---------------------------------------------------------------------------------------------- what users allow

_user_globals: dict[str, Any] = {}
_own_globals: dict[str, Any] = {}  # classes of this package, which name themselves when they are imported


def add_own_globals(table: dict[str, Any]) -> None:
    _own_globals.update(table)


def _is_named(item: Any) -> bool:
    return any(item is known for table in (_own_globals, _user_globals) for known in table.values())


def global_name(item: Any) -> tuple[str, Any]:
    """The name under which a checkpoint refers to an object, and the object; a pair gives both explicitly."""
    from flambeau.serialization.pickler import torch_name

    if isinstance(item, tuple):
        if len(item) != 2 or not isinstance(item[1], str):
            raise ValueError(f"[safe_globals] expected an object or (object, 'module.name'), got {item!r}")
        return item[1], item[0]
    module, name = getattr(item, "__module__", None), getattr(item, "__qualname__", None)
    if not module or not name:
        raise ValueError(f"[safe_globals] expected a class or function, got {item!r}")
    return ".".join(torch_name(module, name)), item


def add_user_globals(items: Any) -> None:
    _user_globals.update(global_name(item) for item in items)


def user_globals() -> list[Any]:
    return list(_user_globals.values())


def replace_user_globals(table: dict[str, Any]) -> dict[str, Any]:
    before = dict(_user_globals)
    _user_globals.clear()
    _user_globals.update(table)
    return before


def canonical(module: str, name: str, protocol: int) -> str:
    """One spelling for a global: names of Python 2 and of this package are translated."""
    if protocol < 3:
        from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    if module == "flambeau" or module.startswith("flambeau."):
        module = "torch" + module[8:]
    return f"{module}.{name}"


def is_allowed(full: str) -> bool:
    known = full in _CALLABLE or full in _VALUES or full in _user_globals or full in _own_globals
    known = known or full in _QUANTIZED_NAMES
    return known or full == "torch.nn.parameter.Parameter"


# ---------------------------------------------------------------------------------------------- the machine


class SafeUnpickler:
    """Interprets one pickle; `load_storage` turns the references to storages into storages."""

    def __init__(self, data: bytes, load_storage: Callable[[Any], Any], encoding: str = "utf-8") -> None:
        self._data, self._load_storage, self._encoding = data, load_storage, encoding
        self._at = 0
        self._protocol = 2
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._result: Any = _MARK

    def load(self) -> Any:
        data, operations = self._data, self.operations()
        try:
            while self._result is _MARK:
                operation = operations[data[self._at]]
                self._at += 1
                operation(self)
        except (IndexError, struct.error, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, TypeError | AttributeError):  # raised by what was called with bad arguments
                raise UnpicklingError(f"[load] expected a well-formed checkpoint, got: {error}") from error
            raise UnpicklingError(
                f"[load] expected a well-formed pickle, got one that fails at byte {self._at}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return self._result

    def operations(self) -> Any:
        """What each opcode does."""
        return _OPERATIONS

    @property
    def position(self) -> int:
        """How many bytes were read."""
        return self._at

    # -- bytes

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise UnpicklingError("[load] expected more bytes in the pickle, got its end")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, code: str, size: int) -> Any:
        return struct.unpack(code, self.take(size))[0]

    def line(self) -> str:
        end = self._data.index(b"\n", self._at)
        piece = self._data[self._at : end]
        self._at = end + 1
        return piece.decode("utf-8")

    def text(self, count: int) -> None:
        self._stack.append(self.take(count).decode("utf-8", "surrogatepass"))

    # -- the stack

    def pop(self) -> Any:
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise UnpicklingError("[load] expected a value on the stack, got a mark")
        return self._stack.pop()

    def pop_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def drop_to_mark(self) -> None:
        self.pop_mark()

    # -- opcodes

    def proto(self) -> None:
        self._protocol = self.take(1)[0]
        if self._protocol > 5:
            raise UnpicklingError(f"[load] expected a pickle of protocol 2 to 5, got {self._protocol}")

    def frame(self) -> None:
        self.take(8)

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def stop(self) -> None:
        self._result = self.pop()

    def find(self, module: str, name: str) -> Any:
        full = canonical(module, name, self._protocol)
        for table in (_user_globals, _own_globals, _CALLABLE, _VALUES):
            if full in table:
                return table[full]
        if full == "torch.nn.parameter.Parameter":
            return flambeau.nn.Parameter
        if full in _QUANTIZED_NAMES:
            return getattr(flambeau, full[6:])
        if full.startswith("torch.") and full[6:] in _UNSUPPORTED_DTYPES:
            raise UnpicklingError(f"[load] expected a dtype that tensors can have here, got {full}")
        raise UnpicklingError(
            f"[load] expected a checkpoint of tensors and plain values, got the global {full}: Weights only load failed. "
            f"Unsupported global: GLOBAL {full} was not an allowed global by default. Nothing that a "
            "checkpoint names is imported or called unless it is known to be harmless. If you trust it, allow it by "
            f"`torch.serialization.add_safe_globals([{name}])` or `with torch.serialization.safe_globals([{name}])`; "
            "if you trust the whole file, load it with `weights_only=False`, which runs any code the file asks for."
        )

    def global_(self) -> None:
        module = self.line()
        self._stack.append(self.find(module, self.line()))

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise UnpicklingError("[load] expected the name of a global, got other values")
        self._stack.append(self.find(module, name))

    def _may_call(self, function: Any) -> bool:
        return id(function) in _CALLABLE_IDS or _is_named(function)

    def reduce(self) -> None:
        args, function = self.pop(), self.pop()
        if type(args) is not tuple:
            raise UnpicklingError("[load] expected a tuple of arguments, got another value")
        if not self._may_call(function):
            raise UnpicklingError(f"[load] expected a known function to call, got {type(function).__name__}")
        self._stack.append(function(*args))

    def newobj(self) -> None:
        args, kind = self.pop(), self.pop()
        self._stack.append(self._new(kind, args, {}))

    def newobj_ex(self) -> None:
        keywords, args, kind = self.pop(), self.pop(), self.pop()
        if type(keywords) is not dict:
            raise UnpicklingError("[load] expected keyword arguments, got another value")
        self._stack.append(self._new(kind, args, keywords))

    def _new(self, kind: Any, args: Any, keywords: dict[str, Any]) -> Any:
        if type(args) is not tuple:
            raise UnpicklingError("[load] expected a tuple of arguments, got another value")
        if _is_named(kind) and isinstance(kind, type):
            return kind.__new__(kind, *args, **keywords)
        if not keywords and self._may_call(kind):
            return kind(*args)
        raise UnpicklingError(f"[load] expected a known class to make an object of, got {type(kind).__name__}")

    def build(self) -> None:
        state = self.pop()
        target = self._stack[-1]
        kind = type(target)
        if kind is OrderedDict:
            if type(state) is not dict:
                raise UnpicklingError("[load] expected a dict of attributes, got another value")
            _set_attributes(target, state)
        elif _is_named(kind):
            if hasattr(target, "__setstate__"):
                target.__setstate__(state)
            else:
                _utils._set_obj_state(target, state)
        elif kind is packed_objects.PackedObject:
            target.__setstate__(state)
        elif isinstance(target, Tensor) and (kind is Tensor or kind is flambeau.nn.Parameter):
            _set_attributes(target, state)
        else:
            raise UnpicklingError(f"[load] expected an object whose state may be set, got {kind.__name__}")

    def persid(self) -> None:
        self._stack.append(self._load_storage(self.pop()))

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def append(self) -> None:
        item = self.pop()
        self._list().append(item)

    def appends(self) -> None:
        items = self.pop_mark()
        self._list().extend(items)

    def _list(self) -> list[Any]:
        target = self._stack[-1]
        if type(target) is not list:
            raise UnpicklingError(f"[load] expected a list to append to, got {type(target).__name__}")
        return target

    def _dict(self) -> dict[Any, Any]:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise UnpicklingError(f"[load] expected a dict to fill, got {type(target).__name__}")
        return target

    def setitem(self) -> None:
        value, key = self.pop(), self.pop()
        self._dict()[check_key(key)] = value

    def setitems(self) -> None:
        items = self.pop_mark()
        if len(items) % 2:
            raise UnpicklingError("[load] expected pairs of keys and values, got an odd number")
        target = self._dict()
        for i in range(0, len(items), 2):
            target[check_key(items[i])] = items[i + 1]

    def additems(self) -> None:
        items = self.pop_mark()
        target = self._stack[-1]
        if type(target) is not set:
            raise UnpicklingError(f"[load] expected a set to add to, got {type(target).__name__}")
        target.update(_checked_items(items))

    def dict_(self) -> None:
        items = self.pop_mark()
        self._stack.append({check_key(items[i]): items[i + 1] for i in range(0, len(items), 2)})

    def small_tuple(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self._stack.append(tuple(reversed(items)))

    def long(self, size: int) -> None:
        self._stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def python2_bytes(self, count: int) -> None:
        raw = self.take(count)
        self._stack.append(raw if self._encoding == "bytes" else raw.decode(self._encoding))

    def pop_top(self) -> None:
        if self._marks and len(self._stack) == self._marks[-1]:
            self._marks.pop()
        else:
            self._stack.pop()


def _push(value: Any) -> Callable[[SafeUnpickler], None]:
    return lambda s: s._stack.append(value)


def _make(kind: Any) -> Callable[[SafeUnpickler], None]:
    return lambda s: s._stack.append(kind())


def _unknown(code: int) -> Callable[[SafeUnpickler], None]:
    def refuse(s: SafeUnpickler) -> None:
        raise UnpicklingError(
            f"[load] expected opcodes of plain data, got {code:#04x} at byte {s._at - 1}; "
            "the file is damaged, or needs weights_only=False"
        )

    return refuse


_UNSUPPORTED_DTYPES = frozenset(
    "float4_e2m1fn_x2 quint8 qint8 qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 bits4x2".split()
)
_BY_CODE: dict[bytes, Callable[[SafeUnpickler], None]] = {
    b"\x80": SafeUnpickler.proto, b"\x95": SafeUnpickler.frame, b"(": SafeUnpickler.mark, b".": SafeUnpickler.stop,
    b"c": SafeUnpickler.global_, b"\x93": SafeUnpickler.stack_global, b"R": SafeUnpickler.reduce,
    b"\x81": SafeUnpickler.newobj, b"\x92": SafeUnpickler.newobj_ex, b"b": SafeUnpickler.build,
    b"Q": SafeUnpickler.persid, b"\x94": SafeUnpickler.memoize,
    b"q": lambda s: s.put(s.take(1)[0]), b"r": lambda s: s.put(s.number("<I", 4)),
    b"h": lambda s: s.get(s.take(1)[0]), b"j": lambda s: s.get(s.number("<I", 4)),
    b"a": SafeUnpickler.append, b"e": SafeUnpickler.appends, b"s": SafeUnpickler.setitem,
    b"u": SafeUnpickler.setitems, b"\x90": SafeUnpickler.additems, b"d": SafeUnpickler.dict_,
    b"0": SafeUnpickler.pop_top, b"1": lambda s: s.drop_to_mark(), b"2": lambda s: s._stack.append(s._stack[-1]),
    b"]": _make(list), b"}": _make(dict), b"\x8f": _make(set), b")": _push(()),
    b"N": _push(None), b"\x88": _push(True), b"\x89": _push(False),
    b"t": lambda s: s._stack.append(tuple(s.pop_mark())), b"l": lambda s: s._stack.append(s.pop_mark()),
    b"\x91": lambda s: s._stack.append(frozenset(_checked_items(s.pop_mark()))),
    b"\x85": lambda s: s.small_tuple(1), b"\x86": lambda s: s.small_tuple(2), b"\x87": lambda s: s.small_tuple(3),
    b"K": lambda s: s._stack.append(s.take(1)[0]), b"M": lambda s: s._stack.append(s.number("<H", 2)),
    b"J": lambda s: s._stack.append(s.number("<i", 4)), b"G": lambda s: s._stack.append(s.number(">d", 8)),
    b"\x8a": lambda s: s.long(s.take(1)[0]), b"\x8b": lambda s: s.long(s.number("<i", 4)),
    b"X": lambda s: s.text(s.number("<I", 4)), b"\x8c": lambda s: s.text(s.take(1)[0]),
    b"\x8d": lambda s: s.text(s.number("<Q", 8)),
    b"C": lambda s: s._stack.append(s.take(s.take(1)[0])), b"B": lambda s: s._stack.append(s.take(s.number("<I", 4))),
    b"\x8e": lambda s: s._stack.append(s.take(s.number("<Q", 8))),
    b"\x96": lambda s: s._stack.append(bytearray(s.take(s.number("<Q", 8)))),
    b"U": lambda s: s.python2_bytes(s.take(1)[0]), b"T": lambda s: s.python2_bytes(s.number("<i", 4)),
}  # fmt: skip
_OPERATIONS = [_BY_CODE.get(bytes([code])) or _unknown(code) for code in range(256)]


def globals_in(data: bytes) -> list[str]:
    """Every global that a pickle names, without interpreting anything but its strings."""
    import pickletools

    names: dict[str, None] = {}
    protocol = 2
    strings: list[str] = []
    memo: dict[int, str] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "PROTO":
            protocol = argument
        elif opcode.name == "GLOBAL":
            module, _, name = argument.partition(" ")
            names[canonical(module, name, protocol)] = None
        elif opcode.name == "STACK_GLOBAL" and len(strings) >= 2:
            names[canonical(strings[-2], strings[-1], protocol)] = None
        elif "UNICODE" in opcode.name:
            strings.append(argument)
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = strings[-1] if strings else ""
        elif opcode.name in ("BINGET", "LONG_BINGET") and argument in memo:
            strings.append(memo[argument])
    return list(names)
