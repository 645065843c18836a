"""save and load: what goes in comes out, views keep sharing, files are replaced as a whole."""

import collections
import io
import os
import pickle
import struct
import sys
import zipfile

import pytest

import flambeau as fl
from flambeau import serialization

DTYPES = [
    fl.bool, fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64, fl.float16, fl.bfloat16, fl.float32, fl.float64,
    fl.complex64, fl.complex128,
]  # fmt: skip


def through(value, *, protocol=2, **options):
    file = io.BytesIO()
    fl.save(value, file, pickle_protocol=protocol)
    file.seek(0)
    return fl.load(file, **options)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("weights_only", [True, False])
def test_plain_values_survive(protocol, weights_only):
    value = {
        "ints": [0, -1, 255, 65536, 2**40, -(2**70)],
        "floats": (1.5, float("inf")),
        "text": "äöü",
        "bytes": b"\x00\xff",
        "array": bytearray(b"abc"),
        "set": {1, 2},
        "ordered": collections.OrderedDict(b=1, a=2),
        "nested": {"x": [{"y": None}, True, False]},
        "complex": 1 + 2j,
        "dtype": fl.bfloat16,
        "device": fl.device("cpu"),
        "size": fl.Size([2, 3]),
        3: "number as key",
        (1, "a"): "tuple as key",
    }
    out = through(value, protocol=protocol, weights_only=weights_only)
    assert out == value
    assert list(out["ordered"]) == ["b", "a"] and type(out["ordered"]) is collections.OrderedDict


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype):
    value = fl.arange(24).reshape(2, 3, 4).to(dtype)
    for tensor in (value, value.transpose(0, 2), value[1:, ::2], value[0, 0, 0], value[:0]):
        out = through(tensor)
        assert out.dtype == dtype and out.shape == tensor.shape and out.stride() == tensor.stride()
        assert fl.equal(out, tensor)


def test_views_share_their_storage_after_loading():
    base = fl.arange(6.0)
    out = through({"base": base, "view": base[2:].view(2, 2), "twice": [base, base]})
    out["base"][2] = 99
    assert out["view"][0, 0] == 99
    assert out["twice"][0] is out["base"] and out["twice"][1] is out["base"]


def test_requires_grad_and_parameters():
    tensor = fl.ones(2, requires_grad=True)
    parameter = fl.nn.Parameter(fl.ones(3), requires_grad=False)
    out = through([tensor, parameter, fl.nn.Parameter(fl.zeros(1))])
    assert out[0].requires_grad
    assert isinstance(out[1], fl.nn.Parameter) and not out[1].requires_grad and out[2].requires_grad


def test_storages():
    tensor = fl.tensor([1.0, 2.0])
    typed, untyped = through([tensor.storage(), fl.tensor([1, 2], dtype=fl.uint8).untyped_storage()])
    assert typed.tolist() == [1.0, 2.0] and typed.dtype == fl.float32
    assert untyped.tolist() == [1, 2] and isinstance(untyped, fl.UntypedStorage)


def test_meta_tensors_need_no_bytes(tmp_path):
    out = through(fl.empty(3, 4, device="meta"))
    assert out.is_meta and out.shape == (3, 4)
    fl.save({"w": fl.ones(5)}, tmp_path / "w.pt")
    assert fl.load(tmp_path / "w.pt", map_location="meta")["w"].is_meta


@pytest.mark.parametrize("where", ["cpu", fl.device("cpu"), {"cpu": "cpu"}, lambda storage, place: storage, None])
def test_map_location(where):
    assert fl.equal(through(fl.ones(3), map_location=where), fl.ones(3))


def test_map_location_is_asked_for_each_storage():
    asked = []
    through([fl.ones(3), fl.ones(2)], map_location=lambda storage, place: asked.append((storage.nbytes(), place)))
    assert asked == [(12, "cpu"), (8, "cpu")]


def test_a_bad_map_location_is_refused():
    with pytest.raises(TypeError, match="map_location"):
        through(fl.ones(1), map_location=3.5)


def test_mapping_a_file_reads_nothing_and_never_writes_it(tmp_path):
    path = tmp_path / "big.pt"
    fl.save({"w": fl.arange(100_000.0)}, path)
    before = path.read_bytes()
    out = fl.load(path, mmap=True)["w"]
    assert out[99_999] == 99_999
    out[0] = 5
    assert out[0] == 5 and path.read_bytes() == before
    os.unlink(path)
    assert out[1] == 1
    with pytest.raises(ValueError, match="path"):
        fl.load(io.BytesIO(before), mmap=True)


def test_records_are_aligned_and_checksummed(tmp_path):
    path = tmp_path / "model.pt"
    fl.save({"a": fl.ones(3), "b": fl.zeros(1000)}, path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("model/version") == b"3\n"
        assert archive.read("model/byteorder") == sys.byteorder.encode()
        raw = path.read_bytes()
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", raw, info.header_offset + 26)
            assert (info.header_offset + 30 + name + extra) % 64 == 0
            assert info.compress_type == 0


def test_a_damaged_storage_is_noticed(tmp_path):
    path = tmp_path / "model.pt"
    fl.save(fl.arange(1000.0), path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(struct.pack("<f", 500.0))] ^= 1
    path.write_bytes(raw)
    with pytest.raises(RuntimeError, match="checksum"):
        fl.load(path)


def test_byte_order_of_another_machine():
    file = io.BytesIO()
    fl.save(fl.tensor([1.0, 2.0]), file)
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["archive/byteorder"] = b"big"
    parts["archive/data/0"] = struct.pack(">2f", 1.0, 2.0)
    swapped = io.BytesIO()
    with zipfile.ZipFile(swapped, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    swapped.seek(0)
    assert fl.load(swapped).tolist() == [1.0, 2.0]


def test_compressed_records_are_read():
    file = io.BytesIO()
    fl.save(fl.zeros(10_000), file)
    packed = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    packed.seek(0)
    assert fl.load(packed).shape == (10_000,)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.pt"
    fl.save(fl.ones(2), path)
    with pytest.raises(Exception, match="pickle"):
        fl.save([fl.zeros(2), lambda: None], path)
    assert fl.equal(fl.load(path), fl.ones(2))

    class Failing:
        def write(self, data):
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fl.save(fl.ones(2), Failing())
    assert os.listdir(tmp_path) == ["model.pt"]


def test_views_of_one_storage_with_two_dtypes_are_refused():
    tensor = fl.zeros(4)
    with pytest.raises(RuntimeError, match="one dtype"):
        fl.save([tensor, tensor.view(fl.int32)], io.BytesIO())


def test_other_formats_are_named():
    for data, word in (
        (b"\x80\x02}q\x00.", "plain pickle"),
        (b"garbage" * 50, "directory"),
        (b"PK\x03\x04", "bytes"),
    ):
        with pytest.raises(RuntimeError, match=word):
            fl.load(io.BytesIO(data))
    with pytest.raises(EOFError):
        fl.load(io.BytesIO())


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x


def test_classes_must_be_allowed():
    file = io.BytesIO()
    fl.save(Point(fl.ones(1)), file)
    file.seek(0)
    assert serialization.get_unsafe_globals_in_checkpoint(file) == [f"{Point.__module__}.Point"]
    file.seek(0)
    with pytest.raises(Exception, match=f"{Point.__module__}.Point"):
        fl.load(file)
    with serialization.safe_globals([Point]):
        file.seek(0)
        assert fl.load(file) == Point(fl.ones(1))
    assert serialization.get_safe_globals() == []
    file.seek(0)
    assert fl.load(file, weights_only=False) == Point(fl.ones(1))


def test_file_objects_and_paths(tmp_path):
    path = tmp_path / "x.pt"
    with open(path, "wb") as file:
        fl.save([1, fl.ones(2)], file)
    for source in (path, str(path)):
        assert fl.equal(fl.load(source)[1], fl.ones(2))
    with open(path, "rb") as file:
        assert fl.equal(fl.load(file)[1], fl.ones(2))
    with pytest.raises(RuntimeError, match="folder"):
        fl.save(1, tmp_path / "missing" / "x.pt")
    with pytest.raises(FileNotFoundError):
        fl.load(tmp_path / "missing.pt")


def test_odd_places_to_write_to(tmp_path):
    fl.save(fl.ones(3), "/dev/null")
    target, link = tmp_path / "target.pt", tmp_path / "link.pt"
    target.write_bytes(b"old")
    link.symlink_to(target)
    fl.save(fl.ones(3), link)
    assert link.is_symlink() and fl.equal(fl.load(target), fl.ones(3))
    with open(tmp_path / "raw.pt", "wb", buffering=0) as file:
        fl.save(fl.ones(3), file)
    assert fl.equal(fl.load(tmp_path / "raw.pt"), fl.ones(3))

    class Short(io.RawIOBase):
        """Takes seven bytes at a time."""

        def __init__(self):
            self.data = bytearray()

        def writable(self):
            return True

        def write(self, data):
            self.data += bytes(data[:7])
            return min(7, len(data))

    short = Short()
    fl.save({"a": fl.arange(100)}, short)
    assert fl.equal(fl.load(io.BytesIO(short.data))["a"], fl.arange(100))


def test_many_processes_may_write_one_file(tmp_path):
    path = tmp_path / "shared.pt"
    children = []
    for i in range(4):
        pid = os.fork()
        if pid == 0:
            for _ in range(10):
                fl.save({"w": fl.full((10_000,), float(i))}, path)
            os._exit(0)
        children.append(pid)
    for _ in range(20):
        if path.exists():
            value = fl.load(path)["w"]
            assert (value == value[0]).all()
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    assert os.listdir(tmp_path) == ["shared.pt"]


def test_another_module_may_do_the_pickling():
    import pickle
    import types

    class Pickler(pickle._Pickler):
        """Writes functions without a name by what they return."""

        dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

        def save_function(self, function):
            self.save_reduce(str, (f"calls {function()}",), obj=function)

        dispatch[types.FunctionType] = save_function

    module = types.SimpleNamespace(Pickler=Pickler, Unpickler=pickle.Unpickler, __name__="other")
    file = io.BytesIO()
    fl.save({"f": lambda: 3, "t": fl.ones(2), "p": fl.nn.Parameter(fl.ones(1))}, file, pickle_module=module)
    file.seek(0)
    out = fl.load(file, pickle_module=module)
    assert out["f"] == "calls 3" and fl.equal(out["t"], fl.ones(2)) and isinstance(out["p"], fl.nn.Parameter)
    with pytest.raises(RuntimeError, match="pickle_module"):
        fl.load(file, pickle_module=module, weights_only=True)
    fl.save(fl.ones(1), io.BytesIO(), pickle_module=pickle)


def test_format_before_the_archive(tmp_path):
    base = fl.arange(6.0)
    saved = {"a": base, "view": base[2:4], "p": fl.nn.Parameter(fl.ones(2)), "n": 3, "b": fl.tensor([True, False])}
    stream = io.BytesIO()
    fl.save(saved, stream, _use_new_zipfile_serialization=False)
    fl.save(saved, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert not stream.getvalue().startswith(b"PK")
    stream.seek(0)
    for loaded in (fl.load(stream), fl.load(tmp_path / "old.pt")):
        assert loaded["n"] == 3 and loaded["b"].tolist() == [True, False] and loaded["p"].requires_grad
        loaded["view"][0] = 9
        assert loaded["a"].tolist() == [0.0, 1.0, 9.0, 3.0, 4.0, 5.0]


def test_local_objects_are_refused_as_pickle_refuses_them():
    def local():
        pass

    with pytest.raises(AttributeError if sys.version_info < (3, 14) else pickle.PicklingError):
        fl.save(local, io.BytesIO())


def test_legacy_files_of_sparse_tensors(tmp_path):
    coo = fl.eye(3).to_sparse()
    tensors = {"coo": coo, "csr": coo.to_sparse_csr(), "bsr": fl.eye(4).to_sparse_bsr((2, 2))}
    fl.save(tensors, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name, loaded in fl.load(tmp_path / "old.pt").items():
        assert loaded.layout == tensors[name].layout and fl.equal(loaded.to_dense(), tensors[name].to_dense())


def test_legacy_files_of_python_2_with_a_view_of_a_storage():
    head = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + b"\x80\x02M\xe9\x03." + b"\x80\x02}."
    kind = b"ctorch\nFloatStorage\n"
    view = b"U\x01v" + b"K\x01K\x02\x87"  # elements 1 and 2
    reference = b"(U\x07storage" + kind + b"U\x01s" + b"U\x03cpu" + b"K\x03" + view + b"tQ"
    keys = b"\x80\x02]U\x01sa."
    data = head + b"\x80\x02" + reference + b"." + keys + struct.pack("<q3f", 3, 1, 2, 3)
    for encoding in ("utf-8", "bytes"):
        assert list(fl.load(io.BytesIO(data), encoding=encoding)) == [2, 3]


class Restored(fl.Tensor):
    """Says in its state what it is made of."""

    def __getstate__(self):
        return ("kept", vars(self))

    def __setstate__(self, state):
        self.mark, attributes = state
        vars(self).update(attributes)


def test_subclasses_restore_their_own_state(tmp_path):
    x = fl.ones(2).as_subclass(Restored)
    x.label = "x"
    fl.save(x, tmp_path / "x.pt")
    with serialization.safe_globals([Restored]):
        again = fl.load(tmp_path / "x.pt")
    assert type(again) is Restored and (again.mark, again.label) == ("kept", "x") and again.tolist() == [1, 1]
