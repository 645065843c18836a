"""Update records: the kernel over lists of tensors against the same expressions evaluated op by op."""

import numpy as np
import pytest

import flambeau as fl
from flambeau import _ops
from flambeau.ops.lists import update_evaluation, updates
from flambeau.ops.record import RECORDS

NAMES = [name for name, record in RECORDS.items() if record.where == updates.__name__]
NUMBERS = {
    "lr": 0.05, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.8, "dampening": 0.1,
    "increment": 1.0, "momentum_decay": 0.004, "lr_decay": 0.1, "rho": 0.9, "alpha": 0.8, "lambd": 0.01, "t0": 2.0,
    "etaminus": 0.5, "etaplus": 1.2, "smallest": 1e-3, "largest": 1.0,
}  # fmt: skip


def lists_for(name, shapes, dtype, seed=0):
    """Lists of tensors for a record; second moments are positive and above the squared means."""
    rng = np.random.default_rng(seed)
    record = RECORDS[name]
    found = []
    for arg in record.schema.args:
        if not arg.type.endswith("[]"):
            continue
        if arg.name in record.details["scalars"]:
            value = 3.0 if arg.name == "step" else 0.5
            found.append([fl.tensor(value) for _ in shapes])
            continue
        positive = arg.name in (
            "exp_avg_sq",
            "max_exp_avg_sq",
            "square_avg",
            "acc_delta",
            "sum",
            "exp_inf",
            "step_size",
        )
        draws = [rng.standard_normal(s) for s in shapes]
        found.append([fl.tensor(np.abs(x) + 4.0 if positive else x).to(dtype) for x in draws])
    return found


def numbers_for(name, **flags):
    args = [a for a in RECORDS[name].schema.args if not a.type.endswith("[]")]
    return {a.name: flags.get(a.name, False) if a.type == "bool" else NUMBERS[a.name] for a in args}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "flags", [{}, {"maximize": True, "decoupled": True, "nesterov": True}, {"first": True}], ids=str
)
def test_kernels_compute_the_expressions(name, flags):
    shapes = ((7, 3), (1,), (), (0,), (1500,))
    ours, reference = (lists_for(name, shapes, fl.float64) for _ in range(2))
    for _ in range(2):
        getattr(_ops, name)(*ours, **numbers_for(name, **flags))
        update_evaluation.run(name, *reference, **numbers_for(name, **flags))
    for a, b in zip(ours, reference):
        for x, y in zip(a, b):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["_update_adam_", "_update_sgd_momentum_", "_update_rprop_"])
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float16])
def test_narrow_dtypes(name, dtype):
    shapes = ((700, 3), (5,))
    ours = lists_for(name, shapes, dtype)
    wide = [[t.double() if t.dim() else t.clone() for t in each] for each in ours]
    getattr(_ops, name)(*ours, **numbers_for(name))
    getattr(_ops, name)(*wide, **numbers_for(name))
    tolerance = {fl.float32: 1e-5, fl.bfloat16: 1e-2, fl.float16: 2e-3}[dtype]
    for a, b in zip(ours, wide):
        for x, y in zip(a, b):
            np.testing.assert_allclose(x.float().numpy(), y.float().numpy(), rtol=tolerance, atol=tolerance)


def test_strides_may_differ_between_the_lists():
    p = fl.arange(12.0).reshape(3, 4)
    grad = fl.arange(12.0).reshape(4, 3).t().contiguous().t().t()
    expected = p - 0.5 * grad
    for layout in (p.clone(), p.t().contiguous().t(), fl.zeros(3, 8)[:, ::2].copy_(p)):
        _ops._update_sgd_([layout], [grad], lr=0.5, weight_decay=0.0, maximize=False)
        assert fl.equal(layout, expected)


def test_many_threads_agree_with_one():
    threads = fl.get_num_threads()
    results = []
    try:
        for n in (1, 2, 5):
            fl.set_num_threads(n)
            lists = lists_for("_update_adam_", [(100000,), (3,), (40000,), (1,)] * 3, fl.float32)
            _ops._update_adam_(*lists, **numbers_for("_update_adam_"))
            results.append(lists[0])
    finally:
        fl.set_num_threads(threads)
    for other in results[1:]:
        assert all(fl.equal(a, b) for a, b in zip(results[0], other))


def test_meta_tensors_are_left_alone():
    p = [fl.zeros(3, device="meta")]
    _ops._update_sgd_(p, p, lr=0.5, weight_decay=0.0, maximize=False)
    assert p[0].is_meta and p[0].shape == (3,)


@pytest.mark.parametrize(
    "lists",
    [
        ([fl.zeros(3)], []),
        ([fl.zeros(3)], [fl.zeros(4)]),
        ([fl.zeros(3, dtype=fl.int64)], [fl.zeros(3, dtype=fl.int64)]),
        ([fl.zeros(3)], [fl.zeros(3, dtype=fl.complex64)]),
    ],
)
def test_lists_that_do_not_fit(lists):
    with pytest.raises(RuntimeError, match="update_sgd_"):
        _ops._update_sgd_(*lists, lr=0.5, weight_decay=0.0, maximize=False)


def test_steps_as_functions():
    from flambeau.optim import adam, sgd

    (p, q), g = ([fl.ones(3, requires_grad=True) for _ in range(2)], fl.tensor([1.0, -2.0, 0.5]))
    q.grad = g.clone()
    opt = fl.optim.Adam([q], amsgrad=True)
    states = [[fl.zeros(3)] for _ in range(3)]
    steps = [fl.tensor(0.0)]
    for _ in range(3):
        opt.step()
        adam.adam(
            [p], [g], *states, steps, amsgrad=True, beta1=0.9, beta2=0.999, lr=1e-3, weight_decay=0.0, eps=1e-8,
            maximize=False,
        )  # fmt: skip
    assert fl.equal(p, q)
    assert steps[0] == 3
    buffers = [None]
    options = {"weight_decay": 0.0, "momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": False, "maximize": False}
    sgd.sgd([p], [g], buffers, **options)
    assert fl.equal(buffers[0], g)


def test_nothing_is_written_when_a_tensor_does_not_fit():
    params, grads = [fl.ones(2), fl.ones(3)], [fl.ones(2), fl.ones(4)]
    moments = [[fl.zeros(2), fl.zeros(3)] for _ in range(2)]
    steps = [fl.tensor(0.0), fl.tensor(0.0)]
    with pytest.raises(RuntimeError, match="one shape"):
        _ops._update_adam_(params, grads, *moments, steps, **numbers_for("_update_adam_"))
    assert [s.item() for s in steps] == [0, 0]
    assert fl.equal(params[0], fl.ones(2))


def test_steps_are_differentiable_in_numbers_that_are_tensors():
    for kind, number in (
        (fl.optim.SGD, "lr"),
        (fl.optim.SGD, "weight_decay"),
        (fl.optim.Adam, "weight_decay"),
        (fl.optim.AdamW, "weight_decay"),
        (fl.optim.AdamW, "lr"),
    ):

        def after_two_steps(value, start, kind=kind, number=number):
            p = start.clone()
            options = {"lr": 0.1, "weight_decay": 0.01} | {number: value}
            optimizer = kind([p], differentiable=True, **options)
            for _ in range(2):
                p.grad = (p * p).detach().requires_grad_()
                optimizer.step()
            return p

        value = fl.tensor(0.3, dtype=fl.float64, requires_grad=True)
        start = fl.rand(3, dtype=fl.float64, requires_grad=True)
        fl.autograd.grad(after_two_steps(value, start).sum(), (value, start))


def test_fused_steps_need_parameters_with_data():
    p = fl.ones(2, device="meta", requires_grad=True)
    optimizer = fl.optim.Adagrad([p], fused=True)  # made before the model has data
    p.grad = fl.ones(2, device="meta")
    with pytest.raises(RuntimeError, match="fused=True"):
        optimizer.step()
