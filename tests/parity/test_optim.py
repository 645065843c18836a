"""Optimizers beside PyTorch's: the same path for fifty steps, and checkpoints that go both ways."""

import copy
import importlib
import re

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

STEPS = 50
SHAPES = ((4, 3), (5,), (), (2, 3, 4))

OPTIONS = {
    "SGD": [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}, {"lr": 0.1, "weight_decay": 0.2, "maximize": True},
            {"lr": 0.1, "momentum": 0.9, "fused": True}],
    "Adam": [{}, {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-4}, {"amsgrad": True}, {"weight_decay": 0.1, "maximize": True},
             {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"fused": True, "lr": 0.05}, {"foreach": False}],
    "AdamW": [{}, {"amsgrad": True, "lr": 0.1}, {"weight_decay": 0.3, "maximize": True}, {"fused": True}],
    "RMSprop": [{}, {"centered": True}, {"momentum": 0.9}, {"momentum": 0.9, "centered": True, "weight_decay": 0.1},
                {"maximize": True, "alpha": 0.9}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"initial_accumulator_value": 0.3, "maximize": True},
                {"fused": True, "lr_decay": 0.05}],
    "Adadelta": [{}, {"rho": 0.8, "weight_decay": 0.1}, {"maximize": True, "lr": 0.5}],
    "Adamax": [{}, {"weight_decay": 0.1, "betas": (0.8, 0.9)}, {"maximize": True}],
    "NAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"momentum_decay": 0.01, "maximize": True}],
    "RAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"betas": (0.8, 0.9), "maximize": True}],
    "ASGD": [{}, {"t0": 10, "weight_decay": 0.1}, {"lr": 0.1, "lambd": 0.01, "maximize": True}],
    "Rprop": [{}, {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.1)}, {"maximize": True}],
    "Adafactor": [{}, {"weight_decay": 0.1, "d": 2.0}, {"maximize": True, "eps": (1e-6, 1e-2)}],
}  # fmt: skip
CASES = [(name, options) for name, sets in OPTIONS.items() for options in sets]
IDS = [f"{name}-{','.join(f'{k}={v}' for k, v in options.items())}" for name, options in CASES]


def data(shapes=SHAPES, steps=STEPS, kind="float32"):
    rng = np.random.default_rng(0)

    def draw(shape):
        x = rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape) if kind.startswith("complex") else x).astype(kind)

    return [draw(s) for s in shapes], [[draw(s) for s in shapes] for _ in range(steps)]


def walk(library, name, options, start, gradients, optimizer=None):
    """Make the steps; returns the optimizer and its parameters."""
    if optimizer is None:
        params = [library.tensor(x).requires_grad_() for x in start]
        if options.get("differentiable"):
            params = [p.clone() for p in params]
        optimizer = getattr(library.optim, name)(params, **options)
    params = optimizer.param_groups[0]["params"]
    for step in gradients:
        for p, g in zip(params, step):
            p.grad = library.tensor(g)
        optimizer.step()
    return optimizer, params


def assert_close(ours, theirs, tolerance=1e-5):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_paths_agree(name, options):
    start, gradients = data()
    ours, a = walk(flambeau, name, options, start, gradients)
    theirs, b = walk(torch, name, options, start, gradients)
    assert_close(a, b)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert mine["param_groups"] == other["param_groups"]
    for i, state in other["state"].items():
        assert list(mine["state"][i]) == list(state)
        for key, value in state.items():
            assert str(mine["state"][i][key].dtype).endswith(str(value.dtype).removeprefix("torch"))
            assert_close([mine["state"][i][key]], [value], 1e-4)


@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in ("Adafactor",)])
@pytest.mark.parametrize("kind", ["float64", "complex64"])
def test_other_dtypes_agree(name, kind):
    start, gradients = data(kind=kind)
    options = {"lr": 0.05, "momentum": 0.9} if name == "SGD" else {}
    assert_close(*(walk(library, name, options, start, gradients)[1] for library in (flambeau, torch)))


@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in ("Adafactor",)])
def test_differentiable_steps_agree(name):
    start, gradients = data(steps=10)
    options = {"differentiable": True, **({"lr": 0.05, "momentum": 0.9} if name == "SGD" else {})}
    assert_close(*(walk(library, name, options, start, gradients)[1] for library in (flambeau, torch)))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_gradients_through_steps_agree(name):
    found = []
    for library in (flambeau, torch):
        start = library.tensor([[0.5, -1.0], [2.0, 0.3]], requires_grad=True)
        p = start.clone()
        opt = getattr(library.optim, name)([p], lr=0.1, differentiable=True)
        for _ in range(3):
            p.grad = start * 0.7 + start**2
            opt.step()
        (g,) = library.autograd.grad(p.pow(2).sum(), [start])
        found.append(g)
    assert_close([found[0]], [found[1]], 1e-4)


@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop"])
def test_rates_as_tensors_agree(name):
    start, gradients = data(steps=10)
    assert_close(*(walk(t, name, {"lr": t.tensor(0.03)}, start, gradients)[1] for t in (flambeau, torch)))


def to(library, value):
    """A state dict with the tensors of the other library."""
    if hasattr(value, "detach"):
        return library.tensor(value.detach().numpy())
    if isinstance(value, dict):
        return {k: to(library, v) for k, v in value.items()}
    return [to(library, v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
@pytest.mark.parametrize("saver", ["flambeau", "torch"])
def test_checkpoints_go_both_ways(name, options, saver):
    first, second = (flambeau, torch) if saver == "flambeau" else (torch, flambeau)
    start, gradients = data(steps=10)
    opt, params = walk(first, name, options, start, gradients[:5])
    loaded, _ = walk(second, name, {}, [p.detach().numpy().copy() for p in params], [])
    loaded.load_state_dict(to(second, copy.deepcopy(opt.state_dict())))
    walk(first, name, options, None, gradients[5:], opt)
    walk(second, name, options, None, gradients[5:], loaded)
    assert_close(loaded.param_groups[0]["params"], params)


@pytest.mark.parametrize("options", [
    {}, {"lr": 0.1, "max_iter": 5}, {"line_search_fn": "strong_wolfe"}, {"history_size": 3, "lr": 0.2},
    {"line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 6},
], ids=str)  # fmt: skip
def test_lbfgs(options):
    def run(library):
        a = library.tensor([-1.2, 0.7, 1.4], dtype=library.float64, requires_grad=True)
        b = library.tensor([[0.3, -0.4]], dtype=library.float64, requires_grad=True)
        opt = library.optim.LBFGS([a, b], **options)

        def closure():
            opt.zero_grad()
            loss = (100 * (a[1:] - a[:-1] ** 2) ** 2 + (1 - a[:-1]) ** 2).sum() + (b - 2).pow(4).sum()
            loss.backward()
            return loss

        path = [opt.step(closure).item() for _ in range(3)]
        state = opt.state_dict()["state"][0]
        return path, a, b, state["n_iter"], state["func_evals"], len(state["old_dirs"])

    ours, theirs = run(flambeau), run(torch)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    assert_close(ours[1:3], theirs[1:3], 1e-4)
    assert ours[3:] == theirs[3:]


def regression(library, kind):
    """Least squares for a linear map: parameters and objective."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((64, 10))
    y = x @ rng.standard_normal((10, 1)) + 0.1 * rng.standard_normal((64, 1))
    x, y = (library.tensor(v.astype(kind)) for v in (x, y))
    weight, bias = (library.tensor(np.zeros(s, kind)).requires_grad_() for s in ((10, 1), (1,)))
    return [weight, bias], lambda: ((x @ weight + bias - y) ** 2).mean()


def classification(library, kind):
    """Logistic regression with a penalty."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((64, 10))
    y = library.tensor((x @ rng.standard_normal(10) > 0).astype("int64"))
    x = library.tensor(x.astype(kind))
    params = [library.tensor(np.zeros(s, kind)).requires_grad_() for s in ((10, 2), (2,))]
    loss = library.nn.functional.cross_entropy
    return params, lambda: loss(x @ params[0] + params[1], y) + 0.01 * sum((p * p).sum() for p in params)


# Without a single minimum L-BFGS multiplies rounding: PyTorch's own paths on AVX2 and AVX-512 part there.
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("problem", [regression, classification])
@pytest.mark.parametrize("options", [
    {}, {"lr": 0.1, "max_iter": 5}, {"lr": 0.5, "max_iter": 1}, {"lr": 0.1, "max_iter": 1, "history_size": 4},
    {"line_search_fn": "strong_wolfe"}, {"line_search_fn": "strong_wolfe", "max_iter": 1},
    {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 5}, {"history_size": 3, "lr": 0.2},
], ids=str)  # fmt: skip
def test_lbfgs_paths_agree(options, problem, kind):
    found = []
    for library in (flambeau, torch):
        params, objective = problem(library, kind)
        opt = library.optim.LBFGS(params, **options)

        def closure():
            opt.zero_grad()  # noqa: B023
            loss = objective()  # noqa: B023
            loss.backward()
            return loss

        found.append(([opt.step(closure).item() for _ in range(STEPS)], params))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5, abs=1e-5)
    # At a minimum a line search sees rounding of the loss only, which leaves the root of it open in the parameters.
    assert_close(found[0][1], found[1][1], 1e-4 if "line_search_fn" in options and kind == "float32" else 1e-5)


@pytest.mark.parametrize("options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, {"lr": 0.02}], ids=str)
def test_muon(options):
    start, gradients = data(shapes=((6, 4), (3, 8), (16, 12)))
    assert_close(*(walk(library, "Muon", options, start, gradients)[1] for library in (flambeau, torch)))


@pytest.mark.parametrize("shape", [(300, 200), (200, 300), (64, 64), (33, 70), (500, 100), (20, 420)], ids=str)
def test_muon_follows_on_large_matrices(shape):
    """Products of bfloat16 add up in oneDNN's order, so that even five iterations in it agree to the last bit."""
    start, gradients = data(shapes=(shape,))
    found = [walk(library, "Muon", {"lr": 0.02}, start, gradients)[1] for library in (flambeau, torch)]
    # Processors with instructions for bfloat16 round otherwise, and without AVX-512 PyTorch has another algorithm.
    same = torch.cpu._is_avx512_supported() and not torch.cpu._is_avx512_bf16_supported()
    assert_close(*found, tolerance=1e-5 if same else 2e-3)


@pytest.mark.parametrize("depth", [64, 65, 384, 385, 771, 1536, 1999])
@pytest.mark.parametrize("turned", [False, True])
def test_sums_of_bfloat16_products_agree(depth, turned):
    if not torch.cpu._is_avx512_supported() or torch.cpu._is_avx512_bf16_supported():
        pytest.skip("PyTorch adds up in another order on this processor")
    rng = np.random.default_rng(depth)
    half = depth // 2
    a, b, c = (rng.standard_normal(s).astype("float32") for s in ((48, depth), (depth, 48), (48, 48)))
    order = rng.permutation(half)  # what is left of terms that cancel is their rounding
    a[:, half : 2 * half], b[half : 2 * half] = -a[:, order], b[order]
    a[:, 2 * half :] = 0
    found = []
    for library in (flambeau, torch):
        x, y, z = (library.tensor(v).bfloat16() for v in (a, b, c))
        y = y.T.contiguous().T if turned else y
        sums = [x @ y, library.addmm(z, x, y, beta=-4.775), library.addmm(z, x, y, beta=3.4445, alpha=2.0315)]
        found.append([s.float() for s in sums])
    assert_close(*found, tolerance=0)


BAD = [
    lambda o, p: o.SGD([p], lr=-1.0), lambda o, p: o.SGD([p], momentum=-1), lambda o, p: o.SGD([p], nesterov=True),
    lambda o, p: o.SGD([p], fused=True, foreach=True), lambda o, p: o.Adam([p], eps=-1), lambda o, p: o.Adam([p], betas=(0, 1)),
    lambda o, p: o.Adam([p], fused=True, differentiable=True), lambda o, p: o.RMSprop([p], alpha=-1),
    lambda o, p: o.Adagrad([p], lr_decay=-1), lambda o, p: o.Adadelta([p], rho=2), lambda o, p: o.NAdam([p], momentum_decay=-1),
    lambda o, p: o.RAdam([p], weight_decay=-1), lambda o, p: o.Adamax([p], lr=-1), lambda o, p: o.ASGD([p], weight_decay=-1),
    lambda o, p: o.Rprop([p], etas=(1, 0.5)), lambda o, p: o.SparseAdam([p], lr=0), lambda o, p: o.Adafactor([p], d=0.5),
    lambda o, p: o.Muon([p]), lambda o, p: o.Muon([p.reshape(1, -1).detach()], adjust_lr_fn="x"),
    lambda o, p: o.LBFGS([{"params": [p]}, {"params": [p.detach()]}]), lambda o, p: o.Adam(p), lambda o, p: o.Adam([]),
    lambda o, p: o.Adam([p, p.detach(), "x"]), lambda o, p: o.SparseAdam([p]).step(),
]  # fmt: skip


@pytest.mark.parametrize("make", BAD)
def test_bad_arguments(make):
    seen = []
    for library in (torch, flambeau):
        p = library.zeros(3, requires_grad=True)
        p.grad = library.ones(3)
        with pytest.raises(Exception) as error:
            make(library.optim, p)
        seen.append(error.value)
    assert type(seen[0]) is type(seen[1])
    assert re.match(r"\[\w+\] expected .+, got ", str(seen[1])), seen[1]


@pytest.mark.parametrize("name", [*OPTIONS, "LBFGS", "SparseAdam", "Muon"])
def test_reprs_and_defaults_agree(name):
    found = [getattr(library.optim, name)([library.zeros(2, 2, requires_grad=True)]) for library in (flambeau, torch)]
    assert repr(found[0]) == repr(found[1])
    assert found[0].defaults == found[1].defaults
    assert list(found[0].defaults) == list(found[1].defaults)


@pytest.mark.parametrize("saver", ["flambeau", "torch"])
def test_checkpoint_files_go_both_ways(saver, tmp_path):
    first, second = (flambeau, torch) if saver == "flambeau" else (torch, flambeau)
    start, gradients = data(steps=10)
    opt, params = walk(first, "AdamW", {"amsgrad": True}, start, gradients[:5])
    first.save({"optimizer": opt.state_dict(), "parameters": params}, tmp_path / "checkpoint.pt")
    loaded = second.load(tmp_path / "checkpoint.pt")
    other, _ = walk(second, "AdamW", {}, [p.detach().numpy().copy() for p in loaded["parameters"]], [])
    other.load_state_dict(loaded["optimizer"])
    walk(first, "AdamW", {}, None, gradients[5:], opt)
    walk(second, "AdamW", {}, None, gradients[5:], other)
    assert_close(other.param_groups[0]["params"], params)


def test_several_groups_with_options_of_their_own():
    start, gradients = data(steps=20)
    found = []
    for library in (flambeau, torch):
        params = [library.tensor(x).requires_grad_() for x in start]
        opt = library.optim.AdamW([{"params": params[:2], "lr": 0.1, "weight_decay": 0.0}], lr=0.01)
        opt.add_param_group({"params": params[2:3], "betas": (0.5, 0.9), "amsgrad": True})
        opt.add_param_group({"params": params[3], "eps": 1e-3, "maximize": True})
        for k, step in enumerate(gradients):
            for i, (p, g) in enumerate(zip(params, step)):
                p.grad = None if (k + i) % 3 == 0 else library.tensor(g)
            opt.step()
        found.append(params)
    assert_close(*found)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Rprop"])
def test_reduced_precision_stays_near(name):
    start, gradients = data(steps=10)
    found = []
    for library in (flambeau, torch):
        params = [library.tensor(x).bfloat16().requires_grad_() for x in start]
        opt = getattr(library.optim, name)(params, lr=0.01)
        for step in gradients:
            for p, g in zip(params, step):
                p.grad = library.tensor(g).bfloat16()
            opt.step()
        found.append([p.detach().float() for p in params])
    assert_close(*found, tolerance=3e-2)


def test_hooks_are_called_alike():
    calls = []
    for library in (flambeau, torch):
        seen = []
        p = library.ones(2, requires_grad=True)
        p.grad = library.ones(2)
        opt = library.optim.SGD([p], lr=0.1)
        opt.register_step_pre_hook(lambda o, a, k, seen=seen: seen.append(("pre", len(a), list(k))))
        opt.register_step_post_hook(lambda o, a, k, seen=seen: seen.append(("post", len(a), list(k))))
        opt.register_state_dict_pre_hook(lambda o, seen=seen: seen.append("state"))
        opt.register_load_state_dict_post_hook(lambda o, seen=seen: seen.append("loaded"))
        opt.register_state_dict_post_hook(lambda o, s, seen=seen: seen.append(sorted(s)), prepend=True)
        base = importlib.import_module(f"{library.__name__}.optim.optimizer")
        handle = base.register_optimizer_step_pre_hook(lambda o, a, k, seen=seen: seen.append("global"))
        opt.step()
        opt.step(closure=lambda: None)
        handle.remove()
        opt.load_state_dict(opt.state_dict())
        calls.append(seen)
    assert calls[0] == calls[1]
