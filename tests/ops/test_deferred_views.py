"""Views that are conjugated or negated when they are read: they share memory with their base, writes go both ways."""

import copy
import io

import pytest

import flambeau as fl


def numbers():
    return fl.tensor([[1 + 2j, 3 - 1j], [0.5j, -2 + 0j]])


def conjugates(x):
    return fl.conj_physical(x)


def same(a, b):
    fl.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_conjugate_is_a_view_and_twice_is_none():
    x = numbers()
    z = x.conj()
    assert z.is_conj() and fl.is_conj(z) and z.data_ptr() == x.data_ptr() and z._base is x
    assert not z.conj().is_conj() and not x.is_conj()
    assert z.tolist() == conjugates(x).tolist() and z[0, 1].item() == 3 + 1j
    assert x.real.conj() is not None and not fl.ones(2).conj().is_conj()


@pytest.mark.parametrize("view", [lambda z: z.t(), lambda z: z[0], lambda z: z.detach(), lambda z: z.reshape(-1), lambda z: z.expand(2, 2, 2)])  # fmt: skip
def test_views_of_it_are_conjugated_too(view):
    x = numbers()
    assert view(x.conj()).is_conj()
    same(view(x.conj()), conjugates(view(x)))


@pytest.mark.parametrize("copied", [lambda z: z.clone(), lambda z: z + 0, lambda z: z.resolve_conj(), lambda z: z.to(fl.complex128), lambda z: fl.empty_like(z)])  # fmt: skip
def test_what_is_computed_of_it_is_plain(copied):
    assert not copied(numbers().conj()).is_conj()


WRITES = [
    lambda z: z.mul_(2j), lambda z: z.fill_(1j), lambda z: z.zero_(), lambda z: z.copy_(fl.full((2, 2), 3j)),
    lambda z: z.__setitem__(0, 7j), lambda z: z.__setitem__(z.real > 0, 1j), lambda z: z.add_(z), lambda z: z.neg_(),
    lambda z: fl.add(z, 1j, out=z), lambda z: z.t()[0].sub_(1j), lambda z: z.index_add_(0, fl.tensor([0]), fl.ones(1, 2) * 1j),
    lambda z: fl._foreach_mul_([z], 2j), lambda z: z.imag.fill_(3.0), lambda z: z.real.neg_(), lambda z: z.imag.add_(z.real),
]  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("taken", [lambda x: x.conj(), lambda x: x.mH.mT, lambda x: x.H.t()])
def test_writes_reach_the_base(write, taken):
    x = numbers()
    z = taken(x)
    wanted = conjugates(x)
    write(wanted)
    write(z)
    same(z, wanted)
    same(x, conjugates(wanted))
    assert z.is_conj()


def test_writes_to_the_base_are_seen():
    x = numbers()
    z, part = x.conj(), x.conj().imag
    x.mul_(2j)
    same(z, conjugates(x))
    same(part, -x.imag)
    assert part.is_neg() and not x.conj().real.is_neg()
    x.add_(z)
    assert x.imag.count_nonzero() == 0


def test_negative_views():
    x = fl.tensor([1.0, 2.0])
    y = fl._neg_view(x)
    assert y.is_neg() and not fl._neg_view(y).is_neg() and not y.resolve_neg().is_neg()
    y += 1
    assert x.tolist() == [0.0, 1.0] and y.tolist() == [0.0, -1.0]
    z = fl._neg_view(numbers().conj())
    assert z.is_neg() and z.is_conj()
    same(z, -conjugates(numbers()))
    same(z.imag, numbers().imag)


WRITES_OF_HISTORY = [lambda z: z.mul_(2j), lambda z: z[0].mul_(3 + 1j), lambda z: z.imag.mul_(3.0), lambda z: z[0].zero_()]  # fmt: skip


@pytest.mark.parametrize("write", WRITES_OF_HISTORY)
def test_derivatives_follow_writes_through_it(write):
    weights = fl.tensor([[1j, 2 - 1j], [0.5 + 0.5j, 3.0]])

    def through_view(x):
        y = x * 1
        write(y.conj())
        return (y * weights).real.sum()

    def plainly(x):
        y = fl.conj_physical(x)
        write(y)
        return (fl.conj_physical(y) * weights).real.sum()

    def seen_by_view(x):
        y = x * 1
        z = y.conj()
        write(y)
        return (z * weights).real.sum()

    def seen_plainly(x):
        y = x * 1
        write(y)
        return (fl.conj_physical(y) * weights).real.sum()

    for one, other in ((through_view, plainly), (seen_by_view, seen_plainly)):
        a, b = numbers().requires_grad_(), numbers().requires_grad_()
        one(a).backward()
        other(b).backward()
        fl.testing.assert_close(a.grad, b.grad)
        assert not a.grad.is_conj()


def test_memory_is_handed_out_only_when_it_holds_the_elements():
    z = numbers().conj()
    for refused in (z.numpy, lambda: fl.view_as_real(z), lambda: z.view(fl.float32), lambda: fl._C._to_dlpack(z)):
        with pytest.raises(RuntimeError, match="when it is read"):
            refused()
    with pytest.raises(BufferError, match="when it is read"):
        z.__dlpack__()
    assert z.resolve_conj().numpy().tolist() == z.tolist()


def test_copies_and_files_keep_it():
    x = numbers()
    file = io.BytesIO()
    fl.save([x, x.conj()], file)
    file.seek(0)
    a, b = fl.load(file)
    same(b, conjugates(x))
    b.zero_()
    assert a.count_nonzero() == 0
    same(copy.deepcopy(x.conj()), conjugates(x))
    holder = numbers()
    holder.data = x.conj()
    same(holder, conjugates(x))


def test_compiled_functions_take_it():
    compiled = fl.compile(lambda a: a * 2 + a.conj())
    for x in (numbers(), numbers().conj(), numbers(), numbers().mH):
        fl.testing.assert_close(compiled(x), x * 2 + conjugates(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.conj(),
        lambda x: x.conj().imag,
        lambda x: (x.mH, x.mH @ x),
        lambda x: (x.conj().resolve_conj(), x.resolve_conj()),
        lambda x: (x.conj()[0], x.conj().view(-1).real),
    ],
)
def test_compiled_results_share_memory_as_those_of_eager_mode_do(function, backend):
    def seen(function, x):
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        x.mul_(2)
        addresses = [t.untyped_storage().data_ptr() for t in (x, *results)]
        return [addresses.index(a) for a in addresses], [t.resolve_conj().resolve_neg().tolist() for t in results]

    compiled = fl.compile(function, backend=backend)
    for _ in range(2):
        x = fl.tensor([[1 + 2j, 3 - 1j], [0.5j, 2 + 1j]])
        assert seen(compiled, x.clone()) == seen(function, x)


def test_compiled_conjugates_follow_writes_to_what_they_look_at():
    def writes(x):
        y = x.conj()
        x.mul_(2)
        y.imag.add_(1)
        return y * 1

    x = fl.tensor([1 + 2j, 3 - 1j])
    expected_input = x.clone()
    expected = writes(expected_input)
    given = x.clone()
    fl.testing.assert_close(fl.compile(writes)(given), expected)
    fl.testing.assert_close(given, expected_input)


def test_compiled_gradients_are_conjugated_as_those_of_eager_mode():
    x = fl.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    function = lambda x: (x * 2j).conj() * x.conj()  # noqa: E731
    gradients = [fl.autograd.grad(f(x).abs().sum(), x)[0] for f in (function, fl.compile(function))]
    fl.testing.assert_close(*gradients)
