"""hub: weights by address and models by folder, without a network."""

import hashlib

import pytest

import flambeau as fl
from flambeau import hub
from flambeau.utils import benchmark, dlpack, model_zoo


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_hub_dir", str(tmp_path / "hub"))


def test_weights_from_an_address(tmp_path):
    path = tmp_path / "w.pth"
    fl.save({"w": fl.arange(3.0)}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    named = tmp_path / f"w-{digest[:8]}.pth"
    named.write_bytes(path.read_bytes())
    for load in (hub.load_state_dict_from_url, model_zoo.load_url):
        assert load(f"file://{path}", progress=False)["w"].tolist() == [0, 1, 2]
    assert (tmp_path / "hub" / "checkpoints" / "w.pth").exists()
    path.unlink()
    assert "w" in hub.load_state_dict_from_url(f"file://{path}", progress=False)  # from the folder
    assert "w" in hub.load_state_dict_from_url(f"file://{named}", progress=False, check_hash=True)
    wrong = tmp_path / "w-00000000.pth"
    wrong.write_bytes(named.read_bytes())
    with pytest.raises(RuntimeError, match="hash"):
        hub.load_state_dict_from_url(f"file://{wrong}", progress=False, check_hash=True)


def test_models_from_a_folder(tmp_path):
    (tmp_path / "hubconf.py").write_text(
        "import flambeau\n\ndef tiny(n=2):\n    '''A small layer.'''\n    return flambeau.nn.Linear(n, n)\n"
    )
    assert hub.load(str(tmp_path), "tiny", source="local", n=3).in_features == 3
    with pytest.raises(RuntimeError, match="entry point"):
        hub.load(str(tmp_path), "none", source="local")
    with pytest.raises(RuntimeError, match="trust_repo"):
        hub.load("someone/something", "tiny", trust_repo=False)


def test_memory_goes_through_capsules():
    tensor = fl.arange(3.0)
    again = dlpack.from_dlpack(dlpack.to_dlpack(tensor))
    again[0] = 9
    assert tensor[0] == 9


def test_timing():
    timer = benchmark.Timer("x + x", globals={"x": fl.ones(4)}, label="add")
    measured = timer.timeit(100)
    assert measured.median > 0 and measured.number_per_run == 100
    assert "add" in str(benchmark.Compare([measured]))
