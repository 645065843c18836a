"""Checkpoints of the older format one after another in a file, and storages without memory."""

import io
import pickle

import pytest

import flambeau as fl


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_reading_goes_on_behind_a_checkpoint(kind, tmp_path):
    f = io.BytesIO() if kind == "bytes" else open(tmp_path / "several", "w+b")  # noqa: SIM115 (closed below)
    first, second = fl.arange(5.0), {"w": fl.ones(3, dtype=fl.int64)}
    pickle.dump(41, f)
    fl.save(first, f, _use_new_zipfile_serialization=False)
    pickle.dump(43, f)
    fl.save(second, f, _use_new_zipfile_serialization=False)
    pickle.dump(44, f)
    f.seek(0)
    assert pickle.load(f) == 41 and fl.equal(fl.load(f), first)
    assert pickle.load(f) == 43 and fl.equal(fl.load(f)["w"], second["w"])
    assert pickle.load(f) == 44
    f.close()


def test_storages_without_memory_are_of_any_dtype():
    empty = [fl.empty(0, dtype=dtype) for dtype in (fl.float32, fl.float64, fl.int8)]
    f = io.BytesIO()
    fl.save(empty, f)
    f.seek(0)
    assert [t.dtype for t in fl.load(f)] == [t.dtype for t in empty]
