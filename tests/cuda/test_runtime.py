"""The device runtime: memory, streams, events, graphs, copies, errors."""

import gc
import threading

import pytest

import flambeau as fl


def test_the_device_introduces_itself():
    assert fl.cuda.device_count() >= 1 and fl.cuda.current_device() == 0
    found = fl.cuda.get_device_properties(0)
    assert found.total_memory > 0 and fl.cuda.get_device_name() == found.name
    assert fl.cuda.get_device_capability() >= (7, 0)
    free, total = fl.cuda.mem_get_info()
    assert 0 < free <= total
    assert fl.empty(1, device="cuda").device == fl.device("cuda:0")


def test_copies_between_host_and_device():
    x = fl.arange(24).reshape(2, 3, 4).to(fl.float32)
    there = x.to("cuda")
    assert there.is_cuda and there.cpu().tolist() == x.tolist()
    assert there.permute(2, 0, 1).cpu().tolist() == x.permute(2, 0, 1).tolist()
    assert x.permute(2, 0, 1).cuda().contiguous().cpu().tolist() == x.permute(2, 0, 1).tolist()
    assert there.to("cpu", fl.int32).tolist() == x.to(fl.int32).tolist()
    target = fl.zeros(3, 2, 4)
    target.transpose(0, 1).copy_(there)
    assert target.transpose(0, 1).tolist() == x.tolist()
    assert fl.zeros(2, 3, 4, device="cuda").copy_(x[0, 0]).cpu()[1, 2].tolist() == x[0, 0].tolist()
    assert there[1, 2, 3].item() == 23


@pytest.mark.parametrize("shape", [(33, 70), (5, 33, 70), (64, 64)])
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.int64])
def test_transposed_copies(shape, dtype):
    x = fl.arange(fl.empty(shape).numel()).reshape(shape).to(dtype)
    assert (x.cuda().transpose(-1, -2).contiguous().cpu() == x.transpose(-1, -2)).all()


def test_pinned_memory_and_asynchronous_copies():
    x = fl.randn(1000).pin_memory()
    assert x.is_pinned() and not fl.randn(3).is_pinned()
    there = x.to("cuda", non_blocking=True)
    back = fl.empty(1000).pin_memory()
    back.copy_(there, non_blocking=True)
    fl.cuda.synchronize()
    assert (back == x).all()


def test_memory_is_given_out_again():
    fl.cuda.empty_cache()
    before = fl.cuda.memory_allocated()
    x = fl.empty(1 << 20, device="cuda")
    address = x.data_ptr()
    assert fl.cuda.memory_allocated() == before + (4 << 20)
    del x
    assert fl.cuda.memory_allocated() == before
    y = fl.empty(1 << 20, device="cuda")
    assert y.data_ptr() == address
    assert fl.cuda.max_memory_allocated() >= before + (4 << 20)
    assert fl.cuda.memory_reserved() >= fl.cuda.memory_allocated()
    del y
    fl.cuda.empty_cache()
    fl.cuda.reset_peak_memory_stats()
    assert fl.cuda.max_memory_allocated() == fl.cuda.memory_allocated()
    assert "allocated" in fl.cuda.memory_summary()


def test_blocks_are_split_and_merged():
    fl.cuda.empty_cache()
    parts = [fl.empty(1000, device="cuda") for _ in range(64)]
    held = sum(s["total_size"] for s in fl.cuda.memory_snapshot())
    assert held == fl.cuda.memory_reserved()
    for t in parts[::2]:
        del t
    del parts
    gc.collect()
    whole = [b for s in fl.cuda.memory_snapshot() for b in s["blocks"] if b["state"] == "inactive"]
    assert any(b["size"] >= 64 * 4096 for b in whole)


def test_out_of_memory_is_survived():
    total = fl.cuda.mem_get_info()[1]
    kept = fl.ones(1000, device="cuda")
    with pytest.raises(fl.cuda.OutOfMemoryError, match="out of memory") as error:
        fl.empty(total * 2, dtype=fl.uint8, device="cuda")
    assert "live blocks" in str(error.value)
    assert (kept + 1).sum().item() == 2000
    # What is cached is given back before an allocation fails.
    big = fl.empty(int(total * 0.6), dtype=fl.uint8, device="cuda")
    del big
    other = fl.empty(int(total * 0.7), dtype=fl.uint8, device="cuda")
    del other
    fl.cuda.empty_cache()


def test_streams_and_events():
    side = fl.cuda.Stream()
    assert fl.cuda.current_stream() == fl.cuda.default_stream()
    x = fl.randn(1000, 1000, device="cuda")
    start, end = fl.cuda.Event(enable_timing=True), fl.cuda.Event(enable_timing=True)
    start.record()
    with fl.cuda.stream(side):
        assert fl.cuda.current_stream() == side
        side.wait_event(start)
        y = x @ x
        x.record_stream(side)
    fl.cuda.current_stream().wait_stream(side)
    end.record()
    end.synchronize()
    assert start.query() and end.query() and start.elapsed_time(end) >= 0
    assert fl.allclose(y, x @ x, rtol=1e-3, atol=1e-2)


def test_memory_used_on_another_stream_waits_for_it():
    side = fl.cuda.Stream()
    x = fl.ones(1 << 22, device="cuda")
    side.wait_stream(fl.cuda.current_stream())
    with fl.cuda.stream(side):
        for _ in range(50):
            y = x * 2
    x.record_stream(side)
    address = x.data_ptr()
    del x
    z = fl.zeros(1 << 22, device="cuda")
    side.synchronize()
    assert y.sum().item() == 2 * (1 << 22)
    assert z.sum().item() == 0 and address


def test_graphs_replay_on_new_values():
    x = fl.ones(100, device="cuda")
    w = fl.randn(100, 100, device="cuda")
    side = fl.cuda.Stream()
    side.wait_stream(fl.cuda.current_stream())
    with fl.cuda.stream(side):
        for _ in range(2):
            (w @ x).relu().sum()
    fl.cuda.current_stream().wait_stream(side)
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        h = (w @ x).relu()
        y = h.sum()
    for factor in (1.0, 2.0, -3.0):
        x.fill_(factor)
        graph.replay()
        expected = (w @ x).relu().sum().item()
        assert y.item() == pytest.approx(expected, rel=1e-4)
    graph.reset()


def test_whole_training_steps_as_a_graph():
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(8, 16), fl.nn.GELU(), fl.nn.Linear(16, 4)).cuda()
    optimizer = fl.optim.SGD(model.parameters(), lr=0.05)
    x, target = fl.randn(32, 8, device="cuda"), fl.randn(32, 4, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = fl.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    side = fl.cuda.Stream()
    side.wait_stream(fl.cuda.current_stream())
    with fl.cuda.stream(side):
        for _ in range(3):
            step()
    fl.cuda.current_stream().wait_stream(side)
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        loss = step()
    graph.replay()
    first = loss.item()
    for _ in range(50):
        graph.replay()
    assert loss.item() < first


def test_random_numbers_are_those_of_the_cpu():
    for make in (
        lambda d: fl.rand(1000, device=d),
        lambda d: fl.randn(1000, device=d),
        lambda d: fl.randint(0, 1000, (500,), device=d),
        lambda d: fl.randn(77, dtype=fl.float64, device=d),
        lambda d: fl.empty(300, device=d).exponential_(2.0),
        lambda d: fl.empty(300, device=d).bernoulli_(0.3),
        lambda d: fl.randperm(50, device=d),
    ):
        fl.manual_seed(7)
        host = make("cpu")
        fl.manual_seed(7)
        assert fl.allclose(make("cuda").cpu().to(fl.float64), host.to(fl.float64), rtol=1e-5, atol=1e-6)
    state = fl.cuda.get_rng_state()
    a = fl.rand(5, device="cuda")
    fl.cuda.set_rng_state(state)
    assert (fl.rand(5, device="cuda") == a).all()


def test_an_index_out_of_bounds_is_reported():
    x = fl.ones(4, device="cuda")
    with pytest.raises(IndexError, match="out of bounds"):
        x[fl.tensor([9], device="cuda")].cpu()
    assert (x + 1).tolist() == [2, 2, 2, 2]


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="device"):
        fl.ones(3, device="cuda") + fl.ones(3)
    with pytest.raises(RuntimeError, match="device"):
        fl.ones(3, 3, device="cuda") @ fl.ones(3, 3)
    assert (fl.ones(3, device="cuda") + fl.tensor(2.0)).tolist() == [3, 3, 3]


def test_an_operator_without_kernel_says_so():
    with pytest.raises(NotImplementedError, match="CUDA"):
        fl.linalg.ldl_factor(fl.eye(3, dtype=fl.complex64, device="cuda"), hermitian=True)


def test_repeated_launches_see_their_own_arguments():
    """From the second launch on a kernel is a graph whose parameters are replaced."""
    for n in (5, 5, 1000, 1000, 5, 70000):
        x = fl.arange(n, device="cuda", dtype=fl.float32)
        assert (x * 2.0 + n).cpu().tolist() == [2.0 * i + n for i in range(n)]
    totals = [fl.zeros(1, device="cuda") for _ in range(3)]
    for i in range(300):
        totals[i % 3].add_(i)
    assert [t.item() for t in totals] == [sum(range(k, 300, 3)) for k in range(3)]


def test_repeated_launches_on_streams_and_in_threads():
    streams = [fl.cuda.Stream() for _ in range(2)]
    results = [fl.zeros(1000, device="cuda") for _ in streams]
    fl.cuda.synchronize()
    for i in range(100):
        stream = streams[i // 25 % 2 if i < 50 else i % 2]  # in runs, then by turns
        with fl.cuda.stream(stream):
            results[streams.index(stream)].add_(1)
    fl.cuda.synchronize()
    assert sum(r[7].item() for r in results) == 100

    def work(out):
        t = fl.zeros(64, device="cuda")
        for _ in range(200):
            t = t + 1
        out.append(t.sum().item())

    found = []
    threads = [threading.Thread(target=work, args=(found,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [200 * 64] * 4


def test_a_captured_launch_is_the_graphs_own():
    x = fl.zeros(10, device="cuda")
    for _ in range(3):
        x.add_(1)
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        x.add_(1)
    x.zero_()
    x.add_(5)
    graph.replay()
    graph.replay()
    assert x.tolist() == [7.0] * 10


def captured(work):
    side = fl.cuda.Stream()
    side.wait_stream(fl.cuda.current_stream())
    with fl.cuda.stream(side):
        work()
    fl.cuda.current_stream().wait_stream(side)
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        made = work()
    return graph, made


def test_graphs_draw_new_random_numbers_at_each_replay():
    x = fl.ones(1000, device="cuda")

    def work():
        return fl.nn.functional.dropout(x, 0.5), fl.randn(100, device="cuda"), fl.rand(7, device="cuda").double()

    graph, made = captured(work)
    fl.manual_seed(3)
    found = []
    for _ in range(3):
        graph.replay()
        found.append([t.clone() for t in made])
    after = fl.rand(5, device="cuda")
    fl.manual_seed(3)
    for run in found:  # the numbers of eager mode, one run after the other
        assert all(fl.equal(a, b) for a, b in zip(run, work()))
    assert fl.equal(after, fl.rand(5, device="cuda"))
    assert not fl.equal(found[0][1], found[1][1])


def test_compiled_functions_draw_inside_of_graphs():
    x = fl.ones(1000, device="cuda")
    run = fl.compile(lambda x: fl.nn.functional.dropout(x, 0.5) + 1)
    run(x)
    graph, made = captured(lambda: run(x))
    kept = []
    for _ in range(2):
        graph.replay()
        kept.append(made.clone())
    assert not fl.equal(*kept)


def test_factories_pin():
    for made in (
        fl.empty(3, 5, pin_memory=True),
        fl.zeros(4, pin_memory=True),
        fl.full((2,), 3.0, pin_memory=True),
        fl.zeros_like(fl.ones(2, 3), pin_memory=True),
        fl.arange(4, pin_memory=True),
    ):
        assert made.is_pinned() and made.device.type == "cpu"
        assert made.cuda(non_blocking=True).cpu().tolist() == made.tolist()
    with pytest.raises(RuntimeError, match="pin_memory"):
        fl.empty(2, device="cuda", pin_memory=True)


def test_arrays_of_other_libraries():
    x = fl.arange(6.0, device="cuda").view(2, 3)
    assert x.__dlpack_device__() == (2, 0)
    shared = fl.from_dlpack(x)
    shared += 1
    assert shared.data_ptr() == x.data_ptr() and x.tolist() == [[1, 2, 3], [4, 5, 6]]
    side = fl.cuda.Stream()
    with fl.cuda.stream(side):
        assert fl.from_dlpack(x.t()).sum().item() == 21
    found = x.t().__cuda_array_interface__
    assert found["shape"] == (3, 2) and found["typestr"] == "<f4" and found["strides"] == (4, 12)
    assert found["data"] == (x.data_ptr(), False)
    assert not hasattr(fl.ones(1), "__cuda_array_interface__")
