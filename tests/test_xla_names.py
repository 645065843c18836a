"""Programs as they are written for PyTorch/XLA, over jaxlib where it is installed."""

import pytest

pytest.importorskip("jaxlib", reason="jaxlib is not installed")

import flambeau as fl
from flambeau import xla
from flambeau.xla import _XLAC, amp, runtime
from flambeau.xla.core import xla_model as xm
from flambeau.xla.debug import metrics as met
from flambeau.xla.debug import profiler
from flambeau.xla.distributed import parallel_loader as pl
from flambeau.xla.distributed import spmd
from flambeau.xla.distributed import xla_multiprocessing as xmp
from flambeau.xla.stablehlo import StableHLOGraphModule, exported_program_to_stablehlo


def test_there_is_one_device_in_one_process():
    assert xm.xla_device() == xla.device() == fl.ones(1, device=xla.device()).device
    assert runtime.world_size() == runtime.global_runtime_device_count() == runtime.process_count() == 1
    assert runtime.global_ordinal() == xm.get_ordinal() == 0 and xm.is_master_ordinal()
    assert xm.xla_real_devices() == ["CPU:0"] and runtime.device_type() == "CPU"
    with pytest.raises(ValueError, match="the only device"):
        xm.xla_device(3)


def test_a_step_is_a_program():
    xla.sync()
    graphs = fl.backends.registered["xla"].launches
    with xla.step():
        x = fl.ones(3, device="xla") + 1
    assert fl.backends.registered["xla"].launches == graphs + 1 and x.tolist() == [2, 2, 2]


def test_compiled_functions_and_contexts():
    double = xla.compile(lambda x: x * 2, full_graph=True)
    assert double(fl.ones(2, device="xla")).tolist() == [2, 2]
    with xla.compile():
        y = fl.ones(2, device="xla") - 1
    assert y.tolist() == [0, 0]
    asks = xla.compile(lambda x: x + float(x.sum()), full_graph=True)
    with pytest.raises(RuntimeError, match="one graph"):
        asks(fl.ones(2, device="xla"))


def test_the_backend_openxla():
    model = fl.nn.Linear(3, 2).to("xla")
    x = fl.ones(1, 3, device="xla")
    assert fl.compile(model, backend="openxla")(x).tolist() == model(x).tolist()


def test_closures_run_after_the_step():
    seen = []
    x = fl.ones(2, device="xla") * 3
    xm.add_step_closure(lambda value: seen.append(value.tolist()), args=(x,))
    assert seen == []
    xm.mark_step()
    assert seen == [[3, 3]]


def test_collectives_of_one_process():
    x = fl.tensor([1.0, 2.0], device="xla")
    assert xm.all_reduce("sum", x, scale=0.5).tolist() == [0.5, 1.0]
    xm.all_reduce(xm.REDUCE_SUM, [x], scale=2.0)
    assert xm.all_gather(x).tolist() == [2, 4] and xm.rendezvous("here", b"it") == [b"it"]
    with pytest.raises(ValueError, match="groups"):
        xm.all_reduce("sum", x, groups=[[0, 1]])
    with pytest.raises(ValueError, match="expected one of"):
        xm.all_reduce("mean", x)


def test_processes():
    calls = []
    xla.launch(lambda index, name: calls.append((index, name)), args=("a",))
    xmp.spawn(lambda index, name: calls.append((index, name)), args=("b",))
    assert calls == [(0, "a"), (0, "b")]
    with pytest.raises(ValueError, match="nprocs"):
        xmp.spawn(calls.append, nprocs=8)


def test_loaders_bring_batches_to_the_device():
    data = fl.utils.data.TensorDataset(fl.arange(8.0), fl.arange(8))
    loader = fl.utils.data.DataLoader(data, batch_size=4)
    device = xm.xla_device()
    on_device = pl.MpDeviceLoader(loader, device)
    assert len(on_device) == 2 and on_device.batch_size == 4
    sums = [(x.device.type, float(x.sum() + y.sum())) for x, y in on_device]
    assert sums == [("xla", 12.0), ("xla", 44.0)]
    assert len(list(pl.ParallelLoader(loader, [device]).per_device_loader(device))) == 2


def test_mixed_precision():
    model = fl.nn.Linear(3, 2).to("xla")
    with amp.autocast(xm.xla_device()):
        assert model(fl.ones(1, 3, device="xla")).dtype is fl.bfloat16
    assert amp.syncfree.Adam is fl.optim.Adam


def test_metrics_count_the_device():
    met.clear_all()
    (fl.ones(5, device="xla") * 7).sum()
    xla.sync()
    number, total, _ = met.metric_data("ExecuteTime")
    assert number == 1 and total > 0 and met.metric_data("CompileTime")[0] == 1
    assert "CompileTime" in met.short_metrics_report() and "Counter: Operators" in met.metrics_report()
    fl.linalg.svdvals(fl.eye(2, device="xla"))
    xla.sync()
    assert met.executed_fallback_ops() and met.counter_value("HostGraphs") == 1


def test_what_is_recorded_can_be_read():
    xla.sync()
    x = fl.ones(2, device="xla")
    y = x * 3 + 1
    assert "stablehlo.multiply" in _XLAC._get_xla_tensors_hlo([y])
    assert "mul" in _XLAC._get_xla_tensors_text([y]) and "test_xla_names.py" in _XLAC._get_xla_tensors_text([y])
    assert y.tolist() == [4, 4]


def test_stablehlo_on_disk(tmp_path):
    model = fl.nn.Linear(3, 2)
    x = fl.randn(4, 3)
    module = exported_program_to_stablehlo(fl.export.export(model, (x,)))
    assert module.get_stablehlo_bytecode().startswith(b"ML\xefR")
    module.save(str(tmp_path))
    fl.testing.assert_close(StableHLOGraphModule.load(str(tmp_path))(x), model(x).detach())


def test_shardings_over_one_device():
    mesh = spmd.Mesh([0], (1, 1), ("data", "model"))
    x = fl.ones(2, 2, device="xla")
    assert spmd.mark_sharding(x, mesh, ("data", None)) is x and mesh.shape() == {"data": 1, "model": 1}
    with pytest.raises(ValueError, match="one device"):
        spmd.Mesh([0, 1], (2,))


def test_traces_end_steps():
    with profiler.Trace("part"), profiler.StepTrace("step"):
        x = fl.ones(1, device="xla") + 1
    assert x.tolist() == [2]


def test_calls_run_at_once_in_eager_mode():
    from flambeau.xla import experimental

    xla.sync()
    experimental.eager_mode(True)
    try:
        graphs = fl.backends.registered["xla"].launches
        x = fl.ones(2, device="xla") + 1
        assert fl.backends.registered["xla"].launches > graphs and experimental.is_eager_mode()
    finally:
        experimental.eager_mode(False)
    assert x.tolist() == [2, 2]


def test_a_scan_carries_a_value():
    from flambeau.xla.experimental.scan import scan

    xs = fl.arange(4.0, device="xla").requires_grad_()
    carry, rows = scan(lambda c, x: (c + x, c * x), fl.zeros((), device="xla"), xs)
    assert carry.item() == 6 and rows.tolist() == [0, 0, 2, 9]
    rows.sum().backward()
    assert xs.grad.tolist() == [6, 5, 4, 3]


def test_programs_are_kept_in_a_folder(tmp_path, monkeypatch):
    from flambeau.xla import engine

    monkeypatch.setattr(engine, "_kept", None)
    runtime.initialize_cache(str(tmp_path))
    x = fl.arange(5.0, device="xla")
    assert (x * 3 + 1).tolist() == [1, 4, 7, 10, 13] and list(tmp_path.glob("*.xla"))
    fl._C._lazy_set("xla", fl.device("cpu"), 0)  # forgets the programs of this process
    x = fl.arange(5.0, device="xla")
    assert (x * 3 + 1).tolist() == [1, 4, 7, 10, 13]


def test_helpers_of_training_programs(tmp_path):
    from flambeau.xla.utils import serialization, utils

    batches = utils.SampleGenerator((fl.zeros(2, 3), fl.zeros(2)), sample_count=3)
    assert len(list(batches)) == len(batches) == 3
    tracker = xm.RateTracker()
    tracker.add(5)
    assert tracker.rate() > 0 and tracker.global_rate() > 0
    serialization.save({"x": fl.ones(2, device="xla")}, tmp_path / "x.pt")
    assert serialization.load(tmp_path / "x.pt")["x"].device.type == "cpu"
    assert "stablehlo" in xm.get_stablehlo([fl.ones(2, device="xla") + 1])


def test_data_parallel_training_in_one_process():
    import flambeau.distributed as dist
    from flambeau.xla.distributed import xla_backend  # noqa: F401

    dist.init_process_group("xla", init_method="xla://")
    try:
        x = fl.ones(3, device="xla")
        dist.all_reduce(x)
        rows = [fl.zeros(3, device="xla")]
        dist.all_gather(rows, x * 2)
        assert x.tolist() == [1, 1, 1] and rows[0].tolist() == [2, 2, 2] and dist.get_world_size() == 1
        model = fl.nn.parallel.DistributedDataParallel(fl.nn.Linear(2, 2).to("xla"), gradient_as_bucket_view=True)
        model(fl.ones(1, 2, device="xla")).sum().backward()
        xla.sync()
        assert model.module.weight.grad.tolist() == [[1, 1], [1, 1]]
    finally:
        dist.destroy_process_group()


def test_reports_of_training_programs(capsys):
    from flambeau.xla.test import test_utils

    test_utils.print_training_update("xla:0", 3, fl.tensor(0.5), 10.0, 9.0, epoch=1)
    test_utils.print_test_update("xla:0", 93.75, epoch=1)
    lines = capsys.readouterr().out.splitlines()
    assert "Step=3 Loss=0.50000 Rate=10.00" in lines[0] and lines[1].endswith("Epoch=1 Accuracy=93.75")
    assert test_utils.get_summary_writer(None) is None
    test_utils.write_to_summary(None, 1, {"Loss": 1.0})
    test_utils.close_summary_writer(None)
