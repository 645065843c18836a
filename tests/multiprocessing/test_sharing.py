"""Tensors between processes: shared, not copied, by every start method, and nothing left behind."""

import gc
import os
import signal
import time

import pytest

import flambeau as fl
import flambeau.multiprocessing as mp

METHODS = ["fork", "spawn", "forkserver"]


def add_one(tensor, done):
    tensor += 1
    done.put(bool(tensor.is_shared()))


def echo(inbox, outbox):
    while (item := inbox.get()) is not None:
        outbox.put(item)
    outbox.close()
    outbox.join_thread()
    time.sleep(0.3)  # the receiver fetches descriptors from here


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_share_memory_moves_the_storage_below_all_views():
    base = fl.arange(6.0)
    view = base[2:]
    assert not base.is_shared()
    assert base.share_memory_() is base
    assert base.is_shared() and view.is_shared() and view.untyped_storage().is_shared()
    view[0] = 9
    assert base.tolist() == [0, 1, 9, 3, 4, 5]
    before = base.data_ptr()
    base.share_memory_()
    assert base.data_ptr() == before
    for odd in (fl.empty(0), fl.tensor(1.0)):
        odd.share_memory_()
    with pytest.raises(RuntimeError, match="only available on CPU"):
        fl.empty(3, device="meta").share_memory_()
    assert (base * 2).is_shared() is False
    with pytest.raises(RuntimeError, match="resize_"):
        base.resize_(100)


def test_gradients_reach_shared_parameters():
    layer = fl.nn.Parameter(fl.ones(3))
    layer.share_memory_()
    (layer * 2).sum().backward()
    assert layer.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("method", METHODS)
def test_arguments_are_shared(method):
    context = mp.get_context(method)
    done = context.SimpleQueue()
    tensor = fl.zeros(1000)
    tensor.share_memory_()
    process = context.Process(target=add_one, args=(tensor, done))
    process.start()
    assert done.get() is True
    process.join()
    assert tensor.sum() == 1000


def test_forked_children_write_to_shared_tensors():
    shared, own = fl.zeros(3).share_memory_(), fl.zeros(3)
    pid = os.fork()
    if pid == 0:
        shared.fill_(5)
        own.fill_(5)
        os._exit(0)
    os.waitpid(pid, 0)
    assert shared.tolist() == [5, 5, 5] and own.tolist() == [0, 0, 0]


@pytest.mark.parametrize("method", METHODS)
def test_queues_carry_tensors_without_copying(method):
    context = mp.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=echo, args=(inbox, outbox))
    process.start()
    tensor = fl.arange(10_000.0)
    for value in (tensor, tensor[10:20].view(2, 5), fl.nn.Parameter(fl.ones(3)), fl.ones(2, dtype=fl.bfloat16)):
        inbox.put(value)
        back = outbox.get(timeout=120)
        assert fl.equal(back, value) and type(back) is type(value) and back.requires_grad == value.requires_grad
        back.detach()[...] = 7
        assert (value == 7).all()
    inbox.put({"a": [fl.ones(2), "text"], "storage": fl.ones(2).storage(), "none": fl.empty(0, 3)})
    back = outbox.get(timeout=120)
    assert back["a"][1] == "text" and back["storage"].tolist() == [1, 1] and back["none"].shape == (0, 3)
    inbox.put(None)
    process.join()


def test_a_tensor_received_twice_is_one_storage():
    ours, theirs = mp.Pipe()
    tensor = fl.arange(4.0)
    ours.send([tensor, tensor[1:]])
    first = theirs.recv()
    ours.send(tensor)
    second = theirs.recv()
    first[0][1] = 42
    assert first[1][0] == 42 and second[1] == 42 and tensor[1] == 42


def test_results_of_operations_are_refused():
    ours, _ = mp.Pipe()
    with pytest.raises(RuntimeError, match="detach"):
        ours.send(fl.ones(2, requires_grad=True) * 2)


def square(tensor):
    return tensor * tensor


def test_pool():
    with mp.get_context("fork").Pool(2) as pool:
        assert [t.item() for t in pool.map(square, [fl.tensor(float(i)) for i in range(5)])] == [0, 1, 4, 9, 16]


def test_descriptors_are_given_back():
    gc.collect()
    before = open_files()
    for _ in range(50):
        fl.zeros(10).share_memory_()
    gc.collect()
    assert open_files() <= before
    ours, theirs = mp.Pipe()
    mp.set_sharing_strategy("file_system")
    try:
        kept = []
        for _ in range(20):
            ours.send(fl.zeros(100))
            kept.append(theirs.recv())
        gc.collect()
        assert open_files() < before + 15
    finally:
        mp.set_sharing_strategy("file_descriptor")
    assert mp.get_sharing_strategy() == "file_descriptor"
    with pytest.raises(ValueError):
        mp.set_sharing_strategy("smoke signals")


def hold_and_wait(tensor, ready):
    tensor.share_memory_()
    ready.put(1)
    time.sleep(1000)


def test_nothing_is_left_after_a_kill():
    context = mp.get_context("fork")
    ready = context.SimpleQueue()
    process = context.Process(target=hold_and_wait, args=(fl.zeros(1_000_003), ready))
    process.start()
    ready.get()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not [entry.name for entry in os.scandir("/dev/shm") if entry.stat().st_size == 4_000_012]


def fails(rank, tensor):
    tensor[rank] = rank + 1
    if rank == 1:
        raise ValueError("rank one has no luck")


def fills(rank, tensor):
    tensor[rank] = rank + 1


def dies(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)


@pytest.mark.parametrize("method", METHODS)
def test_start_processes(method):
    tensor = fl.zeros(2).share_memory_()
    assert mp.start_processes(fills, (tensor,), nprocs=2, start_method=method) is None
    assert tensor.tolist() == [1, 2]


def test_failures_of_started_processes():
    with pytest.raises(mp.ProcessRaisedException, match="no luck") as caught:
        mp.start_processes(fails, (fl.zeros(2),), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="SIGKILL") as caught:
        mp.start_processes(dies, nprocs=2, start_method="fork")
    assert caught.value.exit_code == -9
    context = mp.spawn(fills, (fl.zeros(1),), nprocs=1, join=False)
    assert len(context.pids()) == 1
    while not context.join():
        pass


def test_arrays_stay_valid_when_the_storage_moves():
    tensor = fl.arange(100_000.0)
    array = tensor.numpy()
    tensor.share_memory_()
    assert array[-1] == 99_999 and tensor[-1] == 99_999
    lent = fl.arange(4.0)
    array = lent.numpy()
    with pytest.raises(RuntimeError, match="resize_"):
        lent.resize_(100_000)
    assert array.tolist() == [0, 1, 2, 3]


def test_forking_while_another_thread_allocates():
    import threading

    stop = threading.Event()

    def churn():
        while not stop.is_set():
            fl.empty(100_000)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                fl.ones(200_000).sum()
                os._exit(0)
            deadline = time.monotonic() + 120
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                assert time.monotonic() < deadline, "the child hangs"
                time.sleep(0.001)
    finally:
        stop.set()
        thread.join()


def test_older_ways_to_make_shared_storages(tmp_path):
    rows = [fl.full((3,), float(i)) for i in range(4)]
    for storage in (rows[0].storage()._new_shared(12), rows[0]._typed_storage()._new_shared(12, device="cpu")):
        out = rows[0].new(storage).resize_(4, 3)
        assert fl.stack(rows, 0, out=out).is_shared() and out[3].tolist() == [3, 3, 3]
    descriptor, size = rows[0].untyped_storage()._share_fd_cpu_()
    again = fl.UntypedStorage._new_shared_fd_cpu(descriptor, size)
    os.close(descriptor)
    again.fill_(0)
    assert rows[0].tolist() == [0, 0, 0]
    (tmp_path / "f").write_bytes(bytes(8))
    assert fl.FloatStorage.from_file(str(tmp_path / "f"), False, 2).tolist() == [0, 0]


def _send_and_end(queue, linger):
    queue.put(fl.arange(3.0))
    time.sleep(linger)


@pytest.mark.parametrize("linger", [0, 0.3])  # sent while the child ends, or before
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_child_sent_last_can_still_be_fetched(method, linger):
    context = fl.multiprocessing.get_context(method)
    queue = context.Queue()
    children = [context.Process(target=_send_and_end, args=(queue, linger)) for _ in range(3)]
    for child in children:
        child.start()
    time.sleep(2 * linger)
    assert [queue.get(timeout=120).tolist() for _ in children] == [[0, 1, 2]] * 3
    for child in children:
        child.join()
        assert child.exitcode == 0
