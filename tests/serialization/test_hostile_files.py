"""Files made to do harm: nothing is run, nothing crashes, nothing takes longer than its size explains."""

import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile

import pytest

import flambeau as fl
from flambeau.serialization.archive import Writer


def checkpoint(pickled, records=None):
    file = io.BytesIO()
    writer = Writer(file)
    writer.add("data.pkl", pickled)
    for name, data in (records or {}).items():
        writer.add(name, data)
    writer.finish()
    file.seek(0)
    return file


def loads(pickled, records=None):
    return fl.load(checkpoint(pickled, records))


class Evil:
    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "function, args",
    [
        (os.system, ("touch /tmp/flambeau_was_here",)),
        (eval, ("1/0",)),
        (exec, ("raise SystemExit",)),
        (__import__, ("antigravity",)),
        (bytearray, (10**12,)),
        (open, ("/etc/passwd",)),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_calls_are_refused(function, args, protocol, tmp_path):
    try:
        data = pickle.dumps(Evil(function, *args), protocol)
    except TypeError:
        pytest.skip("cannot be pickled at all")
    with pytest.raises(pickle.UnpicklingError):
        loads(data)
    assert not os.path.exists("/tmp/flambeau_was_here")


def tensor_pickle(offset, size, stride, count=4, key="0"):
    """A tensor over a storage of `count` floats, with any window."""

    def ints(values):
        return pickle.dumps(tuple(values), 2)[2:-1]

    storage = (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX"
        + struct.pack("<I", len(key))
        + key.encode()
        + b"X\x03\x00\x00\x00cpu"
        + pickle.dumps(count, 2)[2:-1]
        + b"tQ"
    )
    body = storage + pickle.dumps(offset, 2)[2:-1] + ints(size) + ints(stride)
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + body + b"\x89ccollections\nOrderedDict\n)RtR."


FOUR = {"data/0": struct.pack("<4f", 1, 2, 3, 4)}


def test_the_window_builder_makes_good_tensors_too():
    assert loads(tensor_pickle(1, (3,), (1,)), FOUR).tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "offset, size, stride",
    [
        (0, (5,), (1,)), (4, (1,), (1,)), (-1, (1,), (1,)), (0, (2,), (4,)), (0, (-1,), (1,)), (0, (2,), (-1,)),
        (2**62, (1,), (1,)), (0, (2**62, 2**62), (2**62, 2**62)), (2**63, (1,), (1,)), (0, (2,), (1, 1)),
        (0, (1,) * 70, (1,) * 70),
    ],
)  # fmt: skip
def test_windows_outside_the_storage_are_refused(offset, size, stride):
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):
        loads(tensor_pickle(offset, size, stride), FOUR)


def test_storages_longer_than_their_record_are_refused():
    for count in (5, 2**40, 2**70):
        with pytest.raises((pickle.UnpicklingError, RuntimeError)):
            loads(tensor_pickle(0, (1,), (1,), count=count), FOUR)
    with pytest.raises(RuntimeError, match="no record"):
        loads(tensor_pickle(0, (1,), (1,), key="../../etc/passwd"), FOUR)


def test_keys_that_take_for_ever_to_hash_are_refused():
    nested = b")" + b"\x85" + b"".join(b"2\x86" for _ in range(60))
    with pytest.raises(pickle.UnpicklingError, match="keys"):
        loads(b"\x80\x02}" + nested + b"Ns.")


def test_a_bomb_is_not_inflated():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps(1, 2))
        archive.writestr("a/data/0", bytes(10_000_000))
    raw = bytearray(file.getvalue())
    at = raw.rindex(b"PK\x01\x02")
    raw[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFFF0)  # claims four gigabytes
    with pytest.raises(RuntimeError, match="contradict"):
        fl.load(io.BytesIO(raw))


def test_overlapping_records_are_refused():
    raw = bytearray(checkpoint(pickle.dumps([1] * 50, 2), {"data/0": bytes(200)}).getvalue())
    first = raw.index(b"PK\x01\x02")
    second = raw.index(b"PK\x01\x02", first + 4)
    raw[second + 42 : second + 46] = raw[first + 42 : first + 46]
    with pytest.raises(RuntimeError):
        fl.load(io.BytesIO(raw))


def test_mutated_checkpoints_never_do_more_than_raise():
    """Bit flips, cuts and pickle opcodes in wrong places, thousands of times."""
    choose = random.Random(0)
    base = fl.arange(12.0)
    value = {"w": base, "v": base[3:].view(3, 3), "p": fl.nn.Parameter(fl.ones(2)), "n": [1, "x", (2.5, None), {3}]}
    file = io.BytesIO()
    fl.save(value, file)
    good = file.getvalue()
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        parts = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    pickled = parts.pop("data.pkl")
    opcodes = (
        b"(.012FGIJKLMNPQRSTUVXabcdeghijlopqrstu]}\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x90\x92\x93\x94\x95\x96"
    )
    loaded = 0
    for trial in range(6000):
        kind = trial % 4
        if kind == 0:  # anywhere in the file
            data = bytearray(good)
            for _ in range(choose.randrange(1, 4)):
                data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
            candidate = io.BytesIO(data)
        elif kind == 1:
            candidate = io.BytesIO(good[: choose.randrange(len(good))])
        else:  # in the pickle, with a good checksum
            data = bytearray(pickled)
            for _ in range(choose.randrange(1, 6)):
                at = choose.randrange(len(data))
                if kind == 2:
                    data[at] = choose.choice(opcodes)
                else:
                    data[at:at] = bytes(choose.choice(opcodes) for _ in range(choose.randrange(1, 4)))
            candidate = checkpoint(bytes(data), parts)
        try:
            result = fl.load(candidate)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError):
            continue
        loaded += 1
        repr(result)  # values that were accepted are usable
    assert loaded > 0


def test_mutated_files_can_be_mapped(tmp_path):
    choose = random.Random(1)
    path = tmp_path / "x.pt"
    fl.save([fl.arange(50.0), fl.ones(3, 3)], path)
    good = path.read_bytes()
    for _ in range(300):
        data = bytearray(good)
        for _ in range(3):
            data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        path.write_bytes(data[: len(data) - choose.choice([0, 0, 0, 7])])
        try:
            for tensor in fl.load(path, mmap=True):
                tensor.sum()
        except (pickle.UnpicklingError, RuntimeError, ValueError, AttributeError, TypeError):
            pass


def test_compression_bombs_are_refused_before_they_are_inflated(tmp_path):
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", pickle.dumps({}))
        archive.writestr("bomb/version", "3")
        with archive.open("bomb/data/0", "w") as record:
            for _ in range(128):
                record.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(RuntimeError, match="compressed records of"):
        fl.load(path)
    with pytest.raises(Exception, match="compressed records of"):
        fl.export.load(path)


def test_saves_of_killed_processes_leave_nothing(tmp_path):
    target = tmp_path / "model.pt"
    program = f"""
import os, flambeau as fl
class Slow:
    def __getstate__(self): return {{}}
import flambeau.serialization as s
with s.replacing({str(target)!r}) as sink:
    sink.write(bytes(1 << 16))
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -9
    assert not target.exists()
    left = list(tmp_path.iterdir())  # only where files need names
    old = tmp_path / f".model.pt.{2**22 + 5}.0badc0de.tmp"
    old.write_bytes(b"x")
    os.utime(old, (0, 0))
    fl.save({"a": 1}, target)
    assert not old.exists() and fl.load(target) == {"a": 1}
    assert set(tmp_path.iterdir()) == {target, *left}
    if hasattr(os, "O_TMPFILE"):
        assert left == []
