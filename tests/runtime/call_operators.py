"""Calls operators of the library in a process that has no kernels of Python: `call_operators.py LIBRARY CALLS`.

CALLS has one JSON object a line: `name`, whether it is a `method`, and `arguments`, pairs of a name or null and a value. Prints names of operators that
fail, each with what was said.
"""

import ctypes
import json
import sys

NUMBERS = {"bool": 2, "int": 3, "dtype": 7, "memory_format": 13}


class Content(ctypes.Union):
    _fields_ = (
        ("integer", ctypes.c_int64),
        ("number", ctypes.c_double),
        ("complex_number", ctypes.c_double * 2),
        ("pointer", ctypes.c_void_p),
    )


class Value(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("name", ctypes.c_char_p), ("held", Content), ("length", ctypes.c_size_t))


class Caller:
    def __init__(self, library):
        self.library = library
        self.alive = []

    def pointer(self, array):
        self.alive.append(array)
        return ctypes.cast(array, ctypes.c_void_p)

    def tensor(self, described):
        data = bytearray(bytes.fromhex(described["data"]) or b"\0")
        memory = (ctypes.c_char * len(data)).from_buffer(data)
        sizes = (ctypes.c_int64 * max(1, len(described["sizes"])))(*described["sizes"])
        made = ctypes.c_void_p()
        count = ctypes.c_size_t(len(described["sizes"]))
        pointer = self.pointer(memory)
        if self.library.fl_tensor_from_blob(
            pointer, described["dtype"], sizes, None, count, None, None, ctypes.byref(made)
        ):
            raise RuntimeError(self.library.fl_error().decode())
        return made

    def value(self, name, described):
        (kind, held), *_ = described.items()
        made = Value(name=name.encode() if name else None)
        if kind == "tensor":
            made.kind, made.held.pointer = 1, self.tensor(held).value
        elif kind in NUMBERS:
            made.kind, made.held.integer = NUMBERS[kind], held
        elif kind == "float":
            made.kind, made.held.number = 4, held
        elif kind == "complex":
            made.kind, made.held.complex_number = 5, (ctypes.c_double * 2)(*held)
        elif kind in ("str", "device"):
            text = ctypes.create_string_buffer(held.encode())
            made.kind, made.held.pointer = (6 if kind == "str" else 8), self.pointer(text).value
        elif kind != "none":
            made.length = len(held)
            if kind == "tensors":
                items = [None if t is None else self.tensor(t).value for t in held]
                made.kind, array = 11, (ctypes.c_void_p * max(1, len(held)))(*items)
            else:
                made.kind, item = {
                    "ints": (9, ctypes.c_int64),
                    "floats": (10, ctypes.c_double),
                    "bools": (12, ctypes.c_uint8),
                }[kind]
                array = (item * max(1, len(held)))(*held)
            made.held.pointer = self.pointer(array).value
        return made


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.fl_error.restype = ctypes.c_char_p
    with open(sys.argv[2], encoding="utf-8") as file:
        calls = [json.loads(line) for line in file]
    for call in calls:
        caller = Caller(library)
        values = [caller.value(name, described) for name, described in call["arguments"]]
        arguments = (Value * max(1, len(values)))(*values)
        results, count = (Value * 64)(), ctypes.c_size_t()
        sizes = ctypes.c_size_t(len(values)), ctypes.c_size_t(64)
        function = library.fl_call_method if call["method"] else library.fl_call
        if function(call["name"].encode(), arguments, sizes[0], results, sizes[1], ctypes.byref(count)):
            print(call["name"], library.fl_error().decode().replace("\n", " "), sep="\t")
        else:
            library.fl_values_clear(results, count)


main()
