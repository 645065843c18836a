"""The numbers and the chart of the README are made from what the benchmark of workloads writes."""

import importlib.util
import json
import pathlib
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def load(path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return load("benchmarks/compare.py")


def test_the_readme_takes_what_the_benchmark_writes(compare, capsys, monkeypatch):
    chart = load("tools/chart.py")
    compare.serve("flambeau", "eager", "tiny pointwise", 0.01)
    times = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(compare, "measure", lambda *_: dict(times))
    options = types.SimpleNamespace(rounds=2, seconds=0.01, cold=False)
    rows = {name: compare.compare(name, options, "") for name in ("tiny pointwise", "gpt training")}
    drawn = chart.panels(rows, [{"program": "MLP", "library": library, "ms": 1.0} for library in ("flambeau", "torch")])
    numbers = chart.numbers({"machine": compare.machine(), "workloads": rows}, drawn)
    assert "| step time, eager | **1.00** |" in numbers and "cores" in numbers
    assert "GPT, training" in chart.chart(drawn)


def test_every_workload_has_a_title(compare):
    import flambeau

    chart = load("tools/chart.py")
    for name in compare.workloads(flambeau, flambeau.compile):
        model, _, kind = name.partition(" ")
        assert model in chart.WORDS or kind not in ("inference", "training", "whole step")


def test_the_first_round_of_a_cold_run_starts_without_caches(compare, monkeypatch, tmp_path):
    cache, seen = tmp_path / "cache", []

    def measure(*_):
        seen.append(cache.exists())
        cache.mkdir(exist_ok=True)
        return {"first_s": float(len(seen)), "step_us": 1.0 / len(seen)}

    monkeypatch.setattr(compare, "measure", measure)
    row = compare.compare("pointwise", types.SimpleNamespace(rounds=2, seconds=0.01, cold=True), str(cache))
    assert seen == [False] * 4 + [True] * 4
    assert row["flambeau compile"] == {"first_s": 4.0, "step_us": 1 / 8}
