"""GradScaler: scaling, leaving out bad steps, adapting, checkpoints."""

import pickle

import pytest

import flambeau as fl
from flambeau.amp import GradScaler


def one_step(scaler, optimizer, p, factor):
    optimizer.zero_grad()
    scaler.scale((p * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("fused", [False, True])
def test_good_and_bad_steps(fused):
    p = fl.ones(3, requires_grad=True)
    opt = fl.optim.SGD([p], lr=0.5, fused=fused)
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=2)
    one_step(scaler, opt, p, 1.0)
    assert p.tolist() == [0.5] * 3
    one_step(scaler, opt, p, float("inf"))
    assert p.tolist() == [0.5] * 3
    assert scaler.get_scale() == 2.0
    one_step(scaler, opt, p, 1.0)
    one_step(scaler, opt, p, 1.0)
    assert scaler.get_scale() == 4.0
    assert p.tolist() == [-0.5] * 3


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adagrad"])
def test_fused_optimizers_unscale_by_themselves(name):
    found = []
    for fused in (False, True):
        p = fl.tensor([1.0, -2.0], requires_grad=True)
        opt = getattr(fl.optim, name)([p], lr=0.1, fused=fused)
        scaler = GradScaler("cpu", init_scale=64.0)
        for factor in (1.0, 2.0, float("nan"), 3.0):
            one_step(scaler, opt, p, factor)
        found.append((p.detach(), opt.state[p]["step"].item(), scaler.get_scale()))
    assert fl.allclose(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_unscaling_before_clipping():
    p = fl.ones(2, requires_grad=True)
    opt = fl.optim.SGD([p], lr=1.0)
    scaler = GradScaler("cpu", init_scale=1024.0)
    scaler.scale((p * 3).sum()).backward()
    scaler.unscale_(opt)
    assert p.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="once between updates"):
        scaler.unscale_(opt)
    p.grad.clamp_(max=1.0)
    scaler.step(opt)
    with pytest.raises(RuntimeError, match="once between updates"):
        scaler.step(opt)
    scaler.update()
    assert p.tolist() == [0.0, 0.0]


def test_scaling_of_collections():
    scaler = GradScaler("cpu", init_scale=2.0)
    found = scaler.scale([fl.ones(1), (fl.ones(1),)])
    assert found[0].item() == 2
    assert isinstance(found[1], tuple)
    with pytest.raises(ValueError, match="Tensor"):
        scaler.scale(3)


def test_wrong_order():
    p = fl.ones(2, requires_grad=True)
    opt = fl.optim.SGD([p], lr=1.0)
    scaler = GradScaler("cpu")
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.step(opt)
    scaler.scale(p.sum())
    with pytest.raises(AssertionError, match="before update"):
        scaler.update()
    with pytest.raises(AssertionError, match="gradients in the optimizer"):
        scaler.step(opt)
    with pytest.raises(RuntimeError, match="without a closure"):
        scaler.step(opt, closure=lambda: None)


def test_half_precision_parameters_are_refused():
    p = fl.ones(2, dtype=fl.float16, requires_grad=True)
    opt = fl.optim.SGD([p], lr=1.0)
    scaler = GradScaler("cpu", init_scale=2.0)
    scaler.scale(p.sum()).backward()
    with pytest.raises(ValueError, match="float16"):
        scaler.unscale_(opt)


def test_disabled():
    p = fl.ones(2, requires_grad=True)
    opt = fl.optim.SGD([p], lr=1.0)
    scaler = GradScaler("cpu", enabled=False)
    one_step(scaler, opt, p, 1.0)
    assert p.tolist() == [0.0, 0.0]
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}
    assert not scaler.is_enabled()


def test_checkpoints():
    p = fl.ones(2, requires_grad=True)
    opt = fl.optim.SGD([p], lr=1.0)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=5)
    one_step(scaler, opt, p, 1.0)
    other = GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == scaler.state_dict()
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})
    scaler.update(new_scale=3.0)
    assert scaler.get_scale() == 3.0
    scaler.update(fl.tensor([5.0]))
    assert scaler.get_scale() == 5.0


def test_cuda_is_off_without_cuda():
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not GradScaler().is_enabled()
