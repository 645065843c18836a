"""Dtypes that are only stored, beside PyTorch's: every 8-bit code, rounding, limits, checkpoints."""

import io
import math

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

FLOAT8 = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()
UNSIGNED = "uint16 uint32 uint64".split()


def same(a, b):
    return all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", FLOAT8)
def test_codes(name):
    ours, theirs = (t.arange(256).to(t.uint8).view(getattr(t, name)).to(t.float32).tolist() for t in (fl, torch))
    assert same(ours, theirs)


@pytest.mark.parametrize("name", FLOAT8)
def test_rounding(name):
    torch.manual_seed(0)
    x = torch.cat([torch.randn(20000) * s for s in (1e-6, 1e-3, 1.0, 30.0, 400.0, 5e4)])
    x = torch.cat([x, torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 464.0, 480.0, 61440.0, 1e-45])])
    if name == "float8_e8m0fnu":
        x = x.abs()
    theirs = x.to(getattr(torch, name)).view(torch.uint8)
    ours = fl.from_numpy(x.numpy()).to(getattr(fl, name)).view(fl.uint8)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("name", [*FLOAT8, *UNSIGNED])
def test_limits_and_text(name):
    limits = "finfo" if name in FLOAT8 else "iinfo"
    assert repr(getattr(fl, limits)(getattr(fl, name))) == repr(getattr(torch, limits)(getattr(torch, name)))
    assert repr(fl.tensor([1, 2, 4]).to(getattr(fl, name))) == repr(torch.tensor([1, 2, 4]).to(getattr(torch, name)))


@pytest.mark.parametrize("name", [*FLOAT8, *UNSIGNED])
def test_checkpoints_cross_over(name):
    for writer, reader in ((fl, torch), (torch, fl)):
        x = writer.tensor([1, 2, 4]).to(getattr(writer, name))
        buffer = io.BytesIO()
        writer.save({"x": x}, buffer)
        buffer.seek(0)
        loaded = reader.load(buffer, weights_only=True)["x"]
        assert str(loaded.dtype) == str(x.dtype) and loaded.to(reader.float32).tolist() == [1.0, 2.0, 4.0]
