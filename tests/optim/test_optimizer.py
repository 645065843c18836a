"""The base class: groups, checkpoints, hooks, copies; and the arithmetic of steps in small."""

import copy
import pickle

import numpy as np
import pytest

import flambeau as fl
from flambeau.optim import SGD, Adam, AdamW, Optimizer


def parameters(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    found = [fl.tensor(rng.standard_normal(s).astype("float32")).requires_grad_() for s in shapes]
    for p in found:
        p.grad = fl.tensor(rng.standard_normal(tuple(p.shape)).astype("float32"))
    return found


def test_sgd_with_momentum_by_hand():
    (p,) = parameters((3,))
    start, g = p.detach().numpy().copy(), p.grad.numpy()
    opt = SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01)
    x, b = start, None
    for _ in range(5):
        opt.step()
        d = g + 0.01 * x
        b = d if b is None else 0.9 * b + d
        x = x - 0.1 * b
    np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-5)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_by_hand(decoupled):
    (p,) = parameters((4, 2))
    x, g = p.detach().numpy().astype("float64"), p.grad.numpy().astype("float64")
    opt = (AdamW if decoupled else Adam)([p], lr=0.05, weight_decay=0.1)
    m = v = 0
    for t in range(1, 8):
        opt.step()
        d = g if decoupled else g + 0.1 * x
        x = x * (1 - 0.05 * 0.1) if decoupled else x
        m, v = 0.9 * m + 0.1 * d, 0.999 * v + 0.001 * d * d
        x = x - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-5)
    assert opt.state[p]["step"].item() == 7
    assert opt.state[p]["step"].dtype == fl.float32


@pytest.mark.parametrize("dtype", [fl.float64, fl.bfloat16, fl.float16])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_other_dtypes_follow_float32(name, dtype):
    ours, reference = parameters((5, 7), (3,)), parameters((5, 7), (3,))
    low = [p.detach().to(dtype).requires_grad_() for p in ours]
    for a, b in zip(low, reference):
        b.grad = b.grad.sign() * 0.5 + b.grad  # small squares are lost in half precision
        a.grad = b.grad.to(dtype)
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    first, second = (getattr(fl.optim, name)(p, **options) for p in (low, reference))
    for _ in range(3):
        first.step()
        second.step()
    key = "momentum_buffer" if name == "SGD" else "exp_avg"
    tolerance = 1e-5 if dtype == fl.float64 else 5e-2
    for a, b in zip(low, reference):
        assert first.state[a][key].dtype == dtype
        np.testing.assert_allclose(a.detach().float().numpy(), b.detach().numpy(), atol=tolerance)


def test_any_strides():
    rng = np.random.default_rng(0)
    values, gradient = (rng.standard_normal((6, 5)).astype("float32") for _ in range(2))
    plain = fl.tensor(values).requires_grad_()
    transposed = fl.tensor(values.T.copy()).t().requires_grad_()
    sliced = fl.zeros(6, 10)[:, ::2].copy_(fl.tensor(values)).detach().requires_grad_()
    optimizers = []
    for p in (plain, transposed, sliced):
        p.grad = fl.tensor(gradient)
        optimizers.append(Adam([p], lr=0.1, amsgrad=True))
        for _ in range(3):
            optimizers[-1].step()
    np.testing.assert_array_equal(plain.detach().numpy(), transposed.detach().numpy())
    np.testing.assert_array_equal(plain.detach().numpy(), sliced.detach().numpy())


def test_steps_count_as_writes():
    (p,) = parameters((3,))
    y = (p * p).sum()
    SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match="saved tensor at version"):
        y.backward()


def test_parameters_without_gradient_stay():
    p, q = parameters((2,), (2,))
    q.grad = None
    before = q.detach().clone()
    opt = Adam([p, q])
    opt.step()
    assert fl.equal(q.detach(), before)
    assert q not in opt.state
    assert len(opt.state_dict()["state"]) == 1


def test_late_gradients_get_their_own_step_count():
    p, q = parameters((2,), (2,))
    late, q.grad = q.grad, None
    opt = Adam([p, q])
    opt.step()
    q.grad = late
    opt.step()
    assert [opt.state[x]["step"].item() for x in (p, q)] == [2, 1]


def test_closure_runs_with_gradients():
    p = fl.tensor([1.0, 2.0], requires_grad=True)
    opt = SGD([p], lr=0.1)

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with fl.no_grad():
        assert opt.step(closure).item() == 5.0
    np.testing.assert_allclose(p.detach().numpy(), [0.8, 1.6], rtol=1e-6)


def test_zero_grad():
    p, q = parameters((2,), (3,))
    opt = SGD([p, q], lr=0.1)
    held = p.grad
    opt.zero_grad(set_to_none=False)
    assert p.grad is held
    assert not p.grad.any()
    opt.zero_grad()
    assert p.grad is None
    assert q.grad is None


def test_state_dict_layout():
    p, q = parameters((2,), (3,))
    opt = Adam([{"params": [p]}, {"params": [q], "lr": 0.5}])
    opt.step()
    saved = opt.state_dict()
    assert set(saved) == {"state", "param_groups"}
    assert [g["params"] for g in saved["param_groups"]] == [[0], [1]]
    assert saved["param_groups"][1]["lr"] == 0.5
    assert set(saved["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}


def test_loading_continues_where_saving_stopped():
    p, q = parameters((2,), (3,))
    opt = Adam([p, q], amsgrad=True)
    opt.step()
    saved = copy.deepcopy(opt.state_dict())
    twins = [x.detach().clone().requires_grad_() for x in (p, q)]
    for a, b in zip(twins, (p, q)):
        a.grad = b.grad.clone()
    other = Adam(twins, lr=1.0)
    other.load_state_dict(saved)
    for _ in range(3):
        opt.step()
        other.step()
    for a, b in zip(twins, (p, q)):
        assert fl.equal(a, b)


def test_loading_refuses_other_groups():
    p, q = parameters((2,), (3,))
    saved = SGD([p, q], lr=0.1).state_dict()
    with pytest.raises(ValueError, match=r"1 parameters in group 0.*, got 2"):
        SGD([p], lr=0.1).load_state_dict(saved)
    with pytest.raises(ValueError, match=r"expected 2 parameter groups.*, got 1"):
        SGD([{"params": [p]}, {"params": [q]}], lr=0.1).load_state_dict(saved)


def test_loading_converts_state_to_the_parameter():
    (p,) = parameters((3,))
    opt = Adam([p])
    opt.step()
    low = p.detach().bfloat16().requires_grad_()
    other = Adam([low])
    other.load_state_dict(opt.state_dict())
    assert other.state[low]["exp_avg"].dtype == fl.bfloat16
    assert other.state[low]["step"].dtype == fl.float32


def test_copies_and_pickles():
    p, q = parameters((2,), (3,))
    opt = SGD([p, q], lr=0.1, momentum=0.9)
    opt.step()
    for twin in (copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        assert isinstance(twin, SGD)
        assert twin.param_groups[0]["momentum"] == 0.9
        (a, _) = twin.param_groups[0]["params"]
        assert a is not p
        assert fl.equal(twin.state[a]["momentum_buffer"], opt.state[p]["momentum_buffer"])
        a.grad = fl.ones(2)
        twin.step()


def test_hooks():
    (p,) = parameters((2,))
    opt = SGD([p], lr=0.1)
    calls = []
    opt.register_step_pre_hook(lambda o, args, kwargs: calls.append("before"))
    handle = opt.register_step_post_hook(lambda o, args, kwargs: calls.append("after"))
    everywhere = fl.optim.optimizer.register_optimizer_step_post_hook(lambda o, args, kwargs: calls.append("global"))
    opt.step()
    handle.remove()
    everywhere.remove()
    opt.step()
    assert calls == ["before", "after", "global", "before"]
    opt.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1})
    assert opt.state_dict()["extra"] == 1
    opt.register_load_state_dict_pre_hook(lambda o, state: calls.append("load"))
    opt.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    opt.load_state_dict(opt.state_dict())
    assert calls[-2:] == ["load", "loaded"]


def test_named_parameters():
    p, q = parameters((2,), (3,))
    opt = SGD([("a", p), ("b", q)], lr=0.1)
    assert opt.param_groups[0]["param_names"] == ["a", "b"]
    assert opt.state_dict()["param_groups"][0]["param_names"] == ["a", "b"]
    with pytest.raises(ValueError, match="names"):
        SGD([("a", p), q], lr=0.1)
    with pytest.raises(ValueError, match="names"):
        opt.add_param_group({"params": parameters((1,))})


def test_repr():
    text = repr(SGD(parameters((1,)), lr=0.1))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n")
    assert text.endswith("    weight_decay: 0\n)")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: SGD(p, lr=0.1), TypeError),
        (lambda p: SGD([], lr=0.1), ValueError),
        (lambda p: SGD([p], lr=-1), ValueError),
        (lambda p: SGD([p], lr=0.1, nesterov=True), ValueError),
        (lambda p: SGD([p * 2], lr=0.1), ValueError),
        (lambda p: SGD([1], lr=0.1), TypeError),
        (lambda p: SGD({"params": {p}}, lr=0.1), TypeError),
        (lambda p: SGD([{"params": {p}}], lr=0.1), TypeError),
        (lambda p: SGD([{"params": [p]}, {"params": [p]}], lr=0.1), ValueError),
        (lambda p: Adam([p], betas=(1.0, 0.9)), ValueError),
        (lambda p: Adam([p], lr=fl.tensor([0.1, 0.2])), ValueError),
        (lambda p: Adam([p], fused=True, foreach=True), RuntimeError),
        (lambda p: Optimizer([p], {"lr": fl.optim.optimizer.required}), ValueError),
    ],
)
def test_bad_arguments(make, error):
    with pytest.raises(error):
        make(parameters((2,))[0])


def test_differentiable_step():
    p0 = fl.tensor([1.0, -2.0], requires_grad=True)
    scale = fl.tensor(0.3, requires_grad=True)
    p = p0.clone()
    opt = Adam([p], lr=0.1, differentiable=True)
    p.grad = scale * p0 * p0
    opt.step()
    p.grad = 0.3 * p
    opt.step()
    (g,) = fl.autograd.grad(p.sum(), [p0])
    assert g.isfinite().all()
    assert (g != 0).any()


def test_other_parameters_for_a_block():
    (p,) = parameters((2,))
    opt = SGD([p], lr=0.1, momentum=0.9)
    opt.step()
    before, saved = p.detach().clone(), copy.deepcopy(opt.state_dict())
    q = fl.ones(2, requires_grad=True)
    q.grad = fl.ones(2)
    with fl.optim.swap_in_optimizer_params_and_state(opt, {"w": q}, saved):
        opt.step()
    assert not fl.equal(q.detach(), fl.ones(2))
    assert fl.equal(p.detach(), before)
    assert opt.param_groups[0]["params"] == [p]


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "RMSprop", "Rprop", "ASGD"])
def test_devices_without_the_kernel(name):
    import flambeau.backends.reference  # noqa: F401

    found = []
    for device in ("cpu", "ref"):
        p, q = fl.tensor([1.0, -2.0]).to(device).requires_grad_(), fl.ones(1, requires_grad=True)
        opt = getattr(fl.optim, name)([p, q], lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))
        for _ in range(2):
            p.grad, q.grad = fl.tensor([0.5, 0.25]).to(device), fl.ones(1)
            opt.step()
        found.append(p.detach().cpu())
    assert fl.allclose(*found)
