"""Memory of compiled programs: what lies where in the arena, what takes the place of what, and who may see it."""

import gc
import random
import threading

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import library
from flambeau._inductor import config, memory, plan
from flambeau._inductor.compile_fx import compile_tensor_function
from flambeau._inductor.memory import ALIGNMENT, lay_out, overlapping
from flambeau._inductor.steps import Block

pytestmark = pytest.mark.host  # programs of devices have no arena


@pytest.fixture(autouse=True)
def with_an_arena():
    fl.manual_seed(0)
    with config.patch(allow_buffer_reuse=True):
        yield


@pytest.fixture
def memory_plans(monkeypatch):
    """What was planned, program after program."""
    made = []

    def noted(*args):
        made.append(original(*args))
        return made[-1]

    original = plan.plan_memory
    monkeypatch.setattr(plan, "plan_memory", noted)
    return made


# ---------------------------------------------------------------- layout


def _random_blocks(choice, count):
    blocks = []
    for _ in range(count):
        first = choice.randrange(40)
        blocks.append(
            Block(
                [choice.choice([0, 4, 64, 100, 4096, choice.randrange(1 << 16)])], first, first + choice.randrange(12)
            )
        )
    return blocks


def _most_at_once(blocks):
    return max(sum(b.bytes for b in blocks if b.first <= t <= b.last) for t in range(60))


@pytest.mark.parametrize("seed", range(200))
def test_blocks_that_live_together_lie_apart(seed):
    choice = random.Random(seed)
    blocks = _random_blocks(choice, choice.randrange(1, 60))
    offsets, total = lay_out(blocks)
    assert overlapping(blocks, offsets) is None
    assert all(o % ALIGNMENT == 0 and o >= 0 and o + b.bytes <= total for o, b in zip(offsets, blocks))
    rounded = [Block([-(-b.bytes // ALIGNMENT) * ALIGNMENT], b.first, b.last) for b in blocks]
    assert _most_at_once(blocks) <= total <= 2 * _most_at_once(rounded)


def test_the_check_sees_an_overlap():
    blocks = [Block([64], 0, 2), Block([64], 2, 3)]
    assert overlapping(blocks, [0, 32]) == (0, 1)
    assert overlapping(blocks, [0, 64]) is None
    assert overlapping([Block([64], 0, 1), Block([64], 2, 3)], [0, 0]) is None


def test_lives_one_after_the_other_share_their_bytes():
    offsets, total = lay_out([Block([1000], 2 * i, 2 * i + 1) for i in range(10)])
    assert offsets == [0] * 10 and total == 1024


def test_no_blocks_need_no_arena():
    assert lay_out([]) == ([], 0)


# ---------------------------------------------------------------- places that are taken over


def _close(ours, eager):
    fl.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-3)


def _check(function, *given):
    made = compile_tensor_function(function, len(given))
    for _ in range(2):
        for ours, eager in zip(made(*given), function(*given)):
            _close(ours, eager)
    return made


def test_a_loop_writes_over_what_an_operator_made(memory_plans):
    with config.patch("epilogue_fusion", False):  # the product would do it itself
        _check(lambda x, w, b: [F.relu(x @ w + b)], fl.randn(64, 128), fl.randn(128, 256), fl.randn(256))
    (made,) = memory_plans
    assert len(made.overwrites) == 1 and not made.blocks  # the result is where the product was


def test_what_is_taken_over_is_read_first(memory_plans):
    """Both results need the product, one of them is written over it."""
    _check(lambda x, w: [(p := x @ w).exp() + 1, p * 2 - x, p.sum()], fl.randn(40, 40), fl.randn(40, 40))
    assert len(memory_plans[0].overwrites) == 1


def test_columns_of_a_row_are_read_before_they_are_written_over(memory_plans):
    def function(x, w):
        p = x @ w
        return [F.softmax(p, -1), F.layer_norm(p + 1, (48,)), p.amax(-1)]

    _check(function, fl.randn(16, 32), fl.randn(32, 48))


def test_a_transposed_reader_takes_nothing(memory_plans):
    _check(lambda x, w: [(x @ w).t().contiguous() + 1], fl.randn(33, 33), fl.randn(33, 33))
    assert not memory_plans[0].overwrites


def test_a_broadcast_reader_takes_nothing(memory_plans):
    _check(lambda x, w: [(x @ w) + fl.zeros(5, 1, 1)], fl.randn(33, 33), fl.randn(33, 33))
    assert not memory_plans[0].overwrites


def test_another_dtype_takes_nothing(memory_plans):
    _check(lambda x, w: [(x @ w).to(fl.int32) + 1], fl.randn(33, 33), fl.randn(33, 33))
    assert not memory_plans[0].overwrites


def test_inputs_and_results_are_not_written_over():
    def function(x, w):
        y = x @ w
        z = y + 1
        return [y, z * 2, (z * 3).sum(0)]

    x, w = fl.randn(64, 300), fl.randn(300, 300)
    before = [x.clone(), w.clone()]
    made = _check(function, x, w)
    first = [t.clone() for t in made(x, w)]
    held = made(x, w)
    made(x + 1, w)
    for a, b in zip(held, first):
        _close(a, b)
    assert fl.equal(x, before[0]) and fl.equal(w, before[1])


def test_chains_keep_to_one_place(memory_plans):
    def function(x, w):
        for _ in range(6):
            x = F.relu(x @ w + 1).t().contiguous() * 2
        return [x.sum()]

    with config.patch("epilogue_fusion", False):
        _check(function, fl.randn(160, 160), fl.randn(160, 160) / 160)
    (made,) = memory_plans
    assert len(made.blocks) > 4
    assert lay_out(list(made.blocks.values()))[1] <= 3 * 160 * 160 * 4


# ---------------------------------------------------------------- training, sizes


def _network(x, w1, w2, b):
    h = F.gelu(F.layer_norm(x @ w1 + b, (w1.shape[1],)))
    return [F.log_softmax(h @ w2, -1).mean(), h.sum(1)]


def test_what_backward_needs_is_left_alone():
    x, w1, w2, b = fl.randn(96, 200), fl.randn(200, 160), fl.randn(160, 210), fl.randn(160)
    weights = [t.requires_grad_() for t in (w1, w2, b)]
    results = []
    for function in (_network, compile_tensor_function(_network, 4)):
        loss, rows = function(x, *weights)
        total = loss + rows.square().mean()
        once = fl.autograd.grad(total, weights, retain_graph=True)
        again = fl.autograd.grad(total, weights)
        for a, b_ in zip(once, again):
            _close(a, b_)
        results.append(once)
    for a, b_ in zip(*results):
        _close(a, b_)


def test_each_size_has_its_own_layout_over_the_same_kernels(memory_plans):
    def function(x, w):
        return [fl.tanh(x @ w + 1).t().contiguous().exp().sum(0)]

    made = compile_tensor_function(function, 2)
    for n in (1, 2, 7, 64, 300, 301, 5):
        x, w = fl.randn(n, 200), fl.randn(200, 170)
        _close(made(x, w)[0], function(x, w)[0])
    assert len(memory_plans) == 7


def test_empty_sizes():
    _check(lambda x, w: [fl.relu(x @ w + 1).sum(), (x @ w) * 2], fl.randn(0, 8), fl.randn(8, 5))


def test_without_reuse_everything_has_memory_of_its_own(memory_plans):
    x, w = fl.randn(300, 300), fl.randn(300, 300)
    with config.patch(allow_buffer_reuse=False):
        _check(lambda x, w: [fl.relu(x @ w + 1).t().contiguous() @ w], x, w)
    assert not memory_plans


# ---------------------------------------------------------------- runs


ARENA = 200 * 200 * 4  # bytes that a run of these programs works in, at least


def _allocated():
    """Bytes that are in use; other tests' garbage is among them, and may go at any time."""
    gc.collect()
    return fl._C._memory_stats()["allocated"]


def _big(x, w):
    y = (fl.tanh(x @ w) @ w).exp() + 1
    return [F.softmax(y.t().contiguous() @ w, -1)]


def test_a_run_gives_its_arena_back():
    x, w = fl.randn(200, 200), fl.randn(200, 200) / 200
    made = compile_tensor_function(_big, 2)
    made(x, w)
    before = _allocated()
    for _ in range(100):
        made(x, w)
    assert _allocated() - before < 50 * ARENA


def test_an_error_in_the_middle_gives_it_back():
    def function(x, index, table):
        y = fl.tanh(x @ x) @ x
        picked = F.embedding(index, table)
        return [y.exp().t().contiguous() @ x + picked.sum()]

    x, table = fl.randn(200, 200) / 200, fl.randn(10, 3)
    made = compile_tensor_function(function, 3)
    good, bad = fl.tensor([1, 2]), fl.tensor([1, 99])
    expected = function(x, good, table)[0]
    _close(made(x, good, table)[0], expected)
    before = _allocated()
    for _ in range(100):
        with pytest.raises(IndexError):
            made(x, bad, table)
    assert _allocated() - before < 50 * ARENA
    _close(made(x, good, table)[0], expected)


def test_threads_have_arenas_of_their_own():
    w = fl.randn(200, 200) / 200
    made = compile_tensor_function(_big, 2)
    given = [fl.randn(200, 200) for _ in range(4)]
    expected = [_big(x, w)[0] for x in given]
    found = [None] * len(given)

    def work(i):
        for _ in range(20):
            found[i] = made(given[i], w)[0]

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(given))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for a, b in zip(found, expected):
        _close(a, b)


def test_a_program_inside_of_a_program():
    w = fl.randn(200, 200) / 200
    inner = compile_tensor_function(_big, 2)

    @library.custom_op("arena_tests::inner", mutates_args=())
    def nested(x: fl.Tensor) -> fl.Tensor:
        return inner(x, w)[0] if x.shape[0] == 200 else x.clone()

    nested.register_fake(fl.empty_like)

    def outer(x, w):
        y = fl.tanh(x @ w)
        z = nested(y @ w) + y
        return [(z.exp() @ w).t().contiguous() + 1]

    _check(outer, fl.randn(200, 200), w)


def test_operators_from_outside_may_keep_what_they_are_given():
    kept = []

    @library.custom_op("arena_tests::keep", mutates_args=())
    def keep(x: fl.Tensor) -> fl.Tensor:
        kept.append((x, x.clone()))
        kept.append((made := x * 2, made.clone()))
        return made

    keep.register_fake(fl.empty_like)

    def function(x, w):
        y = keep(fl.tanh(x @ w))
        return [(y + 1).exp() @ w]

    made = compile_tensor_function(function, 2)
    x, w = fl.randn(200, 200), fl.randn(200, 200) / 200
    for _ in range(3):
        made(x, w)
    assert kept and all(fl.equal(a, b) for a, b in kept)


def test_operators_with_several_results_and_memory_of_their_own():
    """Temporary memory of an operator may be as large as its result, and take the place of that."""

    def function(x, k):
        y = F.conv2d(x, k, padding=1)
        values, indices = F.max_pool2d(F.relu(y), 2, return_indices=True)
        ordered, order = values.sort(-1)
        return [ordered.exp() * 2, order + indices, y.cumsum(1).relu() + y]

    x, k = fl.randn(4, 8, 32, 32), fl.randn(8, 8, 3, 3)
    _check(function, x, k)
    g = k.clone().requires_grad_()
    found = [fl.autograd.grad(f(x, g)[0].sum(), g)[0] for f in (function, compile_tensor_function(function, 2))]
    _close(*(t / 100 for t in found))


@pytest.mark.parametrize("rows", [3, 150])
@pytest.mark.parametrize("escaping", [0, 1])
def test_a_result_that_takes_the_place_of_another_moves_out(rows, escaping, monkeypatch):
    """Values and indices have the same size, and one of them outlives the other."""
    monkeypatch.setattr(memory, "SMALL", 0)

    def function(x):
        found = (x * 2).sort(stable=True)
        reversed_ = (x + found[1 - escaping]).flip(0).sort(stable=True)
        again = (reversed_[0] + 1).flip(0) @ x
        return [found[escaping], again.flip(1), reversed_[1]]

    _check(function, fl.randn(rows, rows, dtype=fl.float64))


def _small(x, k, w):
    y = F.conv2d(x, k, padding=1)
    values, indices = F.max_pool2d(F.relu(y), 2, return_indices=True)
    h = F.gelu(F.layer_norm(values.flatten(1) @ w, (5,)))
    ordered, order = h.sort(-1)
    scores = F.log_softmax(ordered @ ordered.t(), -1).cumsum(0)
    return [scores.exp() * 2, order.sum() + indices.amax(), y.cumsum(1).relu() + y, scores.mean()]


@pytest.mark.parametrize("small", [0, 1 << 16])
def test_results_of_operators_of_any_size_have_places(small, monkeypatch, memory_plans):
    monkeypatch.setattr(memory, "SMALL", small)
    x, k, w = fl.randn(3, 4, 6, 6), fl.randn(4, 4, 3, 3), fl.randn(36, 5)
    _check(_small, x, k, w)
    assert memory_plans[0].blocks or small
    weights = [k.requires_grad_(), w.requires_grad_()]
    made = compile_tensor_function(_small, 3)
    for _ in range(2):
        ours, eager = ([*fl.autograd.grad(f(x, *weights)[-1], weights)] for f in (made, _small))
        for a, b in zip(ours, eager):
            _close(a, b)


def test_a_graph_that_is_kept_runs_backward_again():
    x = fl.randn(33, 40, requires_grad=True)
    made = fl.compile(lambda x: (fl.tanh(x) * fl.sigmoid(x @ x.t()).sum()).sum())(x)
    made.backward(retain_graph=True)
    first = x.grad.clone()
    made.backward()
    assert fl.equal(x.grad, first + first)
    with pytest.raises(RuntimeError):
        made.backward()
