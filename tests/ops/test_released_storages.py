"""A storage that shrinks, is released or replaced under a tensor: kernels refuse, and never touch freed memory."""

import os
import random

import pytest

import flambeau as fl

released = pytest.raises(RuntimeError, match="expected a tensor whose storage holds its")


def shrunk(n=0, dtype=fl.float):
    t = fl.ones(64, dtype=dtype)
    view = t[32:]
    t.untyped_storage().resize_(n)
    return t, view


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1,
        lambda t: t.sum(),
        lambda t: t.add_(1),
        lambda t: t.zero_(),
        lambda t: fl.add(fl.ones(64), 1, out=t),
        lambda t: fl.cat([fl.ones(2), t]),
        lambda t: t.clone(),
        lambda t: t.tolist(),
        lambda t: t[40].item(),
        lambda t: float(t[40]),
        lambda t: t.numpy(),
        lambda t: fl.utils.dlpack.to_dlpack(t),
        lambda t: t.copy_(fl.ones(64)),
        lambda t: fl.ones(64).copy_(t),
        lambda t: t[fl.tensor([1, 2])],
        lambda t: t.sort(),
        lambda t: t.view(8, 8) @ fl.ones(8, 8),
        lambda t: fl._foreach_add_([fl.ones(2), t], 1),
        lambda t: repr(t),
        lambda t: fl.nn.functional.linear(fl.ones(2, 8), t.view(8, 8)),
        lambda t: fl.compile(lambda x: x * 2)(t),
    ],
)
@pytest.mark.parametrize("n", [0, 100])
def test_kernels_refuse_a_released_storage(use, n):
    t, view = shrunk(n)
    with released:
        use(t)
    assert (view.shape, t.shape) == ((32,), (64,))  # the geometry is still there


def test_what_reads_no_elements_still_works():
    t, view = shrunk()
    assert t.view(8, 8).t().shape == (8, 8)
    assert fl.zeros_like(t).sum() == 0 and t.new_ones(2).sum() == 2
    assert t.detach().untyped_storage().nbytes() == 0
    t.untyped_storage().resize_(256)
    assert (t.fill_(2) + view.sum()).shape == (64,)
    t, _ = shrunk()
    t.resize_(4)
    assert t.fill_(1).sum() == 4
    t, _ = shrunk()
    t.set_(fl.ones(3))
    assert t.sum() == 3
    t, _ = shrunk()
    t.data = fl.ones(5)
    assert t.sum() == 5


def test_a_view_in_what_is_left_stays_usable():
    t = fl.arange(64.0)
    start, end = t[:8], t[8:]
    t.untyped_storage().resize_(32)
    assert start.sum() == 28
    with released:
        end.sum()


def test_backward_refuses_saved_tensors_that_were_released():
    w = fl.ones(8, 8, requires_grad=True)
    x = fl.ones(8, 8)
    y = (x @ w).sum()
    x.untyped_storage().resize_(0)
    with released:
        y.backward()
    x.untyped_storage().resize_(256)
    x.fill_(1)


def test_compiled_code_refuses_released_parameters():
    layer = fl.nn.Linear(4, 4)
    compiled = fl.compile(layer)
    x = fl.ones(2, 4)
    before = compiled(x)
    data = layer.weight.detach().clone()
    layer.weight.untyped_storage().resize_(0)
    with released:
        compiled(x)
    layer.weight.untyped_storage().resize_(64)
    layer.weight.data.copy_(data)
    assert compiled(x).equal(before)


def test_the_count_of_unusual_storages_returns_to_nothing():
    before = fl._C._unusual_storages()
    t, view = shrunk()
    assert fl._C._unusual_storages() == before + 1
    del t, view
    other, _ = shrunk(16)
    other.untyped_storage().resize_(256)
    assert fl._C._unusual_storages() == before


def test_arrays_keep_the_memory_that_a_tensor_gave_up():
    t = fl.arange(1000.0)
    array = t.numpy()
    capsule = fl.utils.dlpack.to_dlpack(t)
    t.data = fl.zeros(3)
    t.set_(fl.zeros(3))
    trash = [fl.full((1000,), 7.0) for _ in range(20)]
    assert array.sum() == 499500
    t.resize_(2, 2)
    assert fl.utils.dlpack.from_dlpack(capsule).sum() == 499500
    del trash


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs anonymous files")
def test_shared_memory_cannot_be_truncated():
    t = fl.arange(4096.0).share_memory_()
    descriptor = fl._C._storage_descriptor(t)
    with pytest.raises(OSError):
        os.ftruncate(descriptor, 8)
    assert t.sum() == 4096 * 4095 / 2


def test_random_programs_never_touch_freed_memory():
    """Random sequences of operators and changes of storages; run under AddressSanitizer by `make sanitize`."""
    for seed in range(40):
        rng = random.Random(seed)
        tensors = [fl.arange(24.0).reshape(4, 6) for _ in range(3)]
        for _ in range(60):
            t = rng.choice(tensors)
            step = rng.randrange(12)
            try:
                if step == 0:
                    t.untyped_storage().resize_(rng.choice([0, 4, 40, 96, 200]))
                elif step == 1:
                    t.set_(rng.choice(tensors))
                elif step == 2:
                    t.resize_(rng.choice([(2, 2), (4, 6), (8, 8), (0,)]))
                elif step == 3:
                    t.data = rng.choice(tensors)
                elif step == 4:
                    tensors[rng.randrange(3)] = t.t()
                elif step == 5:
                    tensors[rng.randrange(3)] = t[rng.randrange(2) :]
                elif step == 6:
                    tensors[rng.randrange(3)] = t + rng.choice(tensors)
                elif step == 7:
                    t.mul_(2)
                elif step == 8:
                    t.set_(t.untyped_storage(), rng.randrange(4), (rng.randrange(5),), (1,))
                elif step == 9:
                    fl.sum(t, 0, out=rng.choice(tensors))
                elif step == 10:
                    t.sort(descending=True)
                else:
                    t.tolist()
            except (RuntimeError, IndexError):
                pass
