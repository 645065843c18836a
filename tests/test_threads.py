"""The pool of threads behind kernels: results with any number of threads, who is woken, forks, callers at the same time."""

import os
import subprocess
import sys
import threading
import time

import pytest

import flambeau as fl
from flambeau.nn import functional as F

pytestmark = pytest.mark.host

MANY = [2, 3, 16, 64]  # more than there are cores, too


@pytest.fixture(autouse=True)
def restored():
    before = fl.get_num_threads()
    fl.manual_seed(0)
    yield
    fl.set_num_threads(before)


def counted(function):
    """What the pool did during a call."""
    before = fl._C._thread_counters()
    function()
    after = fl._C._thread_counters()
    return {name: after[name] - before[name] for name in after}


def _rows():
    return fl.randint(0, 500, (4000,))


KERNELS = {
    "add": lambda: (lambda a, b: a + b, fl.randn(300_001), fl.randn(300_001)),
    "product": lambda: (fl.matmul, fl.randn(203, 311), fl.randn(311, 157)),
    "narrow product": lambda: (fl.matmul, fl.randn(2000, 300), fl.randn(300, 3)),
    "deep product": lambda: (fl.matmul, fl.randn(40, 3001) / 50, fl.randn(3001, 50)),
    "deep product turned": lambda: (lambda x, y: x.t() @ y, fl.randn(3001, 70) / 50, fl.randn(3001, 33)),
    "large product": lambda: (fl.matmul, fl.randn(300, 700) / 25, fl.randn(700, 290)),
    "few products": lambda: (fl.bmm, fl.randn(3, 130, 140), fl.randn(3, 140, 121)),
    "vector": lambda: (fl.mv, fl.randn(999, 800), fl.randn(800)),
    "long vector": lambda: (fl.mv, fl.randn(5, 200_000, dtype=fl.float64), fl.randn(200_000, dtype=fl.float64)),
    "batches": lambda: (fl.bmm, fl.randn(70, 33, 40), fl.randn(70, 40, 21)),
    "integers": lambda: (fl.matmul, fl.randint(0, 9, (90, 80)), fl.randint(0, 9, (80, 70))),
    "complex": lambda: (fl.matmul, fl.randn(80, 90, dtype=fl.complex64), fl.randn(90, 70, dtype=fl.complex64)),
    "convolution": lambda: (lambda x, w: F.conv2d(x, w, padding=1), fl.randn(4, 16, 20, 21), fl.randn(24, 16, 3, 3)),
    "depthwise": lambda: (
        lambda x, w: F.conv2d(x, w, padding=1, groups=32), fl.randn(4, 32, 30, 31), fl.randn(32, 1, 3, 3)
    ),
    "double convolution": lambda: (
        lambda x, w: F.conv2d(x, w), fl.randn(2, 8, 40, 40, dtype=fl.float64), fl.randn(9, 8, 3, 3, dtype=fl.float64)
    ),
    "attention": lambda: (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), fl.randn(3, 5, 130, 32)),
    "layer_norm": lambda: (lambda x: F.layer_norm(x, (300,)), fl.randn(700, 300)),
    "batch_norm": lambda: (lambda x: F.batch_norm(x, None, None, training=True), fl.randn(9, 20, 40, 41)),
    "softmax": lambda: (lambda x: fl.softmax(x, -1), fl.randn(900, 333)),
    "softmax of columns": lambda: (lambda x: fl.softmax(x, 0), fl.randn(900, 333)),
    "sum": lambda: (fl.sum, fl.randn(500_001)),
    "sum of rows": lambda: (lambda x: x.sum(0), fl.randn(3001, 111)),
    "sum of columns": lambda: (lambda x: x.sum(1), fl.randn(1111, 301)),
    "argmax": lambda: (lambda x: x.argmax(1), fl.randn(1111, 301)),
    "index_add": lambda: (lambda x, i, y: x.index_add(0, i, y), fl.randn(500, 48), _rows(), fl.randn(4000, 48)),
    "index_put": lambda: (
        lambda x, i, y: x.index_put((i,), y), fl.randn(500, 48), _rows(), fl.randn(4000, 48)
    ),
    "scatter_add": lambda: (lambda x, i, y: x.scatter_add(0, i, y), fl.randn(500), _rows(), fl.randn(4000)),
    "long scatter_add": lambda: (
        lambda x, i, y: x.scatter_add(0, i, y), fl.randn(500), fl.randint(0, 500, (70_000,)), fl.randn(70_000) / 9
    ),
    "long index_add": lambda: (
        lambda x, i, y: x.index_add(0, i, y), fl.randn(500), fl.randint(0, 500, (70_000,)), fl.randn(70_000) / 9
    ),
    "long amax": lambda: (
        lambda x, i, y: x.scatter_reduce(0, i, y, "amax"), fl.randn(500), fl.randint(0, 500, (70_000,)), fl.randn(70_000)
    ),
    "gather": lambda: (lambda x, i: x[i], fl.randn(500, 70), _rows()),
    "transpose": lambda: (lambda x: x.t().contiguous(), fl.randn(901, 403)),
    "conversion": lambda: (lambda x: x.to(fl.bfloat16), fl.randn(300_001)),
    "cat": lambda: (lambda x, y: fl.cat((x, y), 1), fl.randn(501, 302), fl.randn(501, 77)),
    "sort": lambda: (lambda x: fl.sort(x, -1)[0], fl.randn(333, 300)),
    "sort of one line": lambda: (lambda x: fl.sort(x)[1], fl.randint(-300, 300, (70_001,))),
    "sort of long lines": lambda: (lambda x: fl.sort(x, -1, descending=True)[0], fl.randn(3, 40_001)),
    "unique": lambda: (lambda x: fl.unique(x, return_inverse=True)[1], fl.randint(0, 2000, (90_001,))),
    "cumsum": lambda: (lambda x: x.cumsum(0), fl.randn(300_001)),
    "max_pool": lambda: (lambda x: F.max_pool2d(x, 2), fl.randn(7, 20, 50, 51)),
    "fft": lambda: (fl.fft.rfft, fl.randn(200, 500)),
    "nonzero": lambda: (fl.nonzero, fl.randn(300_001) > 1),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_results_do_not_depend_on_the_number_of_threads(name):
    function, *inputs = KERNELS[name]()
    fl.set_num_threads(1)
    alone = function(*inputs)
    for threads in MANY:
        fl.set_num_threads(threads)
        together = function(*inputs)
        fl.testing.assert_close(
            together, alone, rtol=1e-4, atol=1e-4, msg=lambda text, n=threads: f"{n} threads: {text}"
        )
        assert fl.equal(function(*inputs), together)  # and is the same each time


def test_gradients_with_many_threads():
    model = fl.nn.Sequential(
        fl.nn.Embedding(300, 64), fl.nn.LayerNorm(64), fl.nn.Linear(64, 256), fl.nn.GELU(), fl.nn.Linear(256, 300)
    )
    ids = fl.randint(0, 300, (16, 40))

    def gradients():
        model.zero_grad()
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        return [p.grad.clone() for p in model.parameters()]

    fl.set_num_threads(1)
    alone = gradients()
    for threads in MANY:
        fl.set_num_threads(threads)
        fl.testing.assert_close(gradients(), alone)


@pytest.mark.parametrize("threads", MANY)
def test_compiled_programs_with_many_threads(threads):
    def function(x, w):
        y = F.gelu(F.layer_norm(x, (x.shape[1],))) @ w
        return y.softmax(-1), y.sum(), y.sum(0), y.amax(), (y * y).mean()

    x, w = fl.randn(513, 255), fl.randn(255, 129)
    fl.set_num_threads(threads)
    compiled = fl.compile(function)
    fl.testing.assert_close(compiled(x, w), function(x, w), rtol=1e-4, atol=1e-4)
    for first, second in zip(compiled(x, w), compiled(x, w)):
        assert fl.equal(first, second)


def test_scatters_in_copies_keep_signs_of_zeros():
    fl.set_num_threads(16)
    x = fl.full((600,), -0.0).scatter_add(0, fl.randint(0, 300, (70_000,)), fl.full((70_000,), -0.0))
    assert fl.signbit(x).all()


# ---------------------------------------------------------------- counters


def test_small_kernels_wake_nobody():
    fl.set_num_threads(16)
    a, b = fl.randn(64, 64), fl.randn(64, 64)
    small = counted(lambda: (a + b, a @ b, a.sum(), fl.softmax(a, 1), a.t().contiguous(), a.argmax(1)))
    assert small["regions"] == small["members"] == small["woken"] == 0


def test_a_small_compiled_step_enters_no_region():
    fl.set_num_threads(16)
    model = fl.nn.Sequential(fl.nn.Linear(32, 32), fl.nn.ReLU(), fl.nn.Linear(32, 4))
    optimizer = fl.optim.Adam(model.parameters())
    x = fl.randn(16, 32)

    @fl.compile
    def step(x):
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step(x), step(x)
    assert counted(lambda: step(x))["regions"] == 0


def test_threads_follow_the_work():
    """A region of a few microseconds has fewer pieces than one of milliseconds; none has more than there are threads."""
    fl.set_num_threads(16)
    some, many = fl.randn(40_000), fl.randn(3_000_000)
    few = counted(lambda: some + some)
    assert few["regions"] <= 1 and few["members"] <= 5
    all_of_them = counted(lambda: many + many)
    assert all_of_them["regions"] == 1 and all_of_them["members"] == 15


def test_one_thread_starts_no_worker():
    code = """
import flambeau as fl
fl.set_num_threads(1)
x = fl.randn(1000, 1000)
(x @ x + x).sum()
print(fl._C._thread_counters()["workers"], fl._C._thread_counters()["regions"])
"""
    assert _child(code).split() == ["0", "0"]


def test_idle_workers_sleep():
    fl.set_num_threads(4)
    x = fl.randn(2_000_000)
    x + x
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


# ---------------------------------------------------------------- the environment


def _child(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_environment_says_how_many_threads():
    code = "import flambeau as fl; print(fl.get_num_threads())"
    assert _child(code, OMP_NUM_THREADS="3") == "3"
    assert _child(code, OMP_NUM_THREADS="5,2") == "5"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_an_affinity_mask_limits_the_threads():
    code = """
import os
os.environ.pop("OMP_NUM_THREADS", None)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
import flambeau as fl
print(fl.get_num_threads())
"""
    assert _child(code) == "1"


class _Threads(fl.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        x = fl.randn(400_000)
        (x + x).sum()
        return fl.get_num_threads(), fl._C._thread_counters()["regions"]


def test_workers_of_a_loader_have_one_thread_each():
    x = fl.randn(400_000)
    x + x  # the parent has a pool
    before = fl._C._thread_counters()["regions"]
    for threads, regions in fl.utils.data.DataLoader(_Threads(), batch_size=None, num_workers=2):
        assert threads == 1 and regions == before


# ---------------------------------------------------------------- forks, callers at the same time, errors


def test_a_forked_child_starts_workers_of_its_own():
    fl.set_num_threads(4)
    x = fl.randn(600, 600)
    expected = x @ x + x
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        right = fl.equal(x @ x + x, expected) and fl._C._thread_counters()["workers"] == 3
        weight = fl.ones(8, 8, 3, 3)
        F.conv2d(fl.ones(8, 8, 64, 64), weight)  # oneDNN, too
        os.write(write, b"y" if right else b"n")
        os._exit(0)
    os.close(write)
    assert os.read(read, 1) == b"y"
    os.waitpid(pid, 0)
    assert fl.equal(x @ x + x, expected)


def test_callers_at_the_same_time_share_the_pool():
    fl.set_num_threads(8)
    inputs = [(fl.randn(300, 200), fl.randn(200, 250), fl.randn(4, 8, 40, 40), fl.randn(8, 8, 3, 3)) for _ in range(6)]

    def work(a, b, image, weight):
        return (a @ b).softmax(-1).sum(0), F.conv2d(image, weight), fl.cat([a, a]).exp().sum()

    expected = [work(*each) for each in inputs]
    wrong = []

    def caller(each, right):
        for _ in range(10):
            if not all(fl.equal(x, y) for x, y in zip(work(*each), right)):
                wrong.append(each)

    callers = [threading.Thread(target=caller, args=pair) for pair in zip(inputs, expected)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not wrong


def test_an_error_on_another_thread_reaches_the_caller():
    fl.set_num_threads(16)
    table, ids = fl.randn(100, 64), fl.zeros(50_000, dtype=fl.int64)
    ids[-1] = 1000
    with pytest.raises(IndexError, match="1000"):
        F.embedding(ids, table)
    assert fl.equal(F.embedding(ids[:-1], table)[0], table[0])  # the pool goes on
