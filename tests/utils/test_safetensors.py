"""safetensors: files that come back, layouts that others can read, and files that lie."""

import json
import random
import struct

import numpy as np
import pytest

import flambeau as fl
from flambeau.utils import safetensors as st

DTYPES = {
    "BOOL": fl.bool, "U8": fl.uint8, "I8": fl.int8, "I16": fl.int16, "I32": fl.int32, "I64": fl.int64, "F16": fl.float16,
    "BF16": fl.bfloat16, "F32": fl.float32, "F64": fl.float64, "C64": fl.complex64,
}  # fmt: skip


def file_of(table, data=b"", pad=0):
    head = json.dumps(table).encode() + b" " * pad
    return struct.pack("<Q", len(head)) + head + data


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name, tmp_path):
    value = fl.arange(6).view(2, 3).to(DTYPES[name])
    path = tmp_path / "x.safetensors"
    st.save_file({"a": value, "t": value.t().clone(), "s": value[0, 0].clone(), "e": value[:0].clone()}, path)
    for out in (st.load_file(path), st.load(path.read_bytes())):
        assert (
            fl.equal(out["a"], value) and out["t"].shape == (3, 2) and out["s"].shape == () and out["e"].shape == (0, 3)
        )
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    table = json.loads(raw[8 : 8 + size])
    assert size % 8 == 0 and table["a"]["dtype"] == name and table["a"]["shape"] == [2, 3]


def test_a_file_written_by_hand():
    data = np.arange(4, dtype="<f4").tobytes() + b"\x07\x08"
    table = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "U8", "shape": [2], "data_offsets": [16, 18]},
    }
    for pad in (0, 1, 3):  # tensors need not be aligned
        out = st.load(file_of(table, data, pad))
        assert out["w"].tolist() == [[0, 1], [2, 3]] and out["b"].tolist() == [7, 8]


def test_opening_lazily(tmp_path):
    path = tmp_path / "x.safetensors"
    st.save_file({"a": fl.arange(10.0), "b": fl.ones(2, 3)}, path, metadata={"who": "me"})
    with st.safe_open(path, framework="pt", device="cpu") as file:
        assert file.keys() == ["a", "b"] and file.metadata() == {"who": "me"}
        part = file.get_slice("a")
        assert part.get_shape() == [10] and part.get_dtype() == "F32" and part[2:4].tolist() == [2, 3]
        whole = file.get_tensor("b")
        with pytest.raises(st.SafetensorError):
            file.get_tensor("c")
    whole[0] = 5
    assert whole[0, 0] == 5 and st.load_file(path)["b"][0, 0] == 1


def test_models_with_shared_weights(tmp_path):
    def make():
        model = fl.nn.Sequential(fl.nn.Linear(3, 3), fl.nn.Linear(3, 3))
        model[1].weight = model[0].weight
        return model

    model, other = make(), make()
    with pytest.raises(RuntimeError, match="share"):
        st.save_file(model.state_dict(), tmp_path / "m")
    st.save_model(model, tmp_path / "m")
    assert st.load_model(other, tmp_path / "m") == ([], [])
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert fl.equal(a, b)
    with pytest.raises(RuntimeError, match="missing"):
        st.load_model(fl.nn.Linear(3, 3), tmp_path / "m")


GOOD = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\x00" * 8, struct.pack("<Q", 2**63) + b"{}", file_of([]), file_of({"a": 1}), file_of(GOOD), b"\x02" + b"\x00" * 7 + b"{",
        file_of(GOOD, b"\x00" * 9),
        file_of({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, b"\x00" * 8),
        file_of({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, b"\x00" * 8),
        file_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, b"\x00" * 8),
        file_of({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, b"\x00" * 8),
        file_of({"a": {"dtype": "F32", "shape": [2.5], "data_offsets": [0, 8]}}, b"\x00" * 8),
        file_of({**GOOD, "b": GOOD["a"]}, b"\x00" * 8),
        file_of({"__metadata__": {"a": 1}}),
        struct.pack("<Q", 200_000) + b"[" * 200_000,
    ],
)  # fmt: skip
def test_lies_are_refused(raw, tmp_path):
    with pytest.raises(st.SafetensorError):
        st.load(raw)
    path = tmp_path / "x"
    path.write_bytes(raw)
    with pytest.raises(st.SafetensorError):
        st.load_file(path)


def test_mutations_only_raise():
    choose = random.Random(0)
    good = st.save({"a": fl.arange(6.0).view(2, 3), "b": fl.ones(3, dtype=fl.int16)})
    for _ in range(3000):
        raw = bytearray(good)
        for _ in range(choose.randrange(1, 4)):
            raw[choose.randrange(len(raw) - 30)] = choose.randrange(256)
        try:
            out = st.load(bytes(raw[: choose.choice([len(raw), len(raw), choose.randrange(len(raw))])]))
        except st.SafetensorError:
            continue
        assert all(isinstance(t, fl.Tensor) for t in out.values())
    for bad in ({"a": 1}, [fl.ones(1)], {"a": fl.ones(1, dtype=fl.complex128)}):
        with pytest.raises(ValueError):
            st.save(bad)


def test_storages_over_files(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(bytes(range(16)))
    storage = fl.UntypedStorage.from_file(str(path), shared=False, nbytes=16)
    part = fl.asarray(storage[4:8], dtype=fl.uint8)
    assert part.tolist() == [4, 5, 6, 7]
    part[0] = 99
    assert storage[4] == 99 and path.read_bytes()[4] == 4
    shared = fl.UntypedStorage.from_file(str(path), shared=True, nbytes=32)
    shared[0] = 42
    assert path.read_bytes()[0] == 42 and len(path.read_bytes()) == 32 and shared.filename == str(path)
    with pytest.raises(RuntimeError, match="at least"):
        fl.UntypedStorage.from_file(str(path), nbytes=100)


def test_environment_report():
    from flambeau.utils.collect_env import get_pretty_env_info

    text = get_pretty_env_info()
    assert "Python version" in text and "CPU" in text
