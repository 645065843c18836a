"""Reductions that leave out masked elements, and tensors that have a mask of their own."""

import copy
import pickle

import pytest

import flambeau as fl
from flambeau.masked import as_masked_tensor, is_masked_tensor, masked_tensor


def test_logsumexp_of_integers():
    values, mask = fl.tensor([[1, 2], [3, 4]]), fl.tensor([[True, False], [True, True]])
    assert fl.masked.logsumexp(values, 1, mask=mask).tolist() == [1, 4]  # computed in floating point, then cut off


DATA = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
MASK = [[True, False, True], [False, False, False]]


def masked(requires_grad=False):
    return masked_tensor(fl.tensor(DATA), fl.tensor(MASK), requires_grad)


def test_elements_are_absent_where_the_mask_is_false():
    x = masked()
    assert is_masked_tensor(x) and isinstance(x, fl.Tensor) and not is_masked_tensor(fl.ones(2))
    assert x.shape == (2, 3) and x.get_data().tolist() == DATA and x.get_mask().tolist() == MASK
    assert x.to_tensor(-1).tolist() == [[0.0, -1.0, 2.0], [-1.0, -1.0, -1.0]]


def test_text():
    assert repr(masked()) == (
        "MaskedTensor(\n  [\n    [  0.0000,       --,   2.0000],\n    [      --,       --,       --]\n  ]\n)"
    )
    assert repr(masked().sum()) == "MaskedTensor(  2.0000, True)"


def test_functions_of_elements_keep_the_mask():
    x = masked()
    for made, wanted in (
        (x + 1, [1.0, 3.0]),
        (2 * x, [0.0, 4.0]),
        (1 - x, [1.0, -1.0]),
        (x * x, [0.0, 4.0]),
        (x.square().neg(), [0.0, -4.0]),
        (x * fl.tensor([1.0, 1.0, 10.0]), [0.0, 20.0]),
        (fl.where(x > 1, x, x + 5), [5.0, 2.0]),
        (x.double(), [0.0, 2.0]),
    ):
        assert made.get_mask().tolist() == MASK and made.get_data()[0, ::2].tolist() == wanted
    y = x.clone()
    y += 1
    assert y.mul_(2).to_tensor(0).tolist() == [[2.0, 0.0, 6.0], [0.0, 0.0, 0.0]]
    assert x.to_tensor(0).tolist() == [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]


def test_masks_of_operands_must_agree():
    other = masked_tensor(fl.tensor(DATA), fl.ones(2, 3, dtype=fl.bool))
    with pytest.raises(ValueError, match="masks must match"):
        masked() + other


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "var", "std", "norm", "logsumexp", "argmax"])
def test_reductions_leave_absent_elements_out(name):
    x = masked()
    made = getattr(x, name)(dim=1)
    assert made.get_mask().tolist() == [True, False]
    present = fl.tensor([0.0, 2.0])
    wanted = fl.tensor(2.0) if name == "argmax" else getattr(present, name)(dim=0)
    assert fl.allclose(made.get_data()[0], wanted)
    if name != "logsumexp":
        whole = getattr(fl, name)(x)
        assert bool(whole.get_mask()) and fl.allclose(whole.get_data(), wanted)
    assert fl.allclose(getattr(fl.masked, name)(x, dim=1)[0], wanted)


def test_all_and_softmax():
    x = masked()
    assert bool((x < 3).all()) and not bool((x < 2).all())
    made = x.softmax(1)
    assert fl.allclose(made.get_data()[0], fl.tensor([0.0, -float("inf"), 2.0]).softmax(0))
    assert fl.allclose(x.log_softmax(-1).get_data()[0, ::2], fl.tensor([0.0, 2.0]).log_softmax(0))


def test_functions_that_move_elements_move_the_mask():
    x = masked()
    mask = fl.tensor(MASK)
    for move in (
        lambda t: t.T,
        lambda t: t.reshape(3, 2),
        lambda t: t[:, 1:],
        lambda t: t[0],
        lambda t: t.unsqueeze(0).expand(2, 2, 3),
        lambda t: fl.stack([t, t]),
        lambda t: t.permute(1, 0),
        lambda t: t.split(1)[1],
    ):
        made = move(x)
        assert made.get_mask().tolist() == move(mask).tolist()
        assert made.get_data().tolist() == move(fl.tensor(DATA)).tolist()
    assert fl.cat([x, fl.ones(1, 3)]).get_mask()[2].all()


def test_gradients_have_masks():
    x = masked(requires_grad=True)
    (x * x).mean(1).sum().backward()
    assert is_masked_tensor(x.grad) and x.grad.to_tensor(-1).tolist() == [[0.0, -1.0, 2.0], [-1.0, -1.0, -1.0]]
    x.grad = None
    assert x.grad is None


def test_no_gradient_comes_out_of_absent_elements():
    data = fl.tensor([-1.0, 4.0], requires_grad=True)
    as_masked_tensor(data, data.detach() > 0).sqrt().sum().backward()
    assert data.grad.tolist() == [0.0, 0.25]


def test_copies():
    x = masked(requires_grad=True)
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.requires_grad and made.get_mask().tolist() == MASK and made.get_data().tolist() == DATA


def test_what_is_not_defined_is_refused():
    x = masked()
    for call in (lambda: x @ x.T, lambda: fl.nn.functional.layer_norm(x, (3,)), lambda: x.median()):
        with pytest.raises(TypeError, match="not implemented for MaskedTensor"):
            call()
    with pytest.raises(RuntimeError, match="to_tensor"):
        x.tolist()
    for data, mask in (([1.0], fl.ones(1, dtype=fl.bool)), (fl.ones(2), fl.ones(2)), (x, x.get_mask())):
        with pytest.raises(TypeError):
            masked_tensor(data, mask)
    with pytest.raises(ValueError, match="dim"):
        masked_tensor(fl.ones(2, 2), fl.ones(2, dtype=fl.bool))


@pytest.mark.parametrize("dtype", [fl.float32, fl.int32])
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean"])
def test_masks_of_numbers_are_true_where_they_are_not_zero(name, dtype):
    function, x = getattr(fl.masked, name), fl.arange(6.0).reshape(2, 3)
    mask = fl.tensor([[1, 0, 3], [0, 0, -1]], dtype=dtype)
    assert fl.equal(function(x, mask=mask), function(x, mask=mask != 0))
    batched = fl.func.vmap(lambda a, m: function(a, mask=m))(x, mask)
    assert fl.equal(batched, fl.stack([function(a, mask=m != 0) for a, m in zip(x, mask)]))
