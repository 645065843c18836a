"""Learning rate schedules beside PyTorch's: the same rates (and momentums) for sixty epochs."""

import copy
import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")

EPOCHS = 60


def halves(epoch):
    return 0.5 ** (epoch // 7)


def shrinks(epoch):
    return 0.93


CASES = {
    "lambda": lambda s, o, **k: s.LambdaLR(o, halves, **k),
    "lambdas": lambda s, o, **k: s.LambdaLR(o, [halves, lambda e: 0.9**e], **k),
    "multiplicative": lambda s, o, **k: s.MultiplicativeLR(o, shrinks, **k),
    "step": lambda s, o, **k: s.StepLR(o, 7, gamma=0.3, **k),
    "multistep": lambda s, o, **k: s.MultiStepLR(o, [3, 9, 9, 40], gamma=0.5, **k),
    "constant": lambda s, o, **k: s.ConstantLR(o, factor=0.25, total_iters=9, **k),
    "linear": lambda s, o, **k: s.LinearLR(o, start_factor=0.2, end_factor=0.8, total_iters=13, **k),
    "exponential": lambda s, o, **k: s.ExponentialLR(o, 0.9, **k),
    "polynomial": lambda s, o, **k: s.PolynomialLR(o, total_iters=40, power=1.7, **k),
    "cosine": lambda s, o, **k: s.CosineAnnealingLR(o, 11, eta_min=0.01, **k),
    "restarts": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 5, T_mult=2, eta_min=0.001, **k),
    "restarts evenly": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 9, **k),
}
FRESH_ONLY = {
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.3, step_size_up=7, step_size_down=5),
    "cyclic halved": lambda s, o: s.CyclicLR(o, [0.01, 0.02], [0.3, 0.4], step_size_up=6, mode="triangular2"),
    "cyclic range": lambda s, o: s.CyclicLR(o, 0.01, 0.3, step_size_up=6, mode="exp_range", gamma=0.97),
    "cyclic own": lambda s, o: s.CyclicLR(o, 0.01, 0.3, 6, scale_fn=lambda x: 1 / x, cycle_momentum=False),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=70),
    "one cycle linear": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.6], epochs=7, steps_per_epoch=10, anneal_strategy="linear", three_phase=True
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 8), s.ExponentialLR(o, 0.9)]),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 20), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 7)], [5, 30]
    ),
    "sequential of chained": lambda s, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.StepLR(o, 3), s.ExponentialLR(o, 0.9)]), s.LinearLR(o, 0.1, total_iters=5)], [6]
    ),
    "warm-up then restarts": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingWarmRestarts(o, 6)], [5]
    ),
}


def optimizer(library, name="SGD", **options):
    a, b = (library.zeros(2, requires_grad=True) for _ in range(2))
    groups = [{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.4}]
    return getattr(library.optim, name)(groups, **({"momentum": 0.9} if name == "SGD" else {}), **options)


def rates(optimizer):
    return [
        float(group[key][0] if key == "betas" else group[key])
        for group in optimizer.param_groups
        for key in ("lr", "momentum", "betas")
        if key in group
    ]


def follow(library, make, name="SGD", epochs=EPOCHS, argument=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opt = optimizer(library, name)
        schedule = make(library.optim.lr_scheduler, opt)
        found = [rates(opt)]
        for epoch in range(epochs):
            opt.step()
            schedule.step(*([] if argument is None else [argument(epoch)]))
            found.append(rates(opt) + [float(x) for x in schedule.get_last_lr()])
    return found


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for epoch, (a, b) in enumerate(zip(ours, theirs)):
        assert a == pytest.approx(b, rel=1e-12, abs=1e-15), f"epoch {epoch}"


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("case", [*CASES, *FRESH_ONLY])
def test_rates_follow(case, name):
    make = {**CASES, **FRESH_ONLY}[case]
    assert_same(follow(flambeau, make, name), follow(torch, make, name))


@pytest.mark.parametrize("case", CASES)
def test_rates_follow_with_given_epochs(case):
    def jump(epoch):
        return (epoch * 7) % 23

    assert_same(
        follow(flambeau, CASES[case], argument=jump, epochs=30), follow(torch, CASES[case], argument=jump, epochs=30)
    )


@pytest.mark.parametrize("case", CASES)
def test_resuming_from_an_epoch(case):
    def resume(library):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opt = optimizer(library)
            for group in opt.param_groups:
                group["initial_lr"] = group["lr"] * 2
            schedule = CASES[case](library.optim.lr_scheduler, opt, last_epoch=4)
            found = [rates(opt)]
            for _ in range(20):
                opt.step()
                schedule.step()
                found.append(rates(opt))
        return found

    assert_same(resume(flambeau), resume(torch))


@pytest.mark.parametrize("case", [*CASES, *FRESH_ONLY])
def test_state_goes_back_and_forth(case):
    make = {**CASES, **FRESH_ONLY}[case]

    def run(saver, loader):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = optimizer(saver)
            schedule = make(saver.optim.lr_scheduler, first)
            for _ in range(8):
                first.step()
                schedule.step()
            state = copy.deepcopy(schedule.state_dict())
            second = optimizer(loader)
            resumed = make(loader.optim.lr_scheduler, second)
            resumed.load_state_dict(state)
            for ours, theirs in zip(second.param_groups, first.param_groups):
                ours.update({k: v for k, v in theirs.items() if k != "params"})
            found = []
            for _ in range(12):
                second.step()
                resumed.step()
                found.append(rates(second))
        return found

    expected = run(torch, torch)
    assert_same(run(flambeau, torch), expected)
    assert_same(run(torch, flambeau), expected)


@pytest.mark.parametrize("options", [
    {}, {"mode": "max", "factor": 0.5, "patience": 2}, {"threshold_mode": "abs", "threshold": 0.05, "patience": 1},
    {"patience": 1, "cooldown": 3, "min_lr": [0.01, 0.02]},
], ids=str)  # fmt: skip
def test_plateau(options):
    def metric(epoch):
        return [1.0, 0.9, 0.91, 0.905, 0.9, 0.7, 0.71, 0.72][epoch % 8] + epoch // 20

    def make(s, o):
        return s.ReduceLROnPlateau(o, **options)

    assert_same(follow(flambeau, make, argument=metric), follow(torch, make, argument=metric))


@pytest.mark.parametrize("case", ["step", "cosine", "linear", "exponential"])
def test_tensor_rates(case):
    def run(library):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = library.zeros(2, requires_grad=True)
            opt = library.optim.Adam([p], lr=library.tensor(0.1))
            schedule = CASES[case](library.optim.lr_scheduler, opt)
            found = []
            for _ in range(30):
                opt.step()
                schedule.step()
                assert isinstance(opt.param_groups[0]["lr"], library.Tensor)
                found.append(float(opt.param_groups[0]["lr"]))
        return found

    assert run(flambeau) == pytest.approx(run(torch), rel=1e-5)


@pytest.mark.parametrize("call", [
    lambda t, s, o: s.StepLR(object(), 3),
    lambda t, s, o: s.LambdaLR(o, [halves]),
    lambda t, s, o: s.ConstantLR(o, factor=2.0),
    lambda t, s, o: s.LinearLR(o, start_factor=0),
    lambda t, s, o: s.OneCycleLR(o, 0.1),
    lambda t, s, o: s.OneCycleLR(o, 0.1, total_steps=-1),
    lambda t, s, o: s.OneCycleLR(o, 0.1, total_steps=10, pct_start=2.0),
    lambda t, s, o: s.CosineAnnealingWarmRestarts(o, 0),
    lambda t, s, o: s.ReduceLROnPlateau(o, factor=1.5),
    lambda t, s, o: s.ReduceLROnPlateau(o, mode="best"),
    lambda t, s, o: s.SequentialLR(o, [s.StepLR(o, 3)], [3]),
    lambda t, s, o: s.ChainedScheduler([]),
    lambda t, s, o: s.CyclicLR(t.optim.Adagrad([t.zeros(1, requires_grad=True)]), 0.1, 0.2),
    lambda t, s, o: s.StepLR(o, 3, last_epoch=3),
])  # fmt: skip
def test_bad_arguments(call):
    errors = []
    for library in (torch, flambeau):
        with pytest.raises(Exception) as error:
            call(library, library.optim.lr_scheduler, optimizer(library))
        errors.append(type(error.value))
    assert errors[0] is errors[1]


@pytest.mark.parametrize("use", [
    lambda t, o, s: (s.step(), s.step()),
    lambda t, o, s: (o.step(), s.step(), s.step(3)),
    lambda t, o, s: s.get_lr(),
    lambda t, o, s: (setattr(o, "step", lambda: None), s.step()),
])  # fmt: skip
def test_warnings(use):
    seen = []
    for library in (torch, flambeau):
        opt = optimizer(library)
        schedule = library.optim.lr_scheduler.StepLR(opt, 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            use(library, opt, schedule)
        seen.append([w.category for w in caught])
    assert seen[0] == seen[1]
