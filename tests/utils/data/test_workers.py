"""Worker processes: the same batches, errors that surface at once, and nothing left behind."""

import faulthandler
import glob
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import flambeau as fl
from flambeau.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class Numbers(Dataset):
    def __init__(self, n, act=None):
        self.n, self.act = n, act

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.act is not None and i == self.n - 1:
            self.act()
        return i, fl.full((3,), float(i))


class Shards(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, 20, info.num_workers))


class Pictures(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return {"picture": fl.full((3, 64, 64), float(i)), "array": np.full((128, 128), i), "name": f"p{i}"}


def keep(samples):
    return samples


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_batches_are_those_of_one_process(start):
    data = Numbers(50)
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context=start)
    for got, expected in zip(loader, DataLoader(data, batch_size=8), strict=True):
        assert fl.equal(got[0], expected[0]) and fl.equal(got[1], expected[1])


def test_large_batches_come_in_shared_memory_and_use_no_descriptors():
    loader = DataLoader(Pictures(), batch_size=4, num_workers=2)
    before = open_files()
    batches = list(loader)
    for first, batch in zip((0, 4), batches, strict=True):
        assert batch["picture"].is_shared() and batch["picture"][:, 0, 0, 0].tolist() == [first + i for i in range(4)]
        assert batch["array"][1, 5, 5] == first + 1 and batch["name"][2] == f"p{first + 2}"
    assert open_files() <= before + 1
    batches[0]["picture"][0] = 7  # may be written like any tensor
    assert batches[0]["picture"][0, 0, 0, 0] == 7


def test_anything_that_can_be_pickled_is_sent():
    loader = DataLoader(Pictures(), batch_size=8, num_workers=1, collate_fn=keep)
    (samples,) = loader
    assert isinstance(samples[3]["array"], np.ndarray) and samples[3]["array"][0, 0] == 3
    assert samples[3]["picture"].shape == (3, 64, 64)
    text = DataLoader([("x" * 200_000, i) for i in range(3)], batch_size=1, num_workers=1, collate_fn=keep)
    assert [len(batch[0][0]) for batch in text] == [200_000] * 3


def test_views_of_a_dataset_are_sent_without_the_rest():
    class Rows(Dataset):
        memory = fl.arange(60_000.0).view(3, 20_000)

        def __len__(self):
            return 3

        def __getitem__(self, i):
            return self.memory[i]

    rows = list(DataLoader(Rows(), batch_size=None, num_workers=1))
    assert rows[2].untyped_storage().nbytes() == 80_000 and rows[2][0] == 40_000
    assert not Rows.memory.is_shared()


def test_long_lists_of_indices():
    loader = DataLoader(TensorDataset(fl.arange(300_000)), batch_size=100_000, num_workers=1, prefetch_factor=3)
    assert [batch[0][0].item() for batch in loader] == [0, 100_000, 200_000]


def test_streams_are_shared_out():
    loader = DataLoader(Shards(), batch_size=3, num_workers=2)
    assert sorted(i for batch in loader for i in batch.tolist()) == list(range(20))


def test_seeds_differ_between_workers_and_repeat_with_the_generator():
    class Random(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return fl.rand(1).item(), get_worker_info().seed

    def draw(seed):
        return [
            [x.tolist() for x in batch]
            for batch in DataLoader(Random(), num_workers=2, generator=fl.Generator().manual_seed(seed))
        ]

    first = draw(1)
    assert first == draw(1) and first != draw(2)
    assert first[0][1] != first[1][1] and first[0][0] != first[1][0]


def test_persistent_workers_stay():
    class Who(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return os.getpid()

    loader = DataLoader(Who(), num_workers=2, persistent_workers=True)
    first = {b.item() for b in loader}
    broken_off = iter(loader)
    next(broken_off)
    assert {b.item() for b in loader} == first and len(first) == 2
    streams = DataLoader(Shards(), batch_size=3, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert sorted(i for batch in streams for i in batch.tolist()) == list(range(20))


def test_out_of_order():
    others = multiprocessing.Event()

    class Slow(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            if i == 0:  # its worker has this and 2; the other comes to 3 when 1 is sent
                others.wait(120)
                time.sleep(0.5)
            elif i == 3:
                others.set()
            return i

    got = [b.item() for b in DataLoader(Slow(), num_workers=2, in_order=False)]
    assert sorted(got) == list(range(6)) and got[0] != 0
    assert [b.item() for b in DataLoader(Slow(), num_workers=2)] == list(range(6))


def test_init_functions():
    class Marked(Dataset):
        mark = None

        def __len__(self):
            return 2

        def __getitem__(self, i):
            return Marked.mark

    def mark(worker):
        Marked.mark = worker + 100

    assert [b.item() for b in DataLoader(Marked(), num_workers=2, worker_init_fn=mark)] == [100, 101]

    def fail(worker):
        raise KeyError("no")

    with pytest.raises(KeyError, match="worker process 0"):
        list(DataLoader(Marked(), num_workers=1, worker_init_fn=fail))


def boom():
    raise ValueError("broken sample")


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a}{b}")


def odd_boom():
    raise Unpicklable(1, 2)


def test_errors_come_with_their_traceback():
    with pytest.raises(ValueError, match=r"(?s)worker process \d.*broken sample.*") as caught:
        list(DataLoader(Numbers(5, boom), num_workers=2))
    assert "in boom" in str(caught.value)
    with pytest.raises(RuntimeError, match="Unpicklable"):
        list(DataLoader(Numbers(5, odd_boom), num_workers=1))
    with pytest.raises(Exception, match="pickle"):
        list(DataLoader([lambda: None], num_workers=1, collate_fn=keep))


@pytest.mark.parametrize(
    "act, word",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: (faulthandler.disable(), os.kill(os.getpid(), signal.SIGSEGV)), "SIGSEGV"),
        (lambda: os._exit(3), "code 3"),
    ],
)
def test_a_death_is_noticed(act, word):
    iterator = iter(DataLoader(Numbers(5, act), num_workers=2))
    with pytest.raises(RuntimeError, match=word):
        list(iterator)
    assert next(iterator, "nothing") == "nothing"  # and does not wait for ever


def test_timeout():
    with pytest.raises(RuntimeError, match=r"0\.2 seconds"):
        list(DataLoader(Numbers(1, lambda: time.sleep(2)), num_workers=1, timeout=0.2))


def test_breaking_off_ends_the_workers():
    loader = DataLoader(Numbers(1000), num_workers=2)
    for _ in loader:
        break
    iterator = iter(loader)
    pids = [worker.pid for worker in iterator._pool.workers]
    next(iterator)
    del iterator
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def run(program, **options):
    program = (
        "import os, sys, time, signal\nimport flambeau as fl\nfrom flambeau.utils.data import *\n"
        + textwrap.dedent(program)
    )
    environment = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, **options
    )


SLEEPY = """
class Sleepy(Dataset):
    def __len__(self): return 10000
    def __getitem__(self, i):
        if i > 4: time.sleep(0.2)
        return i
"""


def test_leaving_the_interpreter_with_a_live_iterator():
    done = run(SLEEPY + "iterator = iter(DataLoader(Sleepy(), num_workers=2)); print(next(iterator).item())")
    assert done.stdout.strip() == "0" and done.returncode == 0 and done.stderr == ""


def test_interrupt():
    program = SLEEPY + "for batch in DataLoader(Sleepy(), num_workers=2): print('going', flush=True)"
    program = (
        "import os, sys, time, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
        "import flambeau as fl\nfrom flambeau.utils.data import *\n" + program
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": ROOT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout.readline() == "going\n"
    os.killpg(child.pid, signal.SIGINT)  # as the terminal does: to the loader and its workers
    _, errors = child.communicate(timeout=120)
    assert child.returncode != 0 and errors.count("KeyboardInterrupt") == 1


def test_workers_end_with_a_loader_that_is_killed():
    done = run(
        SLEEPY
        + """
        iterator = iter(DataLoader(Sleepy(), num_workers=2))
        next(iterator)
        print(*(worker.pid for worker in iterator._pool.workers), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """.replace("\n        ", "\n")
    )
    pids = [int(pid) for pid in done.stdout.split()]
    deadline = time.monotonic() + 60
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "workers live on"
        time.sleep(0.05)
    assert not glob.glob("/dev/shm/*flambeau*")


class Filled(Dataset):
    """Samples of 64 KB with their number in every element, and the worker's count of open files."""

    def __len__(self):
        return 200

    def __getitem__(self, i):
        return fl.full((16384,), float(i)), len(os.listdir("/proc/self/fd"))


def test_memory_is_used_again_but_never_while_it_is_looked_at():
    kept, places, files = [], set(), []
    for number, (batch, count) in enumerate(DataLoader(Filled(), batch_size=2, num_workers=2)):
        assert batch[0, 0] == 2 * number and batch[1, -1] == 2 * number + 1
        places.add(batch.data_ptr())
        files.append(count.max().item())
        if number % 10 == 0:
            kept.append((number, batch, batch[1].numpy()))
    assert len(places) < 60  # of a hundred batches
    assert max(files) < min(files) + 40
    for number, batch, array in kept:
        assert (batch[0] == 2 * number).all() and (array == 2 * number + 1).all()


def test_many_batches_may_be_kept():
    batches = list(DataLoader(Filled(), batch_size=1, num_workers=1))
    for number, (batch, _) in enumerate(batches):
        assert (batch == number).all()


def test_a_forked_child_keeps_seeing_the_batch_it_was_forked_with():
    iterator = iter(DataLoader(Filled(), batch_size=2, num_workers=1))
    batch, _ = next(iterator)
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(ready, 1)
        os._exit(0 if bool((batch[1] == 1).all()) else 1)
    for _ in range(50):
        batch, _ = next(iterator)
    os.write(go, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(ready)
    os.close(go)


def test_batches_can_be_sent_on():
    from flambeau import multiprocessing

    ours, theirs = multiprocessing.Pipe()
    for number, (batch, _) in enumerate(DataLoader(Filled(), batch_size=2, num_workers=1)):
        ours.send(batch)
        received = theirs.recv()
        assert (received[0] == 2 * number).all()
        batch.add_(1)
        assert (received[0] == 2 * number + 1).all()
        if number == 10:
            break


def test_workers_that_should_persist_are_replaced_after_a_death():
    loader = DataLoader(Numbers(20), num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 20
    victim = loader._iterator._workers[0]
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    assert len(list(loader)) == 20
