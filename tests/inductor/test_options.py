"""Modes and options of compile, and the stages it shows."""

import os
import pathlib
import subprocess
import sys

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import config, list_mode_options, list_options, tune

ROOT = pathlib.Path(fl.__file__).resolve().parents[1]  # of the package under test


def layer(x):
    return F.gelu(F.layer_norm(x, (8,))) + x


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_compute_the_same(mode):
    x = fl.randn(4, 8)
    fl.testing.assert_close(fl.compile(layer, mode=mode)(x), layer(x))
    assert mode in list_mode_options()


@pytest.mark.host
def test_winners_of_measurements_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    x = fl.randn(4, 8)
    fl.testing.assert_close(fl.compile(lambda x: x.sin() * 2, mode="max-autotune")(x), x.sin() * 2)
    winners = list(tmp_path.rglob("tuned_*"))
    assert winners
    monkeypatch.setattr(tune, "_time", None)  # nothing is measured again
    fl.testing.assert_close(fl.compile(lambda x: x.sin() * 2, mode="max-autotune")(x), x.sin() * 2)


def test_options_by_name():
    x = fl.randn(4, 8, requires_grad=True)
    y = fl.compile(layer, options={"memory_budget": 0.0, "epilogue_fusion": True})(x)
    fl.testing.assert_close(*(fl.autograd.grad(t.sum(), x)[0] for t in (y, layer(x))))
    assert {"max_autotune", "freezing", "triton.cudagraphs", "cpp.threads"} <= set(list_options())


@pytest.mark.parametrize(
    "given", [{"mode": "fastest"}, {"options": {"nonsense": 1}}, {"options": {"max_autotune": "yes"}}]
)
def test_mistakes_show_at_once(given):
    with pytest.raises(RuntimeError, match="expected"):
        fl.compile(layer, **given)


def test_settings_are_patched_for_a_while():
    with config.patch(max_autotune=True), config.patch({"cpp.threads": 1}):
        assert config.max_autotune and config.cpp.threads == 1
    assert not config.max_autotune and config.cpp.threads == -1

    @config.patch("freezing", True)
    def inside():
        return config.freezing

    assert inside() and not config.freezing
    with pytest.raises(AttributeError, match="nonsense"), config.patch(nonsense=1):
        pass


@pytest.mark.host
def test_every_stage_is_written(tmp_path):
    with config.patch(dump_folder=str(tmp_path)):
        x = fl.randn(4, 8, requires_grad=True)
        fl.compile(lambda x: layer(x).sum())(x).backward()
    stages = {p.stem.split("_", 2)[1:][0] + " " + p.stem.rpartition("_")[2] for p in tmp_path.iterdir()}
    for program in ("forward", "backward"):
        assert {f"{program} {s}" for s in ("recorded", "lowered", "scheduled", "printed", "planned")} <= stages
    kernels = next(p for p in sorted(tmp_path.iterdir()) if "printed" in p.name).read_text()
    assert "layer" in kernels or ".py" in kernels
    assert 'extern "C" void' in kernels


def run(code, tmp_path, **environment):
    given = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True, timeout=120
    )


PROGRAM = """
import flambeau as fl
x = fl.ones(3)
for _ in range(2):
    assert fl.compile(lambda x: x * 2 + 1)(x).tolist() == [3.0, 3.0, 3.0]
"""


@pytest.mark.host
def test_without_a_compiler_functions_run_as_they_are_and_say_so_once(tmp_path):
    said = run(PROGRAM, tmp_path, PATH="/nonexistent", CXX="").stderr
    assert said.count("no C++ compiler was found") == 1
    assert not list((tmp_path).rglob("*.so"))


@pytest.mark.host
def test_kernels_are_shown(tmp_path):
    assert 'extern "C" void' in run(PROGRAM, tmp_path, FLAMBEAU_LOGS="output_code").stderr


@pytest.mark.parametrize(
    "name",
    ["coordinate_descent_tuning", "cpp_wrapper", "debug", "force_disable_caches", "fx_graph_cache", "size_asserts"],
)
def test_settings_that_programs_for_pytorch_patch_are_taken(name):
    value = getattr(config, name)
    with config.patch({name: not value}):
        assert getattr(config, name) is not value
    assert getattr(config, name) is value
