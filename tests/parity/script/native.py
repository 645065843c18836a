"""The native machine for archives, reached through the C interface: `load(path)` gives a function over tensors and plain values."""

import ctypes
import importlib.util
import pathlib

import torch

# The library without its Python: operators run as they do in a C++ program.
LIBRARY = ctypes.CDLL(str(pathlib.Path(importlib.util.find_spec("flambeau").origin).with_name("libflambeau.so")))
LIBRARY.fl_error.restype = ctypes.c_char_p
LIBRARY.fl_object_length.restype = ctypes.c_size_t
P = ctypes.c_void_p
ctypes.pythonapi.PyCapsule_GetPointer.restype = P
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
ctypes.pythonapi.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [P, ctypes.c_char_p, P]
NONE, TENSOR, BOOL, INT, FLOAT, COMPLEX, STRING, DTYPE, DEVICE = range(9)


class Content(ctypes.Union):
    _fields_ = [
        ("integer", ctypes.c_int64),
        ("number", ctypes.c_double),
        ("complex", ctypes.c_double * 2),
        ("pointer", P),
        ("string", ctypes.c_char_p),
    ]


class Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("name", ctypes.c_char_p), ("content", Content), ("length", ctypes.c_size_t)]


def check(status):
    if status:
        raise RuntimeError(LIBRARY.fl_error().decode(errors="replace"))


def tensor_handle(tensor):
    capsule = tensor.detach().contiguous().__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
    ctypes.pythonapi.PyCapsule_SetName(capsule, b"used_dltensor")
    handle = P()
    check(LIBRARY.fl_tensor_from_dlpack(P(pointer), ctypes.byref(handle)))
    return handle


def to_object(value):
    made = P()
    if isinstance(value, (list, tuple, dict)):
        items = [x for pair in value.items() for x in pair] if isinstance(value, dict) else list(value)
        handles = (P * len(items))(*[to_object(x) for x in items])
        kind = 3 if isinstance(value, dict) else 2 if isinstance(value, tuple) else 1
        check(LIBRARY.fl_object_from_items(kind, handles, ctypes.c_size_t(len(items)), ctypes.byref(made)))
        return made
    plain = Value()
    if isinstance(value, torch.Tensor):
        plain.kind, plain.content.pointer = TENSOR, tensor_handle(value).value
    elif isinstance(value, bool):
        plain.kind, plain.content.integer = BOOL, value
    elif isinstance(value, int):
        plain.kind, plain.content.integer = INT, value
    elif isinstance(value, float):
        plain.kind, plain.content.number = FLOAT, value
    elif isinstance(value, str):
        plain.kind, plain.content.string = STRING, value.encode()
    elif value is not None:
        raise TypeError(f"no value of the C interface for {type(value)}")
    check(LIBRARY.fl_object_from_value(ctypes.byref(plain), ctypes.byref(made)))
    return made


def tensor_of(handle):
    managed = P()
    # Results on the way out are detached: the exchange has no gradients.
    check(LIBRARY.fl_tensor_to_dlpack(P(handle), ctypes.byref(managed)))
    return torch.from_dlpack(ctypes.pythonapi.PyCapsule_New(managed, b"dltensor", None)).clone()


def from_object(handle):
    kind = LIBRARY.fl_object_kind_of(handle)
    if kind in (1, 2, 3):
        items = []
        for index in range(LIBRARY.fl_object_length(handle)):
            item = P()
            check(LIBRARY.fl_object_item(handle, ctypes.c_size_t(index), ctypes.byref(item)))
            items.append(from_object(item))
        return dict(zip(items[::2], items[1::2])) if kind == 3 else tuple(items) if kind == 2 else items
    value = Value()
    check(LIBRARY.fl_object_value(handle, ctypes.byref(value)))
    content = value.content
    if value.kind == TENSOR:
        return tensor_of(content.pointer)
    if value.kind == STRING:
        return content.string.decode()
    if value.kind == COMPLEX:
        return complex(*content.complex)
    return {NONE: None, BOOL: bool(content.integer), INT: content.integer, FLOAT: content.number}[value.kind]


def load(path):
    module = P()
    check(LIBRARY.fl_script_load(str(path).encode(), ctypes.byref(module)))

    def forward(*args):
        handles = (P * len(args))(*[to_object(a) for a in args])
        result = P()
        check(
            LIBRARY.fl_object_call(module, b"forward", handles, None, ctypes.c_size_t(len(args)), ctypes.byref(result))
        )
        return from_object(result)

    return forward
