"""The profiler records operators and named ranges, and follows a schedule."""

import json

import flambeau as fl
from flambeau.profiler import ProfilerAction, profile, record_function, schedule


def test_operators_and_ranges_are_recorded(tmp_path):
    x = fl.ones(8, 8, requires_grad=True)
    with profile() as prof, record_function("step"):
        (x @ x).sum().backward()
    by_name = {event.key: event for event in prof.key_averages()}
    assert by_name["aten::matmul"].count == 3
    assert by_name["step"].cpu_time_total >= by_name["aten::matmul"].cpu_time_total
    assert by_name["step"].self_cpu_time_total <= by_name["step"].cpu_time_total
    assert "aten::matmul" in prof.key_averages().table(sort_by="cpu_time_total", row_limit=3)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"step", "aten::sum"} <= {event["name"] for event in events}


def test_nothing_is_recorded_outside():
    with profile() as prof:
        pass
    fl.ones(2) + 1
    assert not prof.events()


def test_schedules_hand_over_each_cycle():
    plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    assert [plan(i) for i in range(5)] == [
        ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE,
        ProfilerAction.NONE,
    ]  # fmt: skip
    ready = []
    with profile(schedule=plan, on_trace_ready=lambda p: ready.append(len(p.events()))) as prof:
        for _ in range(6):
            fl.ones(2) + 1
            prof.step()
    assert len(ready) == 1 and ready[0] >= 4
