"""The profiler records operators and named ranges, and follows a schedule."""

import gzip
import json

import pytest

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
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=1)
    assert "step" in table and "aten::sum" not in table  # which is part of the step
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


def test_operators_inside_operators_are_subtracted():
    x = fl.randn(16, 16, requires_grad=True)
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof, record_function("all"):
        (x @ x).sum().backward()
    events = {event.name: event for event in prof.events()}
    outer = events["all"]
    assert abs(sum(e.self_cpu_time_total for e in prof.events()) - outer.cpu_time_total) < 1
    node = next(e for e in prof.events() if "MmBackward" in e.name)
    assert node.cpu_parent is outer and node.cpu_children and node.self_cpu_time_total < node.cpu_time_total
    first = next(e for e in prof.events() if e.name == "aten::matmul")
    assert first.input_shapes[:2] == [[16, 16], [16, 16]] and first.cpu_memory_usage == 1024
    assert "test_profile.py" in first.stack[0] and outer.cpu_memory_usage >= 1024
    averages = prof.key_averages(group_by_input_shape=True, group_by_stack_n=1)
    text = averages.table(sort_by="self_cpu_memory_usage", row_limit=3)
    for head in ("Input Shapes", "Source Location", "Self CPU Mem", "CPU total %"):
        assert head in text


def test_threads_are_kept_apart(tmp_path):
    import threading

    with profile(with_stack=True) as prof:
        thread = threading.Thread(target=lambda: fl.ones(3).exp())
        thread.start()
        thread.join()
        fl.ones(3).log()
    by_name = {event.name: event for event in prof.events()}
    assert by_name["aten::exp"].thread != by_name["aten::log"].thread
    prof.export_stacks(tmp_path / "stacks.txt")
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    with gzip.open(tmp_path / "trace.json.gz") as file:
        names = [event["name"] for event in json.load(file)["traceEvents"]]
    assert names.count("aten::exp") == 1


def test_one_profiler_at_a_time_and_bad_columns():
    with profile() as prof:
        fl.ones(1)
        with pytest.raises(RuntimeError, match="one profiler"):
            profile().start()
    with pytest.raises(AttributeError, match="sort_by"):
        prof.key_averages().table(sort_by="beauty")


def test_errors_inside_operators_are_survived():
    with profile() as prof:
        with pytest.raises(RuntimeError):
            fl.ones(2) @ fl.ones(3)
        fl.ones(2) + 1
    assert [e.name for e in prof.events()].count("aten::add") == 1
    with fl.autograd.profiler.profile(record_shapes=True) as old:
        fl.ones(2) * 2
    assert "aten::mul" in old.table() and old.function_events


def test_the_older_profiler_prints_its_table():
    with fl.autograd.profiler.profile() as recorded:
        fl.ones(2).add(1)
    assert "aten::add" in str(recorded)


def test_kernels_belong_to_the_innermost_operator_that_was_open_when_they_were_started(tmp_path):
    from flambeau.profiler._device import device_events
    from flambeau.profiler._events import EventList, FunctionEvent, nest

    spans = [("aten::linear", 1000, 9000), ("aten::mm", 2000, 5000), ("aten::add", 6000, 8000)]
    operators = nest([FunctionEvent(n, a, b, "cpu_op", thread=7, sequence=i) for i, (n, a, b) in enumerate(spans)])
    text = (
        "call\t3000\t3500\t11\t0\t7\t0\t\nkernel\t20000\t24000\t11\t0\t5\t0\tvoid product<float>(int)\n"
        "call\t7000\t7100\t12\t0\t7\t0\t\nkernel\t24000\t25000\t12\t0\t5\t0\tadd\n"
        "call\t9500\t9600\t13\t0\t7\t0\t\ngpu_memcpy\t25000\t27000\t13\t0\t5\t4096\tMemcpy DtoH\n"
    )
    events = EventList([*operators, *device_events(text, operators)])
    times = {e.key: (e.self_device_time_total, e.device_time_total) for e in events.key_averages()}
    assert times["aten::linear"] == (0.0, 5.0) and times["aten::mm"] == (4.0, 4.0)
    assert times["Memcpy DtoH"] == (2.0, 2.0) and events.self_device_time_total == 7.0
    table = events.key_averages().table(sort_by="cuda_time_total")
    assert "Self CUDA %" in table and "57.14%" in table and "Self CUDA time total: 7.000us" in table
    path = tmp_path / "trace.json"
    events.export_chrome_trace(path)
    entries = json.loads(path.read_text())["traceEvents"]
    (kernel,) = [e for e in entries if e["name"] == "void product<float>(int)"]
    assert (kernel["cat"], kernel["pid"], kernel["tid"], kernel["dur"]) == ("kernel", 0, 5, 4.0)
    assert sum(e.get("cat") == "ac2g" for e in entries) == 4
