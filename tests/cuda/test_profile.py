"""The profiler records what a GPU does, under the operators that started it."""

import json

import pytest

import flambeau as fl
from flambeau.profiler import ProfilerActivity, profile, record_function, supported_activities

if not fl.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)


def test_kernels_and_copies_are_recorded(tmp_path):
    a = fl.randn(512, 512, device="cuda")
    (a @ a).relu().cpu()
    assert ProfilerActivity.CUDA in supported_activities()
    with profile() as prof, record_function("step"):
        b = a @ a
        c = b.relu()
        c.cpu()
    averages = {e.key: e for e in prof.key_averages()}
    on_device = [e for e in prof.events() if e.device_type == "cuda"]
    assert {e.kind for e in on_device} >= {"kernel", "gpu_memcpy"}
    assert averages["step"].device_time_total == pytest.approx(sum(e.device_time_total for e in on_device))
    assert averages["aten::relu"].self_device_time_total > 0 and averages["aten::matmul"].device_time_total > 0
    assert all(e.started_by is not None and e.device_time_total > 0 for e in on_device)
    assert any(e.bytes == 512 * 512 * 4 for e in on_device if e.kind == "gpu_memcpy")
    assert "Self CUDA time total" in prof.key_averages().table(sort_by="cuda_time_total")
    prof.export_chrome_trace(tmp_path / "trace.json")
    entries = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(e.get("cat") == "kernel" for e in entries) >= 2


def test_kernels_of_a_recorded_program_are_recorded():
    run = fl.compile(lambda x: (x.sin() @ x).relu(), mode="reduce-overhead")
    x = fl.randn(256, 256, device="cuda")
    for _ in range(4):
        run(x)
    with profile() as prof:
        run(x)
    assert sum(e.kind == "kernel" for e in prof.events()) >= 2


def test_the_cpu_alone_may_be_watched():
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        fl.ones(8, device="cuda") + 1
    assert all(e.device_type == "cpu" for e in prof.events())
