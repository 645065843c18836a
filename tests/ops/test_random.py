"""Random numbers: distributions by their moments, streams by their reproducibility, generators by their state."""

import copy
import pickle

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F

N = 200_003


def philox_block(seed, offset, index):
    """Philox4x32-10 in plain integers."""
    mask = 0xFFFFFFFF
    c = [index & mask, index >> 32, offset & mask, offset >> 32]
    k = [seed & mask, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def test_philox_known_answer():
    # From the Random123 distribution.
    assert philox_block(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_uniform_is_the_documented_function_of_seed_offset_and_index():
    g = fl.Generator(fl.get_default_device()).manual_seed(12345)
    fl.rand(3, generator=g)  # takes offset 0
    got = fl.rand(200, generator=g).cpu().numpy()
    for i in (0, 1, 17, 63, 64, 130, 199):
        group, e = divmod(i, 64)
        word = philox_block(12345, 1, group * 16 + e % 16)[e // 16]
        assert got[i] == np.float32((word >> 8) * 2.0**-24)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
@pytest.mark.parametrize("draw", [fl.rand, fl.randn])
def test_numbers_do_not_depend_on_threads_or_length(draw, dtype):
    threads = fl.get_num_threads()
    try:
        fl.manual_seed(7)
        many = draw(N, dtype=dtype).cpu().numpy()
        fl.set_num_threads(1)
        fl.manual_seed(7)
        assert (draw(N, dtype=dtype).cpu().numpy() == many).all()
        fl.manual_seed(7)
        assert (draw(1001, dtype=dtype).cpu().numpy() == many[:1001]).all()
    finally:
        fl.set_num_threads(threads)


def test_strided_tensors_get_the_numbers_of_their_logical_index():
    fl.manual_seed(1)
    want = fl.empty(30, 20).normal_().cpu().numpy()
    fl.manual_seed(1)
    assert (fl.empty(20, 30).t().normal_().cpu().numpy() == want).all()


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16, fl.float16])
def test_moments(dtype):
    fl.manual_seed(0)

    def sample(fill):
        return fill(fl.empty(N, dtype=dtype)).to(fl.float64).cpu().numpy()

    x = sample(lambda t: t.normal_(2.0, 3.0))
    assert abs(x.mean() - 2) < 0.05 and abs(x.std() - 3) < 0.05
    x = sample(lambda t: t.uniform_(-1, 3))
    assert abs(x.mean() - 1) < 0.03 and x.min() >= -1 and abs(x.var() - 16 / 12) < 0.03
    if dtype in (fl.float32, fl.float64):
        assert x.max() < 3
    x = sample(lambda t: t.exponential_(2.0))
    assert abs(x.mean() - 0.5) < 0.01 and x.min() > 0
    x = sample(lambda t: t.cauchy_(1.0, 2.0))
    assert abs(np.median(x) - 1) < 0.05 and abs(np.subtract(*np.percentile(x, [75, 25])) - 4) < 0.15
    x = sample(lambda t: t.log_normal_(0.5, 0.25))
    assert abs(np.log(x).mean() - 0.5) < 0.01
    x = sample(lambda t: t.geometric_(0.25))
    assert abs(x.mean() - 4) < 0.1 and x.min() == 1
    assert abs(sample(lambda t: t.bernoulli_(0.3)).mean() - 0.3) < 0.01


def test_normal_numbers_are_independent():
    fl.manual_seed(3)
    x = fl.randn(N, dtype=fl.float64).cpu().numpy()
    for lag in (1, 16, 32, 64):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 0.01
    assert abs((x**4).mean() - 3) < 0.1


def test_integers():
    fl.manual_seed(0)
    x = fl.randint(-3, 4, (N,)).cpu().numpy()
    counts = np.bincount(x + 3)
    assert x.dtype == np.int64 and len(counts) == 7 and abs(counts / N - 1 / 7).max() < 0.005
    assert fl.randint(5, (2, 3), dtype=fl.float32).dtype == fl.float32
    wide = fl.empty(1000, dtype=fl.int64).random_(-(2**62), 2**62).cpu().numpy()
    assert wide.min() < -(2**61) and wide.max() > 2**61
    assert set(fl.empty(100, dtype=fl.bool).random_().tolist()) == {True, False}
    assert fl.empty(1000, dtype=fl.uint8).random_().cpu().numpy().max() > 200
    with pytest.raises(RuntimeError):
        fl.randint(3, 3, (2,))
    with pytest.raises(RuntimeError):
        fl.empty(2, dtype=fl.int8).random_(0, 1000)


def test_permutations():
    fl.manual_seed(0)
    for n in (0, 1, 5, 1000, 3000):
        assert sorted(fl.randperm(n).tolist()) == list(range(n))
    firsts = np.array([fl.randperm(4)[0].item() for _ in range(2000)])
    assert abs(np.bincount(firsts) / 2000 - 0.25).max() < 0.05


def test_sampling_from_tensors():
    fl.manual_seed(0)
    ones = fl.ones(50_000, dtype=fl.float64)
    for rate in (0.5, 3.5, 40.0):
        x = fl.poisson(ones * rate).cpu().numpy()
        assert abs(x.mean() / rate - 1) < 0.03 and abs(x.var() / rate - 1) < 0.05
    for count, p in ((10, 0.3), (300, 0.4), (300, 0.9)):
        x = fl.binomial(ones * count, ones * p).cpu().numpy()
        assert abs(x.mean() / (count * p) - 1) < 0.02 and abs(x.var() / (count * p * (1 - p)) - 1) < 0.05
    for alpha in (0.3, 2.5):
        x = fl._standard_gamma(ones * alpha).cpu().numpy()
        assert abs(x.mean() / alpha - 1) < 0.03 and abs(x.var() / alpha - 1) < 0.08
    p = fl.tensor([0.0, 0.25, 1.0]).expand(10_000, 3)
    assert np.allclose(fl.bernoulli(p).cpu().numpy().mean(0), [0, 0.25, 1], atol=0.02)
    x = fl._sample_dirichlet(fl.ones(1000, 4))
    assert np.allclose(x.cpu().numpy().sum(1), 1, atol=1e-5)


@pytest.mark.host  # elsewhere it would take a wait to know
def test_parameters_outside_of_their_range_raise():
    with pytest.raises(RuntimeError):
        fl.poisson(fl.tensor([-1.0]))
    with pytest.raises(RuntimeError):
        fl.bernoulli(fl.tensor([1.5]))


def test_multinomial():
    fl.manual_seed(0)
    weights = fl.tensor([0.1, 0.0, 0.6, 0.3])
    drawn = fl.multinomial(weights, 20_000, replacement=True).cpu().numpy()
    assert np.allclose(np.bincount(drawn, minlength=4) / 20_000, [0.1, 0, 0.6, 0.3], atol=0.02)
    rows = fl.multinomial(weights.expand(500, 4), 3)
    assert all(sorted(r) == [0, 2, 3] for r in rows.tolist())
    for bad in (fl.tensor([-1.0, 2.0]), fl.tensor([0.0, 0.0]), fl.tensor([float("nan"), 1.0])):
        with pytest.raises(RuntimeError):
            fl.multinomial(bad, 1)
    with pytest.raises(RuntimeError):
        fl.multinomial(weights, 5)


def test_generator_state():
    g = fl.Generator(fl.get_default_device()).manual_seed(-5)
    assert g.initial_seed() == 2**64 - 5 and fl.Generator().device == fl.device("cpu")
    state = g.get_state()
    first = fl.rand(4, generator=g)
    other = g.clone_state()
    second = fl.rand(4, generator=g)
    assert (fl.rand(4, generator=other) == second).all()
    g.set_state(state)
    assert (fl.rand(4, generator=g) == first).all()
    again = pickle.loads(pickle.dumps(g))
    assert (fl.rand(4, generator=again) == second).all()
    with pytest.raises(TypeError):
        fl.rand(2, generator=3)
    with pytest.raises(RuntimeError):
        g.set_state(fl.zeros(3, dtype=fl.uint8, device="cpu"))
    assert copy.copy(g) is not None


@pytest.mark.host
def test_default_generator_and_fork():
    fl.manual_seed(11)
    assert fl.initial_seed() == 11 and fl.default_generator.initial_seed() == 11
    saved = fl.get_rng_state()
    with fl.random.fork_rng(devices=[]):
        inside = fl.rand(3)
    assert (fl.rand(3) == inside).all()
    fl.set_rng_state(saved)
    assert (fl.rand(3) == inside).all()


def test_factories_and_meta():
    assert fl.rand(2, 3, device="meta").shape == (2, 3)
    assert fl.randn(2, dtype=fl.complex64).is_complex()
    like = fl.empty(2, 3, 4, 5).contiguous(memory_format=fl.channels_last)
    assert fl.randn_like(like).stride() == like.stride()
    assert fl.normal(fl.zeros(3), fl.ones(3)).shape == (3,)
    assert fl.normal(0.0, 1.0, (2, 2)).shape == (2, 2)
    with pytest.raises(NotImplementedError):
        fl.rand(2, dtype=fl.int64)
    with pytest.raises(RuntimeError):
        fl.empty(3).expand(2, 3).normal_()
    assert fl.empty(0).normal_().shape == (0,)


def test_dropout():
    fl.manual_seed(0)
    x = fl.ones(100, 1000)
    y = F.dropout(x, 0.2).cpu().numpy()
    assert set(np.unique(y)) == {0, np.float32(1.25)} and abs((y == 0).mean() - 0.2) < 0.01
    assert F.dropout(x, 0.5, training=False) is x
    assert (F.dropout(x, 1.0) == 0).all()
    out, mask = fl.native_dropout(x, 0.5, True)
    assert (out.cpu().numpy() == mask.cpu().numpy() * 2.0).all()
    planes = F.dropout2d(fl.ones(10, 20, 3, 3), 0.5).cpu().numpy().reshape(200, 9)
    assert ((planes == planes[:, :1]).all(1)).all() and 0.3 < (planes[:, 0] == 0).mean() < 0.7
    z = F.alpha_dropout(fl.randn(N), 0.3, training=True).cpu().numpy()
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02
    with pytest.raises(ValueError):
        F.dropout(x, 1.5)


def test_gradient_of_dropout_is_what_was_kept():
    for dtype in (fl.float32, fl.bfloat16, fl.float64):
        x = fl.ones(50, 7, dtype=dtype, requires_grad=True)
        y = F.dropout(x, 0.5, True)  # doubles what it keeps, without rounding
        g = fl.linspace(-1, 1, 350).reshape(50, 7).to(dtype)
        y.backward(g)
        assert x.grad.dtype == dtype
        assert fl.allclose(x.grad, g * y.detach())
    x = fl.ones(5, requires_grad=True)
    F.dropout(x, 1.0, True).sum().backward()
    assert x.grad.tolist() == [0] * 5


def test_a_shape_that_is_no_number_gives_nan():
    assert fl._standard_gamma(fl.tensor([float("nan"), -1.0])).isnan().all()
    assert fl._standard_gamma(fl.tensor([0.0])).item() <= 1e-30
