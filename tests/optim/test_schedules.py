"""Learning rate schedules against their formulas."""

import copy
import gc
import math
import pickle
import weakref

import pytest

import flambeau as fl
from flambeau.optim import SGD, Adam, lr_scheduler


def optimizer(lr=1.0, **options):
    return SGD([fl.zeros(1, requires_grad=True)], lr=lr, **options)


def rates(opt, schedule, epochs):
    found = [opt.param_groups[0]["lr"]]
    for _ in range(epochs):
        opt.step()
        schedule.step()
        found.append(opt.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [found[-1]]
    return found


@pytest.mark.parametrize(
    ("make", "formula"),
    [
        (lambda o: lr_scheduler.StepLR(o, 3, 0.5), lambda e: 0.5 ** (e // 3)),
        (lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.1), lambda e: 0.1 ** ((e >= 2) + (e >= 5))),
        (lambda o: lr_scheduler.ExponentialLR(o, 0.9), lambda e: 0.9**e),
        (lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e)), lambda e: 1 / (1 + e)),
        (lambda o: lr_scheduler.MultiplicativeLR(o, lambda e: 0.8), lambda e: 0.8**e),
        (lambda o: lr_scheduler.ConstantLR(o, 0.5, 4), lambda e: 0.5 if e < 4 else 1.0),
        (lambda o: lr_scheduler.LinearLR(o, 0.2, 1.0, 4), lambda e: 0.2 + 0.8 * min(e, 4) / 4),
        (lambda o: lr_scheduler.PolynomialLR(o, 6, 2.0), lambda e: (1 - min(e, 6) / 6) ** 2),
        (
            lambda o: lr_scheduler.CosineAnnealingLR(o, 5, 0.1),
            lambda e: 0.1 + 0.9 * (1 + math.cos(math.pi * e / 5)) / 2,
        ),
        (
            lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
            lambda e: (1 + math.cos(math.pi * (e % 4) / 4)) / 2,
        ),
        (
            lambda o: lr_scheduler.CyclicLR(o, 0.0, 1.0, 4, cycle_momentum=False),
            lambda e: 1 - abs(e % 8 - 4) / 4,
        ),
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.ConstantLR(o, 0.5, 99), lr_scheduler.ExponentialLR(o, 0.9)], [3]
            ),
            lambda e: 0.5 if e < 3 else 0.9 ** (e - 3),
        ),
        (
            lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 2), lr_scheduler.ExponentialLR(o, 0.9)]),
            lambda e: 0.9**e * 0.1 ** (e // 2),
        ),
    ],
)
def test_formulas(make, formula):
    opt = optimizer()
    found = rates(opt, make(opt), 12)
    assert found == pytest.approx([formula(e) for e in range(13)], abs=1e-12)


def test_one_cycle_goes_up_and_down_with_momentum_against_it():
    opt = optimizer(momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(opt, 1.0, total_steps=10)
    found, moments = [], []
    for _ in range(9):
        opt.step()
        found.append(opt.param_groups[0]["lr"])
        moments.append(opt.param_groups[0]["momentum"])
        schedule.step()
    assert found[0] == pytest.approx(1 / 25)
    assert max(found) == pytest.approx(1.0)
    assert found.index(max(found)) == moments.index(min(moments)) == 2
    assert opt.param_groups[0]["lr"] == pytest.approx(1 / 25 / 1e4)
    opt.step()
    schedule.step()
    with pytest.raises(ValueError, match="at most"):
        schedule.step()


def test_beta1_is_the_momentum_of_adam():
    opt = Adam([fl.zeros(1, requires_grad=True)])
    lr_scheduler.OneCycleLR(opt, 1.0, total_steps=10)
    assert opt.param_groups[0]["betas"] == (0.95, 0.999)


def test_plateau():
    opt = optimizer()
    schedule = lr_scheduler.ReduceLROnPlateau(opt, patience=1, factor=0.5)
    for loss, expected in ((1.0, 1), (0.9, 1), (0.9, 1), (0.9, 0.5), (0.95, 0.5), (0.8, 0.5), (0.8, 0.5), (0.8, 0.25)):
        schedule.step(fl.tensor(loss))
        assert opt.param_groups[0]["lr"] == expected


def test_groups_keep_their_ratio():
    opt = SGD([{"params": [fl.zeros(1, requires_grad=True)], "lr": lr} for lr in (1.0, 0.1)])
    schedule = lr_scheduler.ExponentialLR(opt, 0.5)
    opt.step()
    schedule.step()
    assert [g["lr"] for g in opt.param_groups] == [0.5, 0.05]
    assert [g["initial_lr"] for g in opt.param_groups] == [1.0, 0.1]


def test_tensor_rates_are_written_in_place():
    rate = fl.tensor(1.0)
    opt = Adam([fl.zeros(1, requires_grad=True)], lr=rate)
    schedule = lr_scheduler.ExponentialLR(opt, 0.5)
    opt.step()
    schedule.step()
    assert opt.param_groups[0]["lr"] is rate
    assert rate.item() == 0.5
    assert schedule.base_lrs[0].item() == 1.0


def test_checkpoints():
    opt = optimizer()
    schedule = lr_scheduler.CosineAnnealingLR(opt, 7)
    rates(opt, schedule, 3)
    state = pickle.loads(pickle.dumps(schedule.state_dict()))
    other = optimizer(opt.param_groups[0]["lr"])
    other.param_groups[0]["initial_lr"] = 1.0
    resumed = lr_scheduler.CosineAnnealingLR(other, 7)
    resumed.load_state_dict(state)
    assert rates(other, resumed, 6)[1:] == pytest.approx(rates(opt, schedule, 6)[1:])


class Factor:
    def __init__(self, base):
        self.base = base

    def __call__(self, epoch):
        return self.base**epoch


def test_callable_objects_are_saved_with_their_attributes():
    opt = optimizer()
    state = lr_scheduler.LambdaLR(opt, Factor(0.5)).state_dict()
    other = lr_scheduler.LambdaLR(opt, Factor(0.9))
    other.load_state_dict(state)
    assert other.lr_lambdas[0].base == 0.5


def test_wrong_order_is_told():
    opt = optimizer()
    schedule = lr_scheduler.StepLR(opt, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_a_schedule_does_not_keep_the_optimizer_alive():
    opt = optimizer()
    schedule = lr_scheduler.StepLR(opt, 2)
    held = weakref.ref(opt)
    del opt, schedule
    gc.collect()
    assert held() is None


def test_copies():
    opt = optimizer(momentum=0.9)
    schedule = lr_scheduler.StepLR(opt, 2)
    twin = copy.deepcopy(schedule)
    assert twin.optimizer is not opt
    assert twin.state_dict() == schedule.state_dict()
