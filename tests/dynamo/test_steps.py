"""Whole training steps as one graph: forward, backward, the optimizer, and gradients that are kept or forgotten."""

import pytest

import flambeau as fl
from flambeau import nn, optim

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=1.0),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "asgd": lambda p: optim.ASGD(p, lr=0.01),
    "rprop": lambda p: optim.Rprop(p, lr=0.01),
}


def make_model():
    fl.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def train(make_step, make_optimizer, backend, steps=5, schedule=False):
    """Losses, parameters, gradients and optimizer state after some steps; the number of captures."""
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    step = make_step(model, optimizer)
    if backend is not None:
        step = fl.compile(step, backend=backend, fullgraph=True)
    sources = [fl.Generator().manual_seed(i) for i in range(steps)]
    batches = [fl.randn(4, 6, generator=g, device="cpu").to(fl.get_default_device()) for g in sources]
    losses = []
    for i, batch in enumerate(batches):
        if schedule:
            for group in optimizer.param_groups:
                group["lr"] = 0.05 / (i + 1)
        losses.append(step(batch).detach())
    grads = [p.grad for p in model.parameters()]
    state = [v for p in model.parameters() for _, v in sorted(optimizer.state[p].items()) if v is not None]
    captures = 0 if backend is None else step._unit.artifacts
    return [*losses, *model.parameters(), *grads, *state], captures


def check(make_step, make_optimizer, backend, captures=2, **options):
    wanted, _ = train(make_step, make_optimizer, None, **options)
    got, count = train(make_step, make_optimizer, backend, **options)
    assert len(wanted) == len(got)
    for a, b in zip(wanted, got):
        assert (a is None) == (b is None)
        if a is not None and backend == "eager":
            assert fl.equal(a, b)
        elif a is not None:
            assert fl.allclose(a, b, rtol=1e-5, atol=1e-6)
    assert count <= captures


def plain_step(model, optimizer):
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def zero_first(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_graph(name):
    # A second capture, because the first step makes the optimizer's state.
    check(plain_step, OPTIMIZERS[name], "eager")


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_compiled_steps_follow_eager_ones(name):
    check(plain_step, OPTIMIZERS[name], "inductor", steps=20)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_new_learning_rate_is_no_reason_to_capture_again(backend):
    check(plain_step, OPTIMIZERS["adam"], backend, schedule=True)
    check(plain_step, OPTIMIZERS["sgd"], backend, schedule=True, captures=1)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_are_left_on_the_parameters(backend):
    check(zero_first, OPTIMIZERS["adam"], backend)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_of_two_batches_are_added(backend):
    def accumulating(model, optimizer):
        def step(x):
            total = 0.0
            for part in x.chunk(2):
                loss = model(part).square().mean() / 2
                loss.backward()
                total = total + loss.detach()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            return total

        return step

    check(accumulating, OPTIMIZERS["adamw"], backend, captures=3)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_are_clipped(backend):
    def clipping(model, optimizer):
        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
            return loss + norm

        return step

    check(clipping, OPTIMIZERS["sgd"], backend)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_autograd_grad_is_part_of_the_graph(backend):
    def functional(model, optimizer):
        parameters = list(model.parameters())

        def step(x):
            loss = model(x).square().mean()
            with fl.no_grad():
                for p, g in zip(parameters, fl.autograd.grad(loss, parameters)):
                    p -= 0.1 * g
            return loss

        return step

    check(functional, OPTIMIZERS["sgd"], backend, captures=1)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_autocast_inside_a_step(backend):
    kind = fl.get_default_device().type

    def mixed(model, optimizer):
        def step(x):
            with fl.autocast(kind, dtype=fl.bfloat16):
                loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    wanted, _ = train(mixed, OPTIMIZERS["adam"], None)
    got, _ = train(mixed, OPTIMIZERS["adam"], backend)
    for a, b in zip(wanted, got):
        assert (a is None and b is None) or fl.allclose(a, b, rtol=1e-2, atol=1e-2)


def test_the_history_of_a_loss_is_used_up():
    model = make_model()

    @fl.compile(backend="eager", fullgraph=True)
    def step(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    loss = step(fl.ones(2, 6))
    assert loss.requires_grad and loss.grad_fn is not None
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_results_beside_a_backward_keep_their_history(backend):
    model = make_model()

    def step(x):
        model(x).sum().backward()
        return model(x + 1)

    compiled = fl.compile(step, backend=backend, fullgraph=True)
    step(fl.ones(2, 6)).square().sum().backward()
    wanted = [p.grad for p in model.parameters()]
    model.zero_grad()
    compiled(fl.ones(2, 6)).square().sum().backward()
    for a, p in zip(wanted, model.parameters()):
        assert fl.allclose(a, p.grad, rtol=1e-5, atol=1e-6)


def test_a_hook_that_is_added_later_is_called():
    model = make_model()

    @fl.compile(backend="eager")
    def step(x):
        model(x).sum().backward()

    step(fl.ones(2, 6))
    seen = []
    model[0].weight.register_hook(lambda g: seen.append(g.shape))
    step(fl.ones(2, 6))
    assert len(seen) == 1


def test_gradients_flow_on_into_an_argument_with_history():
    w = fl.ones(3, requires_grad=True)

    @fl.compile(backend="eager")
    def step(x):
        (x * 2).sum().backward()

    leaf = fl.ones(3, requires_grad=True)
    step(leaf)
    assert leaf.grad.tolist() == [2.0, 2.0, 2.0]
    step(w * 3)
    assert w.grad.tolist() == [6.0, 6.0, 6.0]


def test_retained_graphs_can_be_used_again():
    @fl.compile(backend="eager", fullgraph=True)
    def step(x):
        y = x.sin()
        y.sum().backward(retain_graph=True)
        y.square().sum().backward()
        return x.grad * 2

    x = fl.tensor([0.5, 1.0], requires_grad=True)
    got = step(x)
    y = fl.tensor([0.5, 1.0], requires_grad=True)
    (y.sin().sum() + y.sin().square().sum()).backward()
    assert fl.allclose(x.grad, y.grad) and fl.allclose(got, 2 * y.grad)


def test_a_scheduler_around_a_compiled_step():
    def run(backend):
        model = make_model()
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        step = plain_step(model, optimizer)
        if backend is not None:
            step = fl.compile(step, backend=backend, fullgraph=True)
        losses = []
        for _ in range(6):
            losses.append(step(fl.ones(4, 6)).item())
            scheduler.step()
        if backend is not None:
            assert step._unit.artifacts == 2
        return losses

    assert run("eager") == run(None)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_dropout_and_batch_statistics_inside_a_step(backend):
    def run(backend):
        fl.manual_seed(0)
        # No bias before the norm: its gradient is rounding noise, of which Adam would make whole steps.
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
        step = plain_step(model, optim.Adam(model.parameters(), lr=0.01))
        if backend is not None:
            step = fl.compile(step, backend=backend, fullgraph=True)
        fl.manual_seed(5)
        return [*(step(fl.randn(6, 6)).item() for _ in range(4)), *model[1].running_mean.tolist()]

    assert run(backend) == pytest.approx(run(None), rel=1e-5, abs=1e-6)


def test_numbers_computed_from_numbers_are_results():
    for backend in ("eager", "aot_eager"):
        compiled = fl.compile(lambda x, s: (x * s, s * 2 + 1), backend=backend)
        for s in (1.0, 2.5, 4.0):
            product, number = compiled(fl.ones(2), s)
            assert product.tolist() == [s, s] and type(number) is float and number == s * 2 + 1


def test_numbers_read_from_tensors_are_results():
    with fl._dynamo.config.patch(capture_scalar_outputs=True):
        for backend in ("eager", "aot_eager"):
            compiled = fl.compile(lambda x: (x * 2, x.sum().item() + 1), backend=backend, fullgraph=True)
            doubled, number = compiled(fl.ones(3))
            assert doubled.tolist() == [2, 2, 2] and number == 4.0
