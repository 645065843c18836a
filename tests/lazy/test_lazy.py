"""Lazy tensors: what is recorded, when it runs, and that it is what eager mode computes."""

import warnings

import pytest

import flambeau as fl
from flambeau import lazy

F = fl.nn.functional


@pytest.fixture(autouse=True)
def clean():
    lazy.sync()
    yield
    lazy.sync()


def graphs():
    return lazy.metrics.counter_value("Graphs")


def test_calls_are_recorded_and_run_when_a_value_is_wanted():
    x = fl.randn(4, 4)
    y = x.to("lazy")
    before = graphs()
    z = (y @ y).relu() + 1
    assert graphs() == before and z.shape == (4, 4)
    fl.testing.assert_close(z.cpu(), (x @ x).relu() + 1)
    assert graphs() == before + 1


@pytest.mark.parametrize(
    "look",
    [lambda t: t.sum().item(), lambda t: repr(t), lambda t: bool(t.sum() > 0), lambda t: t.cpu(), lambda t: t.tolist()],
)
def test_looking_at_a_value_runs_the_graph(look):
    x = fl.ones(2, device="lazy") * 3
    before = graphs()
    look(x)
    assert graphs() > before


def test_errors_of_shapes_come_at_once():
    x = fl.ones(2, 3, device="lazy")
    with pytest.raises(RuntimeError, match="matmul"):
        x @ x


def test_errors_at_run_time_name_the_line():
    x = fl.arange(4.0).to("lazy")
    index = fl.tensor([9]).to("lazy")
    y = x[index]  # recorded here
    with pytest.raises(IndexError, match=r"test_lazy.py:\d+: y = x\[index\]"):
        y.cpu()


def test_views_and_writes_in_place():
    def program(x):
        view = x.view(2, 6)[1]
        x[0] += 10
        view.mul_(2)
        y = x.t()
        y[0, 0] = -1
        return x * 1, view + 0, y.contiguous()

    x = fl.arange(12.0).reshape(3, 4)
    got = program(x.clone().to("lazy"))
    for g, w in zip(got, program(x.clone())):
        assert g.cpu().tolist() == w.tolist()


def test_inputs_written_in_place_keep_their_memory():
    x = fl.zeros(3, device="lazy")
    lazy.mark_step()
    for _ in range(3):
        x += 1
        lazy.mark_step()
    assert x.tolist() == [3, 3, 3]


def test_random_numbers_are_those_of_the_cpu():
    fl.manual_seed(5)
    want = fl.rand(4), fl.randn(3), F.dropout(fl.ones(10), 0.5)
    fl.manual_seed(5)
    got = fl.rand(4, device="lazy"), fl.randn(3, device="lazy"), F.dropout(fl.ones(10, device="lazy"), 0.5)
    for g, w in zip(got, want):
        fl.testing.assert_close(g.cpu(), w)


def train(device, optimizer, steps=9, sizes=(8, 16, 4)):
    fl.manual_seed(0)
    layers = fl.nn.Linear(8, 16), fl.nn.GELU(), fl.nn.Dropout(0.2), fl.nn.BatchNorm1d(16), fl.nn.Linear(16, 4)
    model = fl.nn.Sequential(*layers).to(device)
    chosen = getattr(fl.optim, optimizer)(model.parameters(), lr=0.01)
    fl.manual_seed(1)  # each device has a generator of its own
    losses, compiled = [], []
    for step in range(steps):
        chosen.param_groups[0]["lr"] = 0.01 / (step + 1)
        n = sizes[step % len(sizes)]
        x, y = fl.randn(n, 8, device=device), fl.randint(0, 4, (n,), device=device)
        chosen.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        chosen.step()
        losses.append(loss.item())
        compiled.append(len(lazy.compilations()))
    return losses, compiled


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_training_is_eager_training_and_compiles_each_size_once(optimizer):
    want, _ = train("cpu", optimizer)
    got, compiled = train("lazy", optimizer)
    assert got == pytest.approx(want, abs=1e-4)
    assert compiled[-1] == compiled[5]  # each size was seen, with and without the state of the optimizer


def test_mixed_precision_is_recorded():
    x = fl.randn(4, 4)
    with fl.autocast("lazy", dtype=fl.bfloat16):
        y = x.to("lazy") @ x.to("lazy")
    assert y.dtype is fl.bfloat16
    with fl.autocast("cpu", dtype=fl.bfloat16):
        want = x @ x
    fl.testing.assert_close(y.cpu(), want)


def test_a_generator_of_the_device():
    generator, cpu = fl.Generator(device="lazy").manual_seed(5), fl.Generator().manual_seed(5)
    for _ in range(2):  # the second draw goes on where the first ended
        got = fl.rand(3, device="lazy", generator=generator)
        assert got.tolist() == fl.rand(3, generator=cpu).tolist()


def test_values_that_nobody_holds_are_dropped():
    x = fl.randn(4, device="lazy")
    for _ in range(3):
        dead = x.exp()
    del dead
    y = x + 1
    fl.testing.assert_close(y.cpu(), x.cpu() + 1)


def test_a_graph_runs_by_itself_after_many_operators():
    lazy.set_limit(10)
    try:
        before = graphs()
        x = fl.zeros(2, device="lazy")
        for _ in range(25):
            x = x + 1
        assert graphs() >= before + 2 and x.tolist() == [25, 25]
    finally:
        lazy.set_limit(4096)


def test_operators_that_depend_on_values_run_at_once():
    x = fl.tensor([0.0, 2.0, 0.0, 3.0]).to("lazy")
    assert fl.nonzero(x + 0).tolist() == [[1], [3]]
    assert fl.masked_select(x, x > 0).tolist() == [2, 3]


def test_compilations_have_a_line_and_a_reason():
    before = len(lazy.compilations())
    x = fl.randn(5, 7, device="lazy")
    (x.sin() * 2.5).cos()
    y = x.tan().sum(0) * 3
    lazy.mark_step()
    made = lazy.compilations()[before:]
    assert made and "test_lazy.py" in made[0].line and made[-1].reason == "mark_step"
    assert y.shape == (7,)


def test_metrics():
    lazy.metrics.clear_all()
    (fl.ones(3, device="lazy") + 1.5).cpu()
    assert lazy.metrics.metric_data("ExecuteTime")[0] == 1
    assert lazy.metrics.counter_value("Operators") > 0
    assert "CompileTime" in lazy.metrics.metrics_report()


def test_compiled_functions_run_on_their_own():
    step = lazy.compile(lambda x: (x * 2).sum())
    x = fl.ones(4, device="lazy")
    before = graphs()
    result = step(x)
    assert graphs() > before and result.item() == 8


def test_saving_and_loading(tmp_path):
    x = fl.arange(4.0).to("lazy") * 2
    fl.save(x, tmp_path / "x.pt")
    assert fl.load(tmp_path / "x.pt").tolist() == [0, 2, 4, 6]


def test_booleans_filled_with_fractions():
    x, mask = fl.tensor([False, False, True]), fl.tensor([True, False, False])
    y = (x.to("lazy") ^ False).masked_fill(mask.to("lazy"), 0.5)
    assert y.tolist() == [True, False, True]
    step = fl.compile(lambda x, mask, value: x.masked_fill(mask, value))
    assert [step(x, mask, value).tolist()[0] for value in (0.5, 0.25, 0.0, 0.75)] == [True, True, False, True]


def test_equal_rotated_boxes_overlap_whatever_is_fused():
    boxes = fl.tensor([[2.0, 2.0, 2.0, 1.0, 30.0], [2.5, 2.2, 1.5, 2.0, -20.0]])
    overlap = fl.ops.torchvision.box_iou_rotated
    fl.testing.assert_close(overlap(boxes, boxes).diagonal(), fl.ones(2))
    there = boxes.to("lazy")
    fl.testing.assert_close(overlap(there, there).cpu(), overlap(boxes, boxes))


def test_numbers_that_stand_for_tensors_over_a_device_from_outside():
    from flambeau.backends import register_device
    from flambeau.backends.reference import pointwise, reduction

    register_device("lazybase", pointwise=pointwise, reduction=reduction)
    lazy.over("lazybase")
    try:
        x = fl.ones(3, device="lazy")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (1.0 / (x + 1)).tolist() == [0.5] * 3
    finally:
        lazy.over("cpu")


def test_an_optimizer_of_parameters_on_several_devices():
    for make in (fl.optim.SGD, fl.optim.AdamW):
        parameters = [fl.nn.Parameter(fl.ones(3, device=device)) for device in ("cpu", "lazy", "cpu", "lazy")]
        optimizer = make(parameters, lr=0.5)
        sum((p.cpu() * 2).sum() for p in parameters).backward()
        optimizer.step()
        assert [p.device.type for p in parameters] == ["cpu", "lazy", "cpu", "lazy"]
        assert all(p.tolist() == parameters[0].tolist() != [1, 1, 1] for p in parameters)
