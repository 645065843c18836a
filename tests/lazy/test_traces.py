"""Programs that repeat themselves: the recorder follows what it recorded before and notices where they differ."""

import pytest

import flambeau as fl
from flambeau import lazy

F = fl.nn.functional


def runs():
    return fl._C._lazy_metrics("lazy")["graphs"]


def both(program, steps=8):
    """The values of a program's steps on the CPU and recorded; `program(device)` makes the step."""
    results = []
    for device in ("cpu", "lazy"):
        fl.manual_seed(0)
        step = program(device)
        values = []
        for i in range(steps):
            out = step(i)
            lazy.mark_step()
            values.append([t.cpu().clone() for t in out])
        results.append(values)
    for expected, actual in zip(*results):
        for e, a in zip(expected, actual):
            fl.testing.assert_close(a, e)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_training_with_changing_learning_rate(optimizer):
    def program(device):
        model = fl.nn.Sequential(fl.nn.Linear(6, 8), fl.nn.GELU(), fl.nn.Linear(8, 3)).to(device)
        update = getattr(fl.optim, optimizer)(model.parameters(), lr=0.01)
        x, y = fl.randn(5, 6).to(device), fl.tensor([0, 1, 2, 1, 0]).to(device)

        def step(i):
            update.param_groups[0]["lr"] = 0.1 / (i + 1)
            update.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            update.step()
            return [loss.detach(), *[p.detach() for p in model.parameters()]]

        return step

    both(program)


def test_random_numbers_go_on():
    def program(device):
        generator_was_set = fl.ones(4, 4).to(device)

        def step(i):
            if i == 5:
                fl.manual_seed(3)
            return [F.dropout(generator_was_set, 0.5) * 2, fl.rand(3, device=device)]

        return step

    both(program)


def test_branches_numbers_and_lists():
    def program(device):
        x, y = fl.randn(4, 4).to(device), fl.randn(4, 4).to(device)

        def step(i):
            a = fl.cat([x, y] if i % 3 else [y, x], dim=i % 2)
            b = a.sum(0) if i < 4 else a.sum(1)
            c = x.t().reshape(2, 8)[:, i % 4 : i % 4 + 2] * (2 if i < 6 else 2.5)
            d = x.to(fl.float64) if i % 4 == 3 else x + (y if i % 2 else x)
            return [b, c, d, *a.split([3, a.shape[0] - 3])]

        return step

    both(program, 16)


def test_tensors_that_share_memory_are_told_from_those_that_do_not():
    def program(device):
        x, y = fl.randn(4).to(device), fl.randn(4).to(device)

        def step(i):
            a, b = (x, x) if i in (4, 7) else (x, y)
            a.add_(1)
            b.mul_(2)
            return [a + b, x.clone(), y.clone()]

        return step

    both(program, 10)


def test_other_values_may_be_wanted():
    x = fl.ones(3, device="lazy")
    for i in range(9):
        a = x + 1
        b = a * 3
        if i % 2:
            del a
        c = b - 1
        lazy.mark_step()
        assert c.tolist() == [5, 5, 5]
        if not i % 2:
            assert a.tolist() == [2, 2, 2]


def test_default_dtype_is_seen():
    x = fl.arange(3, device="lazy")
    try:
        for i in range(8):
            fl.set_default_dtype(fl.float64 if i > 4 else fl.float32)
            y = x / 2
            assert y.dtype is (fl.float64 if i > 4 else fl.float32)
            lazy.mark_step()
            assert y.tolist() == [0, 0.5, 1]
    finally:
        fl.set_default_dtype(fl.float32)


def test_numbers_of_the_host_are_those_of_the_step():
    x = fl.ones(3, device="lazy")
    for i in range(8):
        y = x * fl.tensor(float(i)) + i * 0.5
        lazy.mark_step()
        assert y.tolist() == [i * 1.5] * 3


def test_a_program_ends_early():
    x = fl.arange(4.0, device="lazy")
    for i in range(10):
        y = x + 1
        if i in (4, 6):
            assert y.sum().item() == 10
        z = y * y
        lazy.mark_step()
        assert z.tolist() == [1, 4, 9, 16]


def test_shape_errors_come_at_once_in_a_known_program():
    x = fl.ones(2, 3, device="lazy")
    for i in range(7):
        y = x + 1
        if i == 5:
            with pytest.raises(RuntimeError, match="mm"):
                y.mm(x)
        z = y.mm(x.t())
        lazy.mark_step()
        assert z.tolist() == [[6, 6], [6, 6]]


def test_failures_name_the_line_of_this_step():
    table, index = fl.ones(4, 2, device="lazy"), fl.zeros(3, dtype=fl.int64)
    for i in range(6):
        rows = F.embedding((index + (9 if i == 5 else 0)).to("lazy"), table)
        twice = rows * 2
        if i == 5:
            with pytest.raises(IndexError, match=r"test_traces\.py"):
                lazy.mark_step()
        else:
            lazy.mark_step()
            assert twice.sum().item() == 12


def test_a_limit_of_operators_holds():
    lazy.set_limit(5)
    try:
        for i in range(8):
            if i == 5:
                lazy.set_limit(3)
            x = fl.ones(2, device="lazy")
            for _ in range(12):
                x = x + 1
            before = runs()
            assert x.tolist() == [13, 13]
            assert runs() - before <= 1
    finally:
        lazy.set_limit(4096)


def test_what_was_recorded_can_be_seen_in_between():
    x = fl.ones(2, device="lazy")
    for i in range(7):
        y = (x + 1) * (i + 0.5)
        if i == 5:
            graph, inputs = fl._C._lazy_recorded("lazy")
            assert [c.op.__name__ for c in graph.calls] == ["add.Tensor", "mul.Tensor"]
            assert inputs[-1].item() == 5.5
        z = y - 1
        lazy.mark_step()
        assert z.tolist() == [2 * (i + 0.5) - 1] * 2
