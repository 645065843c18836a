"""Compiled functions on a CUDA device give what eager mode gives on the CPU."""

import importlib
import pathlib
import sys

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import config
from flambeau._inductor.compile_fx import compile_tensor_function
from flambeau._inductor.triton_build import TritonPrinter

if not fl.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "inductor"))
cases = importlib.import_module("test_triton")


@pytest.mark.parametrize("name", cases.CASES)
def test_kernels_agree_with_the_cpu(name):
    cases.agree(name, compile_tensor_function, "cuda")


def test_inputs_that_are_not_aligned():
    base = fl.randn(1001, device="cuda")
    run = compile_tensor_function(lambda x: [x * 2 + 1], 1)
    for offset in (0, 1, 3):
        part = base[offset : offset + 990]
        assert fl.allclose(run(part)[0].cpu(), part.cpu() * 2 + 1)


def test_numbers_in_host_memory_take_part():
    x, scale = fl.randn(5, 7, device="cuda"), fl.tensor(3.0)
    run = fl.compile(lambda x: fl.relu(x) * scale + 1)
    assert fl.allclose(run(x).cpu(), fl.relu(x.cpu()) * 3 + 1)


def test_rows_that_do_not_fit_in_a_program():
    for size in ((3, 100_000), (300, 40_000), (1 << 20,)):
        x = fl.randn(size)
        found = fl.compile(lambda x: F.softmax(x, -1))(x.cuda())
        assert fl.allclose(found.cpu(), F.softmax(x, -1), atol=1e-6)


def test_training_follows_eager_mode():
    def train(run):
        fl.manual_seed(0)
        model = fl.nn.Sequential(fl.nn.Linear(64, 256), fl.nn.GELU(), fl.nn.LayerNorm(256), fl.nn.Linear(256, 8)).cuda()
        optimizer = fl.optim.AdamW(model.parameters(), lr=1e-2)
        x, y = fl.randn(128, 64).cuda(), fl.randint(0, 8, (128,)).cuda()
        step = run(lambda x, y: F.cross_entropy(model(x), y))
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = step(x, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    eager, compiled = train(lambda f: f), train(fl.compile)
    assert compiled[-1] < compiled[0]
    assert eager == pytest.approx(compiled, rel=1e-3)


def test_results_of_captured_graphs_stay():
    run = fl.compile(lambda x: fl.tanh(x) * 2 + x, mode="reduce-overhead")
    x = fl.randn(100, 100, device="cuda")
    expected = lambda t: fl.tanh(t) * 2 + t  # noqa: E731
    kept = [run(x) for _ in range(4)]
    assert all(fl.allclose(k, expected(x)) for k in kept)
    assert fl.allclose(run(run(x)), expected(expected(x)))
    other = fl.randn(100, 100, device="cuda")
    made = run(other)
    assert fl.allclose(kept[-1], expected(x)) and fl.allclose(made, expected(other))


@pytest.mark.parametrize("mode", ["max-autotune-no-cudagraphs", "max-autotune"])
def test_products_are_measured_with_what_follows_them(mode):
    fl.manual_seed(0)
    layers = fl.nn.Sequential(fl.nn.Linear(512, 1000), fl.nn.GELU(), fl.nn.Linear(1000, 256), fl.nn.ReLU())
    layers = layers.to("cuda", fl.bfloat16)
    x = fl.randn(300, 512, device="cuda").to(fl.bfloat16)
    with fl.no_grad():
        want = layers(x)
        run = fl.compile(layers, mode=mode)
        for _ in range(3):
            got = run(x)
            assert (got.float() - want.float()).abs().max().item() < 0.02
    y = run(x)  # with derivatives
    y.float().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layers.parameters())


class Forced(TritonPrinter):
    """Takes the first or the last of kernels that compute products and convolutions with what follows them."""

    first = True

    def _tuner(self):
        return cases.Ends(self.first)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", [name for name in cases.CASES if name.startswith(("a product", "a convolution"))])
def test_products_and_convolutions_with_what_follows_them(name, first):
    printer = Forced.of(fl.device("cuda"))
    printer.first = first
    with config.patch(
        max_autotune_gemm=True
    ):  # results of calls that kernels take the place of are no memory to write over
        cases.agree(name, lambda function, inputs: compile_tensor_function(function, inputs, printer=printer), "cuda")


@pytest.mark.parametrize("mode", ["max-autotune-no-cudagraphs", "max-autotune"])
def test_convolutions_are_measured_with_what_follows_them(mode):
    fl.manual_seed(0)
    layers = fl.nn.Sequential(
        fl.nn.Conv2d(3, 64, 3, padding=1), fl.nn.BatchNorm2d(64), fl.nn.ReLU(), fl.nn.Conv2d(64, 96, 3, 2), fl.nn.SiLU()
    )
    layers = layers.to("cuda", fl.bfloat16, memory_format=fl.channels_last).eval()
    x = fl.randn(8, 3, 33, 31, device="cuda").to(fl.bfloat16)
    with fl.no_grad():
        want = layers(x)
        run = fl.compile(layers, mode=mode)
        for _ in range(3):
            assert (run(x).float() - want.float()).abs().max().item() < 0.03


def test_backward_lets_go_of_what_forward_saved():
    layers, width = 12, 2048
    weights = [fl.randn(width, width, device="cuda", requires_grad=True) for _ in range(layers)]

    def loss(x, *weights):
        for w in weights:
            x = fl.tanh(x @ w)
        return x.sum()

    compiled = fl.compile(loss)
    x = fl.randn(8192, width, device="cuda")
    for retain in (False, True):
        for w in weights:
            w.grad = None
        made = compiled(x, *weights)
        fl.cuda.synchronize()
        fl.cuda.reset_peak_memory_stats()
        before = fl.cuda.memory_allocated()
        made.backward(retain_graph=retain)
        extra = fl.cuda.max_memory_allocated() - before
        gradients, saved = layers * width * width * 4, 8192 * width * 4
        assert (extra > gradients) is retain, extra / gradients
        if not retain:
            assert extra < 4 * saved, extra / saved
        else:
            first = [w.grad.clone() for w in weights]
            made.backward()
            assert all(fl.equal(w.grad, g + g) for w, g in zip(weights, first))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_recorded_kernels_that_start_early_see_what_was_made_before_them(mode):
    """A chain of small kernels, as decoding has it: norms, products with a vector, a cache that is written, one query."""
    width, length = 256, 512
    weights = [(fl.randn(width, width) / 16).bfloat16().cuda() for _ in range(12)]
    keys, values = ((fl.randn(1, 2, length, 64)).bfloat16().cuda() for _ in range(2))
    caches = [(keys.clone(), values.clone()) for _ in range(3)]

    def decode(x, position):
        for at, (k, v) in enumerate(caches):
            q, key, value, join = weights[4 * at : 4 * at + 4]
            y = F.rms_norm(x, (width,))
            query = F.linear(y, q).view(1, 1, 4, 64).transpose(1, 2)
            k.index_copy_(2, position, F.linear(y, key)[..., :128].reshape(1, 1, 2, 64).transpose(1, 2))
            v.index_copy_(2, position, F.linear(y, value)[..., :128].reshape(1, 1, 2, 64).transpose(1, 2))
            mixed = F.scaled_dot_product_attention(query, k, v, enable_gqa=True)
            x = x + F.linear(mixed.transpose(1, 2).reshape(1, 1, width), join)
        return x

    words = [fl.randn(1, 1, width).bfloat16().cuda() for _ in range(12)]

    def run(function):
        for k, v in caches:
            k.copy_(keys)
            v.copy_(values)
        with fl.no_grad():
            made = [function(x, fl.tensor([at], device="cuda")).clone() for at, x in enumerate(words)]
        return [t.float().cpu() for t in (*made, *(part for cache in caches for part in cache))]

    want = run(decode)
    for _ in range(2):
        for mine, other in zip(run(fl.compile(decode, mode=mode)), want):
            fl.testing.assert_close(mine, other, atol=0.06, rtol=0.06)


def test_a_cache_is_not_written_where_no_row_is():
    cache = fl.zeros(5, 40, device="cuda")
    run = fl.compile(lambda x, at: cache.index_copy_(0, at, x.sin() + 1))
    run(fl.ones(1, 40, device="cuda"), fl.tensor([3], device="cuda"))
    assert fl.equal(cache.sum(1).cpu() > 0, fl.tensor([False, False, False, True, False]))
    with pytest.raises(IndexError):
        run(fl.ones(1, 40, device="cuda"), fl.tensor([5], device="cuda"))
        fl.cuda.synchronize()
    assert fl.equal(cache.sum(1).cpu() > 0, fl.tensor([False, False, False, True, False]))
