"""Checkpoints both ways with PyTorch itself."""

import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fl  # noqa: E402

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
PAIRS = [(torch, fl), (fl, torch)]
IDS = ["torch to flambeau", "flambeau to torch"]


def across(writer, reader, value, **options):
    file = io.BytesIO()
    writer.save(value, file)
    file.seek(0)
    return reader.load(file, **options)


def numbers(tensor):
    tensor = tensor.detach()
    return np.array(tensor.tolist(), dtype=complex if tensor.is_complex() else float)


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_and_strides(writer, reader, name):
    base = writer.arange(24).reshape(2, 3, 4).to(getattr(writer, name))
    value = [base, base.transpose(0, 2), base[1, ::2], base[:, :0], base[0, 0, 1], base.expand(2, 3, 4)]
    got = across(writer, reader, value)
    for mine, theirs in zip(value, got, strict=True):
        assert theirs.dtype == getattr(reader, name)
        assert tuple(theirs.shape) == tuple(mine.shape) and theirs.stride() == mine.stride()
        np.testing.assert_array_equal(numbers(theirs), numbers(mine))


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
def test_sharing_and_plain_values(writer, reader):
    base = writer.arange(6.0)
    value = {
        "base": base, "view": base[2:4], "p": writer.nn.Parameter(base), "size": base.shape, "dtype": writer.int64,
        "device": writer.device("cpu"), "list": [1, 2.5, "x", None, b"b", {1, 2}, (1j,)], 5: {"deep": True},
    }  # fmt: skip
    got = across(writer, reader, value)
    assert isinstance(got["p"], reader.nn.Parameter) and got["p"].requires_grad
    assert got["dtype"] is reader.int64 and got["device"] == reader.device("cpu")
    assert isinstance(got["size"], reader.Size) and tuple(got["size"]) == (6,)
    assert got["list"] == value["list"] and got[5] == {"deep": True}
    got["base"][2] = 50
    assert got["view"][0] == 50 and got["p"][2] == 50


def model(lib):
    nn = lib.nn
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 2))


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
def test_state_dicts(writer, reader):
    mine, theirs = model(writer), model(reader)
    mine[2].running_mean.fill_(3.0)
    theirs.load_state_dict(across(writer, reader, mine.state_dict()))
    for (name, a), (other, b) in zip(mine.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert name == other
        np.testing.assert_array_equal(numbers(a), numbers(b))


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
def test_whole_modules(writer, reader):
    mine = model(writer).eval()
    theirs = across(writer, reader, mine, weights_only=False)
    assert isinstance(theirs, reader.nn.Sequential) and not theirs.training
    x = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)
    np.testing.assert_allclose(
        theirs(reader.from_numpy(x)).detach().numpy(), mine(writer.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
@pytest.mark.parametrize("name, options", [("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {})])
def test_optimizers(writer, reader, name, options):
    def trained(lib):
        weights = [lib.nn.Parameter(lib.arange(3.0)), lib.nn.Parameter(lib.ones(2, 2))]
        optimizer = getattr(lib.optim, name)(weights, lr=0.1, **options)
        return weights, optimizer

    def step(weights, optimizer):
        optimizer.zero_grad()
        sum((w * w).sum() for w in weights).backward()
        optimizer.step()

    weights, optimizer = trained(writer)
    step(weights, optimizer)
    state = across(writer, reader, {"w": [w.detach() for w in weights], "o": optimizer.state_dict()})
    other_weights, other = trained(reader)
    with reader.no_grad():
        for w, saved in zip(other_weights, state["w"], strict=True):
            w.copy_(saved)
    other.load_state_dict(state["o"])
    step(weights, optimizer)
    step(other_weights, other)
    for a, b in zip(weights, other_weights, strict=True):
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols(protocol):
    file = io.BytesIO()
    fl.save({"a": fl.ones(2), "b": [fl.ones(2)] * 2}, file, pickle_protocol=protocol)
    file.seek(0)
    assert torch.load(file, weights_only=protocol == 2)["a"].tolist() == [1, 1]
    file = io.BytesIO()
    torch.save({"a": torch.ones(2)}, file, pickle_protocol=protocol)
    file.seek(0)
    assert fl.load(file)["a"].tolist() == [1, 1]


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
def test_mapped_files(writer, reader, tmp_path):
    path = tmp_path / "m.pt"
    writer.save({"a": writer.arange(1000.0), "b": writer.ones(7)}, path)
    got = reader.load(path, mmap=True)
    assert got["a"][999] == 999 and got["b"].sum() == 7


def test_files_with_other_storage_records():
    got = across(torch, fl, {"untyped": torch.ones(2).untyped_storage(), "typed": torch.arange(3).storage()})
    assert got["untyped"].nbytes() == 8 and got["typed"].tolist() == [0, 1, 2]
    got = across(fl, torch, {"untyped": fl.tensor([1, 2], dtype=fl.uint8).untyped_storage()}, weights_only=False)
    assert list(got["untyped"]) == [1, 2]
    torch.serialization.set_crc32_options(False)
    try:
        assert across(torch, fl, torch.arange(5)).tolist() == [0, 1, 2, 3, 4]
    finally:
        torch.serialization.set_crc32_options(True)


@pytest.mark.parametrize("writer, reader", [(torch, fl), (fl, torch)])
def test_pairs_of_halves_cross_over(writer, reader):
    loaded = across(writer, reader, writer.tensor([1 + 2j, -0.5j], dtype=writer.complex32))
    assert str(loaded.dtype) == "torch.complex32" and loaded.tolist() == [1 + 2j, -0.5j]


def test_files_of_old_releases_are_read():
    base = torch.arange(6.0)
    value = {"a": base, "v": base[2:], "b": torch.ones(2, 2, dtype=torch.bfloat16).t(), "p": torch.nn.Parameter(base)}
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    got = fl.load(file)
    for name in value:
        np.testing.assert_array_equal(numbers(got[name]), numbers(value[name]))
    got["a"][2] = 9
    assert got["v"][0] == 9 and isinstance(got["p"], fl.nn.Parameter)
    for cut in range(0, len(file.getvalue()), 7):
        with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError)):
            fl.load(io.BytesIO(file.getvalue()[:cut]))


def test_subclasses_with_attributes_and_tensors_with_grad():
    p = torch.nn.Parameter(torch.ones(2))
    p.tag = "mine"
    got = across(torch, fl, p)
    assert isinstance(got, fl.nn.Parameter) and got.tag == "mine"
    p = fl.nn.Parameter(fl.ones(2))
    p.tag = "mine"
    got = across(fl, torch, p, weights_only=False)
    assert isinstance(got, torch.nn.Parameter) and got.tag == "mine"


def test_plain_pickle_of_programs_under_the_name_of_torch(tmp_path):
    """A program that runs on flambeau as torch exchanges plain pickles with one that runs on PyTorch."""
    path, back = tmp_path / "theirs.pkl", tmp_path / "ours.pkl"
    path.write_bytes(
        pickle.dumps({"t": torch.arange(4.0), "p": torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))})
    )
    program = f"""
import flambeau.as_torch, torch, pickle
value = pickle.load(open({str(path)!r}, "rb"))
assert value["t"].tolist() == [0, 1, 2, 3] and type(value["p"]) is torch.nn.Parameter, value
pickle.dump({{"t": value["t"] * 2, "v": torch.arange(6)[2:], "p": value["p"]}}, open({str(back)!r}, "wb"))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    got = pickle.loads(back.read_bytes())
    assert got["t"].tolist() == [0, 2, 4, 6] and got["v"].tolist() == [2, 3, 4, 5]
    assert isinstance(got["p"], torch.nn.Parameter) and got["p"].dtype == torch.bfloat16


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
def test_modules_whose_classes_are_allowed(writer, reader):
    nn = reader.nn
    with reader.serialization.safe_globals([nn.Sequential, nn.Linear, nn.ReLU, nn.BatchNorm1d, nn.Dropout]):
        got = across(writer, reader, model(writer))
    assert isinstance(got[0], nn.Linear) and got(reader.ones(3, 4)).shape == (3, 2)


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
def test_whole_optimizers(writer, reader):
    mine = model(writer)
    optimizer = writer.optim.Adam(mine.parameters(), lr=0.5)
    mine(writer.ones(3, 4)).sum().backward()
    optimizer.step()
    got = across(writer, reader, {"model": mine, "optimizer": optimizer}, weights_only=False)
    assert isinstance(got["optimizer"], reader.optim.Adam) and got["optimizer"].param_groups[0]["lr"] == 0.5
    assert got["optimizer"].param_groups[0]["params"][0] is got["model"][0].weight
    got["model"](reader.ones(3, 4)).sum().backward()
    got["optimizer"].step()


def test_values_of_numpy_can_be_allowed():
    core = np._core.multiarray
    allowed = [core.scalar, core._reconstruct, np.ndarray, np.dtype, type(np.dtype("f8")), type(np.dtype("i8"))]
    value = {"a": np.float64(3.5), "b": np.arange(3)}
    for writer, reader in PAIRS:
        with pytest.raises(pickle.UnpicklingError, match="numpy"):
            across(writer, reader, value)
        with reader.serialization.safe_globals(allowed):
            got = across(writer, reader, value)
        assert got["a"] == 3.5 and got["b"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("writer, reader", PAIRS, ids=IDS)
def test_format_before_the_archive(writer, reader):
    base = writer.arange(6.0)
    file = io.BytesIO()
    value = {"base": base, "view": base[2:4], "half": base.bfloat16(), "p": writer.nn.Parameter(base.clone()), "n": [1]}
    writer.save(value, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    got = reader.load(file)
    assert got["n"] == [1] and got["p"].requires_grad and got["half"].dtype == reader.bfloat16
    got["base"][2] = 50
    assert got["view"].tolist() == [50.0, 3.0] and got["p"].tolist() == base.tolist()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("safe", [True, False])
def test_conjugates_and_negatives_are_computed(zipped, safe):
    if not zipped and not safe:
        pytest.skip("the older format is always read without running code")
    file = io.BytesIO()
    value = torch.tensor([1 + 2j, 3 - 4j])
    torch.save([value.conj(), value.clone().conj().imag, value], file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    conjugate, negative, plain = fl.load(file, weights_only=safe)
    assert conjugate.tolist() == [1 - 2j, 3 + 4j] and plain.tolist() == [1 + 2j, 3 - 4j]
    assert negative.tolist() == [-2.0, 4.0]


@pytest.mark.parametrize("weights_only", [True, False])
def test_state_dicts_before_version_1_6(weights_only):
    """Ordered dicts with metadata, and containers around them, in the format without zip."""
    state = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict()
    file = io.BytesIO()
    torch.save({"state": state, "seen": {1, 2}, "step": 3}, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    loaded = fl.load(file, weights_only=weights_only)
    assert list(loaded["state"]) == list(state) and loaded["seen"] == {1, 2} and loaded["step"] == 3
    assert loaded["state"]._metadata == state._metadata
    for name, value in state.items():
        np.testing.assert_array_equal(loaded["state"][name].numpy(), value.numpy())
