"""Calls of layers and their functions that are refused, and formats and lengths that are kept."""

import pytest

import flambeau as fl

F = fl.nn.functional


@pytest.fixture
def deterministic():
    fl.use_deterministic_algorithms(True)
    yield
    fl.use_deterministic_algorithms(False)


UNPOOLING = [
    lambda: F.max_unpool1d(fl.randn(1, 1, 4), fl.arange(4).view(1, 1, 4), 1),
    lambda: F.max_unpool2d(fl.randn(1, 1, 2, 2), fl.arange(4).view(1, 1, 2, 2), 1),
    lambda: F.max_unpool3d(fl.randn(1, 1, 1, 2, 2), fl.arange(4).view(1, 1, 1, 2, 2), 1),
    lambda: fl.zeros(4).put_(fl.tensor([0, 0]), fl.ones(2)),
    lambda: fl.zeros(4).put(fl.tensor([0, 0]), fl.ones(2)),
]


@pytest.mark.parametrize("call", UNPOOLING)
def test_calls_without_a_promised_order_are_refused(call, deterministic):
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        call()
    fl.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
        call()


def test_sums_are_not(deterministic):
    assert fl.zeros(2).put_(fl.tensor([0, 0]), fl.ones(2), accumulate=True).tolist() == [2.0, 0.0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_length_of_one_sequence_may_be_a_tensor(reduction):
    log_probs, targets = fl.randn(9, 3).log_softmax(1), fl.tensor([1, 2, 1])
    loss = F.ctc_loss(log_probs, targets, fl.tensor(9), fl.tensor(3), reduction=reduction)
    assert fl.equal(loss, F.ctc_loss(log_probs, targets, (9,), (3,), reduction=reduction))
    with pytest.raises(RuntimeError, match="must be integral"):
        F.ctc_loss(log_probs, targets, fl.tensor(9.0), fl.tensor(3))
    with pytest.raises(RuntimeError, match="must not be empty"):
        F.ctc_loss(fl.rand(0, 0, 4), fl.tensor([]).long(), fl.tensor([]).long(), fl.tensor([]).long())


def test_pixel_shuffles_keep_channels_last():
    x = fl.randn(3, 18, 4, 4).contiguous(memory_format=fl.channels_last)
    wide = F.pixel_shuffle(x, 3)
    for result, plain in (
        (wide, F.pixel_shuffle(x.contiguous(), 3)),
        (F.pixel_unshuffle(wide, 3), x),
    ):
        assert result.is_contiguous(memory_format=fl.channels_last) and fl.equal(result, plain)
    assert F.pixel_shuffle(x.contiguous(), 3).is_contiguous()


def test_cells_do_not_broadcast_states():
    cell, x, good = fl.nn.LSTMCell(4, 5), fl.randn(3, 4), fl.randn(3, 5)
    for bad in (fl.randn(1, 5), fl.randn(3, 1)):
        for state in ((good, bad), (bad, good)):
            with pytest.raises(RuntimeError):
                cell(x, state)


def test_buffers_do_not_take_the_place_of_attributes():
    module = fl.nn.Module()
    module.x = 5
    with pytest.raises(KeyError, match="already exists"):
        module.x = fl.nn.Buffer(fl.ones(2))
    module.y = fl.nn.Buffer(fl.ones(2))
    module.y = fl.nn.Buffer(fl.zeros(2), persistent=False)
    assert module.y.tolist() == [0.0, 0.0] and not module.state_dict()


def test_buffers_of_modules_with_a_registration_of_their_own():
    class Old(fl.nn.Module):
        def register_buffer(self, name, tensor):
            super().register_buffer(name, tensor, True)

    module = Old()
    module.x = fl.nn.Buffer(fl.ones(2))
    assert module.x.tolist() == [1.0, 1.0]


def test_what_acts_like_a_tensor_may_be_a_buffer():
    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    module, first, second = fl.nn.Module(), Like(), Like()
    module.register_buffer("x", first)
    assert module.x is first
    module.x = second
    assert module.get_buffer("x") is second


def test_copies_of_views_into_tensors():
    x = fl.arange(10.0).view(2, 5)
    parts = [fl.empty(2, 2), fl.empty(0)]
    assert fl.split_with_sizes_copy(x, [2, 3], dim=1, out=parts) is None
    assert [p.tolist() for p in parts] == [[[0.0, 1.0], [5.0, 6.0]], [[2.0, 3.0, 4.0], [7.0, 8.0, 9.0]]]
    rows = [fl.empty(5), fl.empty(5)]
    fl.unbind_copy(x, out=rows)
    assert fl.equal(fl.stack(rows), x)
    with pytest.raises(RuntimeError, match="expected an out= argument of size 2, got size 1"):
        fl.unbind_copy(x, out=rows[:1])
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        fl.unbind_copy(x.requires_grad_(), out=rows)


def test_writes_by_index_share_no_memory_with_what_they_read():
    x, at = fl.arange(6.0), fl.tensor([2, 1, 0])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        x.index_put_((at,), x[:3])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        at.index_fill_(0, at, 0)
