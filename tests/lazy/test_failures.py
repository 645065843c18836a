"""Recorded programs that fail: the error comes at the sync with the line that recorded the call, and whoever asks later for
a value that the program would have computed gets the same error again, never memory without values."""

import copy

import pytest

import flambeau as fl
from flambeau import lazy
from flambeau.backends import register_device

LOOKS = {
    "cpu": lambda t: t.cpu(),
    "tolist": lambda t: t.tolist(),
    "repr": repr,
    "bool": lambda t: bool(t.sum() > 0),
    "use": lambda t: t + 1,
    "write": lambda t: t.add_(1),
    "view": lambda t: t.view(-1).cpu(),
    "copy": lambda t: fl.empty(t.shape).copy_(t),
    "nonzero": fl.nonzero,
}


@pytest.fixture(autouse=True)
def clean():
    lazy.sync()
    yield
    lazy.sync()


def check_lost(tensor, kind, match):
    for look in LOOKS.values():
        with pytest.raises(kind, match=match):
            look(tensor)


def test_an_index_out_of_range_is_raised_at_the_sync_and_by_every_later_read():
    x = fl.arange(4.0).to("lazy")
    before = x * 2
    y = x[fl.tensor([9]).to("lazy")]  # recorded here
    after = y + 1
    with pytest.raises(IndexError, match=r"test_failures.py:\d+: y = x\[fl.tensor"):
        lazy.mark_step()
    lazy.mark_step()  # the program is gone: nothing is left to run
    for tensor in (before, y, after):
        check_lost(tensor, IndexError, r"recorded at .*test_failures.py")
    assert x.tolist() == [0, 1, 2, 3]  # an input that nobody wrote


def test_each_way_of_looking_at_a_value_raises_the_error():
    for name, look in LOOKS.items():
        x = fl.arange(4.0).to("lazy")
        y = x.gather(0, fl.tensor([7]).to("lazy")) * 2
        if name in ("use", "write"):  # is only recorded
            look(y)
            look = LOOKS["cpu"]
        with pytest.raises((IndexError, RuntimeError), match="recorded at"):
            look(y)


def test_a_program_that_cannot_be_compiled(monkeypatch):
    def refuse(*args):
        raise ValueError("[compile] expected a machine that compiles, got this one")

    from flambeau._inductor import numbers

    x = fl.ones(3, 5).to("lazy")
    y = (x.sin() * 3.25).cos() - x
    monkeypatch.setattr(numbers.ScalarGraphCompiler, "graph_for", refuse)
    with pytest.raises(ValueError, match=r"got this one\n.*program that begins at .*test_failures.py"):
        lazy.mark_step()
    check_lost(y, ValueError, "got this one")
    monkeypatch.undo()
    z = (x.sin() * 3.25).cos() - x  # the same graph, now with a compiler
    fl.testing.assert_close(z.cpu(), (x.cpu().sin() * 3.25).cos() - x.cpu())


def test_a_compilation_that_is_interrupted(monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    from flambeau._inductor import numbers

    x = fl.ones(3, 6).to("lazy")
    y = (x.sin() * 4.25).cos() - x
    monkeypatch.setattr(numbers.ScalarGraphCompiler, "graph_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lazy.mark_step()
    check_lost(y, RuntimeError, "interrupted")


def test_a_kernel_of_the_device_below_that_raises():
    class Broken(Exception):
        def __init__(self, code, unit):
            super().__init__(code, unit)

    device = register_device("failchip")

    def pointwise(expr, operands, out, dtype):
        raise Broken(7, "core")

    device.pointwise = pointwise
    lazy.over("failchip")
    try:
        x = fl.empty(4, device="lazy")
        y = x.sin() + 1
        with pytest.raises(RuntimeError, match=r"Broken: \(7, 'core'\)\nrecorded at .*y = x.sin\(\)"):
            lazy.mark_step()
        check_lost(y, RuntimeError, "Broken")
    finally:
        lazy.over("cpu")


def test_memory_that_cannot_be_had():
    x = fl.ones(1, device="lazy")
    y = x.expand(1 << 24, 1 << 24) * 2.5
    with pytest.raises((RuntimeError, MemoryError), match=r"recorded at|begins at"):
        lazy.mark_step()
    with pytest.raises((RuntimeError, MemoryError), match=r"recorded at|begins at"):
        y[0, 0].item()


def test_a_graph_that_runs_by_itself_raises_where_it_ran():
    lazy.set_limit(4)
    try:
        x = fl.arange(4.0).to("lazy")
        y = x[fl.tensor([9]).to("lazy")]
        with pytest.raises(IndexError, match=r"y = x\[fl.tensor"):
            for _ in range(5):
                x = x + 1
        with pytest.raises(IndexError, match=r"y = x\[fl.tensor"):
            y.cpu()
    finally:
        lazy.set_limit(4096)


def test_inputs_that_a_failed_program_wrote_have_no_value_until_they_are_written_again():
    x = fl.zeros(4, device="lazy")
    lazy.mark_step()
    x += 1
    x[fl.tensor([9]).to("lazy")] = 5.0
    with pytest.raises(IndexError, match="recorded at"):
        lazy.mark_step()
    check_lost(x, IndexError, "recorded at")
    with pytest.raises(IndexError, match="recorded at"):
        x[:2].copy_(fl.ones(2))  # a part of it only
    x.copy_(fl.full((4,), 3.0))
    assert (x + 1).tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_bad_batch_is_named_and_a_model_can_be_loaded_again(optimizer):
    fl.manual_seed(0)
    model = fl.nn.Linear(4, 3).to("lazy")
    chosen = getattr(fl.optim, optimizer)(model.parameters(), lr=0.1)
    x = fl.randn(5, 4).to("lazy")

    def step(target):
        chosen.zero_grad()
        loss = fl.nn.functional.cross_entropy(model(x), fl.tensor(target).to("lazy"))
        loss.backward()
        chosen.step()
        return loss

    first = step([0, 1, 2, 0, 1]).item()
    saved = {name: p.cpu() for name, p in model.state_dict().items()}
    state = copy.deepcopy(chosen.state_dict())
    lazy.mark_step()  # the copies are recorded too
    loss = step([0, 1, 2, 0, 7])
    with pytest.raises(IndexError, match=r"recorded at .*cross_entropy"):
        lazy.mark_step()
    with pytest.raises(IndexError, match=r"recorded at .*cross_entropy"):
        loss.item()
    with pytest.raises(IndexError, match=r"recorded at .*cross_entropy"):
        model.weight.cpu()  # the failed program may have written it
    model.load_state_dict(saved)
    chosen.load_state_dict(state)
    assert step([0, 1, 2, 0, 1]).item() < first


def test_random_streams_go_on_after_a_failure():
    fl.manual_seed(3)
    wanted = [fl.rand(2).tolist() for _ in range(3)]
    fl.manual_seed(3)
    first = fl.rand(2, device="lazy")
    assert first.tolist() == wanted[0]
    lost = fl.rand(2, device="lazy") + fl.arange(4.0).to("lazy")[fl.tensor([9]).to("lazy")]
    with pytest.raises(IndexError):
        lost.cpu()
    assert fl.rand(2, device="lazy").tolist() == wanted[2]
