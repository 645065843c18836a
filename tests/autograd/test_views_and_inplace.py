"""Views and writes in place: history follows the memory."""

import pytest

import flambeau as fl


def test_writing_to_a_view_gives_its_base_history():
    x = fl.tensor([1.0, 2.0, 3.0], requires_grad=True)
    out = fl.zeros(2, 3)
    out[0] = x * 2
    assert out.requires_grad and out.grad_fn.name() == "CopySlices"
    (out * fl.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_views_made_before_the_write_follow_the_base():
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    base = fl.zeros(4)
    early = base[1:3]
    base[:2].copy_(x)
    assert early.requires_grad
    (early * fl.tensor([10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [0.0, 10.0]


def test_inplace_chain_on_views():
    x = fl.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1
    y[:2].mul_(3)
    y.view(2, 2)[1].exp_()
    y.sum().backward()
    expected = [3.0, 3.0, *fl.tensor([3.0, 4.0]).exp().tolist()]
    assert x.grad.tolist() == pytest.approx(expected)


def test_write_to_a_transposed_view():
    x = fl.ones(2, 3, requires_grad=True)
    y = x * 2
    y.t()[1].mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [[2.0, 10.0, 2.0]] * 2


def test_write_through_the_real_part():
    x = fl.ones(3, requires_grad=True)
    z = fl.zeros(3, dtype=fl.complex64)
    fl.view_as_real(z)[:, 0].copy_(x * 2)
    z.real.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_overlapping_views_add_up():
    x = fl.arange(5.0).requires_grad_()
    x.unfold(0, 3, 1).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 3.0, 2.0, 1.0]
    x.grad = None
    x.as_strided((2, 2), (1, 1)).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 1.0, 0.0, 0.0]


def test_leaves_are_not_written_in_place():
    x = fl.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0] = 1
    with fl.no_grad():
        x.add_(1)
    assert x.tolist() == [2.0] * 3


def test_views_made_without_recording_are_not_written_in_place():
    x = fl.ones(3, requires_grad=True) * 1
    with fl.no_grad():
        view = x[:2]
    with pytest.raises(RuntimeError, match="no_grad mode"):
        view.mul_(fl.ones(2, requires_grad=True))


def test_inplace_saves_what_it_needs():
    x = fl.tensor([2.0], requires_grad=True)
    y = x * 1
    y.mul_(y)
    y.backward()
    assert x.grad.tolist() == [4.0]


def test_detach_and_data():
    x = fl.ones(2, requires_grad=True)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.data_ptr() == y.data_ptr()
    version = y._version
    y.data.add_(1)
    assert y._version == version
    d.add_(1)
    assert y._version == version + 1
    y.detach_()
    assert y.is_leaf and not y.requires_grad
    with pytest.raises(RuntimeError, match="detach views"):
        (x * 2)[0].detach_()


def test_bases_of_views():
    x = fl.zeros(4)
    assert x._base is None and x[1:]._base is x and x.view(2, 2)[0]._base is x
    assert x.detach()._base is None and not x.detach()._is_view()


def test_deepcopy_takes_leaves_only():
    import copy

    x = fl.ones(2, requires_grad=True)
    assert copy.deepcopy(x).requires_grad
    with pytest.raises(RuntimeError):
        copy.deepcopy(x * 2)


def test_geometry_changes_in_place():
    x = fl.arange(6.0).view(2, 3).requires_grad_()
    y = x * 2
    y.transpose_(0, 1)
    y.unsqueeze_(0)
    (y * fl.arange(6.0).view(1, 3, 2)).sum().backward()
    assert x.grad.tolist() == [[0.0, 4.0, 8.0], [2.0, 6.0, 10.0]]


CUTS = {
    "split": lambda y: y.split(1),
    "split_with_sizes": lambda y: y.split_with_sizes([1, 1]),
    "chunk": lambda y: y.chunk(2),
    "unbind": lambda y: y.unbind(),
    "iteration": list,
}


@pytest.mark.parametrize("name", CUTS)
def test_one_of_several_views_is_not_written_in_place(name):
    cut = CUTS[name]
    y = fl.ones(2, 2, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="multiple views"):
        cut(y)[0].mul_(2)
    with pytest.raises(RuntimeError, match="multiple views"):
        cut(y)[0].view(-1).mul_(2)
    with pytest.raises(RuntimeError, match="multiple views"):
        cut(fl.ones(2, 2))[0].mul_(fl.ones(1, requires_grad=True))
    first, _ = cut(y)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="multiple views"):
        first * 1
    cut(fl.ones(2, 2))[0].mul_(2)  # nothing is recorded


def test_pieces_cut_one_by_one_may_be_written():
    y = fl.ones(2, 2, requires_grad=True) * 1
    y.tensor_split(2)[0].mul_(2)
    y.hsplit(2)[1].mul_(3)
    assert y.tolist() == [[2, 6], [1, 3]]


def test_unsafe_pieces_are_written_without_the_base_noticing():
    x = fl.ones(2, 2, requires_grad=True)
    first, second = x.unsafe_split(1)
    first.mul_(3)
    (grad,) = fl.autograd.grad((first + second).sum(), x)
    assert grad.tolist() == [[3, 3], [1, 1]]


def test_a_view_made_without_recording_is_refused_even_for_plain_values():
    y = fl.ones(2, requires_grad=True) * 1
    with fl.no_grad():
        view = y[:1]
    with pytest.raises(RuntimeError, match="no_grad"):
        view.mul_(2)
    with fl.no_grad():
        view.mul_(2)
    assert y.tolist() == [2, 1]


def test_stale_views_of_several_raise_when_their_history_is_asked_for():
    x = fl.ones(2, 2, requires_grad=True)
    y = x * 1
    row = y.unbind(0)[0]
    y.mul_(2)
    assert row.requires_grad and row.detach().tolist() == [2, 2] and "<Invalid>" in repr(row)
    for use in (lambda: row.is_leaf, lambda: row.grad_fn, lambda: row * 2):
        with pytest.raises(RuntimeError, match="multiple views"):
            use()


def test_views_that_were_made_leaves():
    x = fl.arange(6.0).reshape(2, 3).requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        x[0] = 1
    with pytest.raises(RuntimeError, match="a leaf Variable"):
        x.mul_(2)
    x[0].sum().backward()
    assert x.grad.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_results_keep_the_order_of_dimensions_around_expanded_ones():
    row = fl.zeros(3)
    assert row.expand(2, 3).sin().stride() == (3, 1)
    assert fl.zeros(4, 3).t().expand(2, 3, 4).clone().stride() == (12, 1, 3)
