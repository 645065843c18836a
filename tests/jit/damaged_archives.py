"""Loads damaged copies of archives with the native machine and calls them: `damaged_archives.py LIBRARY COUNT ARCHIVE...`.

Members are changed and stored with a checksum that holds, so that the damage reaches the parser, the unpickler and the machine.
"""

import ctypes
import io
import random
import sys
import zipfile

P = ctypes.c_void_p


def damaged(members, generator):
    """The archive with a few bytes of one member changed, removed or doubled."""
    names = [n for n in members if n.endswith((".py", ".pkl")) and not n.endswith("debug_pkl")]
    target = generator.choice(names)
    data = bytearray(members[target])
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(data))
        action = generator.randrange(4)
        if action == 0:
            del data[at : at + generator.randint(1, 8)]
        elif action == 1:
            data[at:at] = data[max(0, at - 6) : at]
        elif target.endswith(".py"):
            # No digits: numbers of loops stay as they are.
            data[at] = ord(generator.choice("()[],.:=abcdefghijklmnopqrstuvwxyz_ \n\"'"))
        else:
            data[at] = generator.randrange(256)
        if not data:
            break
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, bytes(data) if name == target else member)
    return content.getvalue()


def main():
    library = ctypes.CDLL(sys.argv[1])
    generator = random.Random(0)
    archives = []
    for path in sys.argv[3:]:
        with zipfile.ZipFile(path) as archive:
            archives.append({name: archive.read(name) for name in archive.namelist()})
    shape = (ctypes.c_int64 * 2)(3, 4)
    numbers = (ctypes.c_float * 12)(*range(12))
    refused = called = 0
    for _ in range(int(sys.argv[2])):
        content = damaged(generator.choice(archives), generator)
        module, tensor, argument, result = P(), P(), P(), P()
        if library.fl_script_load_memory(content, ctypes.c_size_t(len(content)), ctypes.byref(module)):
            refused += 1
            continue
        library.fl_tensor_from_blob(numbers, 6, shape, None, ctypes.c_size_t(2), None, None, ctypes.byref(tensor))
        value = (ctypes.c_uint64 * 5)(1, 0, tensor.value, 0, 0)  # an fl_value that holds a tensor
        library.fl_object_from_value(value, ctypes.byref(argument))
        library.fl_object_call(module, b"forward", (P * 1)(argument), None, ctypes.c_size_t(1), ctypes.byref(result))
        for handle in (result, argument, module):
            library.fl_object_release(handle)
        library.fl_tensor_release(tensor)
        called += 1
    print(refused, called)


main()
