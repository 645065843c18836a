"""Writes to views: what is refused depends on the mode and the function that made them."""

import pytest

import flambeau as fl


def normal(requires_grad=True):
    return fl.ones(2, 3, requires_grad=requires_grad).clone()


def test_views_made_in_inference_mode_stay_normal_tensors_that_require_grad():
    base = normal()
    with fl.inference_mode():
        view = base.view(-1)
        assert not view.is_inference() and view.requires_grad and view.is_leaf and view._is_view()
    assert (view * 2).requires_grad


def test_views_made_in_inference_mode_are_written_in_place_there_only():
    base = normal()
    with fl.inference_mode():
        view = base.view(-1)
        view.add_(1)
    with pytest.raises(RuntimeError, match="view was created in inference mode"):
        view.add_(1)
    assert base.tolist() == [[2.0] * 3] * 2
    free = fl.ones(3)
    with fl.inference_mode():
        view = free.view(-1)
    view.add_(1)
    assert free.tolist() == [2.0] * 3


def test_the_mode_is_named_before_the_kind_of_the_view():
    base = normal()
    with fl.no_grad():
        first, _ = base.unbind()
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        first.add_(1)


def test_views_returned_by_custom_functions_are_not_written_in_place():
    class View(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g

    view = View.apply(normal())
    with pytest.raises(RuntimeError, match="view was created inside a custom Function"):
        view.add_(1)


def test_pieces_of_unsafe_split_do_not_share_versions():
    base = fl.randn(3, 3, requires_grad=True)
    first, second, _ = (base + base).unsafe_split(1)
    first.mul_(second)
    first.sum().backward()
    assert base.grad is not None


def test_attributes_of_tensors_are_not_removed():
    x = fl.ones(2, requires_grad=True)
    for name in ("data", "requires_grad"):
        with pytest.raises(RuntimeError, match="deletion"):
            delattr(x, name)


def test_data_of_another_layout_is_refused():
    sparse = fl.ones(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        fl.ones(2).data = sparse


def test_resizing_counts_as_a_change():
    x = fl.ones(3)
    x.resize_(2, 2)
    assert x._version == 1
    x.resize_(2, 2)
    assert x._version == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.index_fill_(0, fl.tensor([0]), 2.0),
        lambda x: x.masked_fill_(fl.ones(2, 3, dtype=fl.bool), 2.0),
        lambda x: x.index_put_((fl.tensor([0]),), fl.tensor(2.0)),
    ],
)
def test_expanded_tensors_are_filled_with_a_warning(write):
    x = fl.ones(1, 3).expand(2, 3)
    with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
        write(x)
    assert x.tolist() == [[2.0] * 3] * 2


def test_a_parameter_may_become_a_window_on_other_memory():
    parameter = fl.nn.Parameter(fl.ones(4))
    for _ in range(2):
        with fl.no_grad():
            parameter.set_(parameter[1:])
            parameter.grad = None
        fl.cat((parameter, parameter)).sum().backward()
        assert parameter.grad.shape == parameter.shape


def test_what_was_computed_before_set_has_no_gradient_for_it():
    x = fl.rand(2, requires_grad=True)
    edge = fl.autograd.graph.get_gradient_edge(x)
    out = x.clone()
    with fl.no_grad():
        x.set_(fl.rand(2))
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        fl.autograd.grad(out.sum(), x)
    fl.autograd.grad(out.sum(), edge)
