"""What a registered device may bring, and what follows from it."""

import ctypes

import pytest

import flambeau as fl
from flambeau import backends
from flambeau.backends import register, register_device
from flambeau.backends.reference import pointwise, reduction


def make(name, **options):
    return register_device(name, pointwise=pointwise, reduction=reduction, **options)


def test_memory_and_a_copy_are_enough_for_tensors():
    blocks, copies = {}, []

    def allocate(size):
        block = ctypes.create_string_buffer(max(size, 1))
        blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def copy(dst, src):
        assert dst.is_contiguous() and src.is_contiguous() and dst.dtype is src.dtype
        copies.append((dst.device.type, src.device.type))
        ctypes.memmove(dst.data_ptr(), src.data_ptr(), src.numel() * src.element_size())

    make("memchip", allocate=allocate, free=lambda address, size: blocks.pop(address), copy=copy)
    x = fl.arange(6.0).reshape(2, 3)
    y = x.to("memchip")
    assert y.t().cpu().tolist() == x.t().tolist() and copies[0] == ("memchip", "cpu")
    y[:, 1] = fl.tensor([7.0, 8.0])  # strided, from the host
    assert y.to(fl.int64).tolist() == [[0, 7, 2], [3, 8, 5]]
    held = len(blocks)
    del y
    assert len(blocks) < held


def test_expressions_have_a_stable_key_and_the_name_of_their_record():
    seen = []

    def hook(expr, operands, out, dtype):
        seen.append((expr.name, expr.key))
        pointwise(expr, operands, out, dtype)

    register_device("keychip", pointwise=hook, reduction=reduction)
    x = fl.ones(3, device="keychip")
    seen.clear()
    _ = x + x, x + x, x * x
    assert [name for name, _ in seen] == ["add.Tensor", "add.Tensor", "mul.Tensor"]
    assert seen[0] == seen[1] and seen[0][1] != seen[2][1]


def test_what_the_device_refuses_is_a_matter_of_policy():
    def refusing(expr, operands, out, dtype):
        if expr.name == "exp":
            raise NotImplementedError("no exponentials")
        pointwise(expr, operands, out, dtype)

    strict = register_device("strictchip", pointwise=refusing, reduction=reduction)
    lenient = register_device("lenientchip", pointwise=refusing, reduction=reduction, host_fallback=True)
    with pytest.raises(NotImplementedError, match="strictchip"):
        fl.ones(2, device="strictchip").exp()
    assert strict.host_calls == 0
    fl.testing.assert_close(fl.ones(2, device="lenientchip").exp().cpu(), fl.ones(2).exp())
    assert lenient.host_calls == 1 and backends.registered["lenientchip"].host_calls == 1


def test_launches_are_counted():
    device = make("countchip")
    x = fl.ones(4, device="countchip")
    before = device.launches
    _ = (x + x).sum()
    assert device.launches == before + 2


def test_a_decorated_kernel():
    make("decochip")

    @register(device="decochip", op="mm")
    def mm(self, mat2):
        return fl.zeros(self.shape[0], mat2.shape[1], device=self.device) + 42

    assert (fl.ones(2, 2, device="decochip") @ fl.ones(2, 2, device="decochip")).tolist() == [[42, 42], [42, 42]]


def test_a_kernel_that_refuses_is_followed_by_the_definition():
    make("secondchip")

    @register(device="secondchip", op="tril")
    def refuse(*args, **kwargs):
        raise NotImplementedError("not today")

    assert fl.ones(2, 2, device="secondchip").tril().tolist() == [[1, 0], [1, 1]]
    make("thirdchip", kernels={"relu": lambda self: self * 0 + 5})
    assert fl.ones(1, device="thirdchip").relu().tolist() == [5]


def test_a_kernel_that_refuses_is_followed_by_the_hook():
    chip, taken = make("refusingchip"), []

    @register(device="refusingchip", op="add")
    def add(self, other, *, alpha=1):
        if not isinstance(other, fl.Tensor) or other.dim() == 0:
            raise NotImplementedError("numbers")
        taken.append(other.shape)
        return self.clone()  # shows who computed

    @register(device="refusingchip", op="sum.dim_IntList")
    def sum_over(self, dim=None, keepdim=False, *, dtype=None):
        raise NotImplementedError("sums")

    x = fl.ones(2, 3, device="refusingchip")
    assert (x + x).tolist() == x.tolist() and len(taken) == 1
    assert (x + 1).tolist() == fl.full((2, 3), 2.0).tolist() and x.sum(1).tolist() == [3, 3]
    assert chip.host_calls == 0


def test_products_by_one_function():
    shapes = []

    def product(a, b, out):
        shapes.append(tuple(out.shape))
        out.copy_(a.cpu() @ b.cpu())

    make("productchip", products=product)
    x = fl.randn(2, 3)
    fl.testing.assert_close((x.to("productchip") @ x.t().to("productchip")).cpu(), x @ x.t())
    assert shapes == [(2, 2)]


def test_updates_are_one_hook():
    calls = []

    def update(plan, lists, numbers):
        calls.append((plan.name, len(numbers), sorted(lists)))
        raise NotImplementedError  # then by the pointwise hook

    make("updatechip", update=update, host_fallback=True)
    model = fl.nn.Linear(3, 2).to("updatechip")
    twin = fl.nn.Linear(3, 2)
    twin.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
    for m, device in ((model, "updatechip"), (twin, "cpu")):
        optimizer = fl.optim.AdamW(m.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            m(fl.ones(1, 3, device=device)).sum().backward()
            optimizer.step()
    assert calls[0][1] == 2
    for a, b in zip(model.parameters(), twin.parameters()):
        fl.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-4, atol=1e-5)


def test_kernels_run_below_default_device_and_modes():
    places = []

    def hook(expr, operands, out, dtype):
        places.append(fl.empty(1).device.type)
        pointwise(expr, operands, out, dtype)

    register_device("modechip", pointwise=hook, reduction=reduction)
    x = fl.ones(2, device="modechip")
    with fl.device("modechip"):
        assert (x + 1).tolist() == [2, 2]
    assert set(places) == {"cpu"}


def test_more_than_eight_devices():
    for number in range(20):
        make(f"manychip{number}")
    x = fl.ones(2, device="manychip19") + fl.ones(2, device="manychip19")
    assert x.tolist() == [2, 2] and x.device.type == "manychip19"
    y = fl.softmax(fl.ones(2, 2, device="manychip18"), 1)
    assert y.tolist() == [[0.5, 0.5], [0.5, 0.5]] and y.device.type == "manychip18"
    with pytest.raises(RuntimeError, match="one device"):
        x + fl.ones(2, device="manychip18")


def test_the_module_of_a_device():
    make("modulechip", count=2, host_fallback=True)
    module = fl.modulechip
    assert module.is_available() and module.device_count() == 2 and module.current_device() == 0
    module.manual_seed(3)
    first = fl.rand(3, device="modulechip")
    module.manual_seed(3)
    assert first.tolist() == fl.rand(3, device="modulechip").tolist()
    event, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    event.record()
    end.record()
    assert event.elapsed_time(end) >= 0
    with fl.autocast("modulechip", dtype=fl.bfloat16):
        assert (fl.ones(2, 2, device="modulechip") @ fl.ones(2, 2, device="modulechip")).dtype is fl.bfloat16
    generator = fl.Generator("modulechip").manual_seed(3)
    assert fl.rand(3, device="modulechip", generator=generator).tolist() == first.tolist()


def test_a_device_with_memory_of_its_own_is_an_accelerator():
    device = make("accchip", accelerator=True)
    try:
        if not fl.cuda.is_available():
            assert fl.accelerator.current_accelerator().type in backends.registered
            assert fl.accelerator.device_count() == 1
    finally:
        device.accelerator = False


def test_an_entry_point_is_loaded_when_its_device_is_named(monkeypatch):
    class Entry:
        def load(self):
            return lambda: make("entrychip")

    backends._entry_points.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [type("E", (Entry,), {"name": "entrychip"})()])
    try:
        assert fl.ones(2, device="entrychip").tolist() == [1, 1]
    finally:
        backends._entry_points.cache_clear()
    with pytest.raises(RuntimeError, match="known device"):
        fl.device("nosuchchip")


def test_the_first_device_of_a_kind_needs_no_number():
    make("firstchip", count=2)
    x, y = fl.ones(2, device="firstchip"), fl.ones(2, device="firstchip:0")
    assert (x + y).tolist() == [2, 2] and x.device == y.device and hash(x.device) == hash(y.device)
    assert x.get_device() == 0 and fl.device("firstchip:1") != x.device
    assert x.to("firstchip:0") is x and y.to("firstchip") is y
    with pytest.raises(RuntimeError, match="one device"):
        x + fl.ones(2, device="firstchip:1")


def test_the_reference_device_by_its_whole_name():
    assert fl.ones(2, device="reference").device.type == "ref"
    assert backends.registered["reference"] is backends.registered["ref"]


def test_events_are_numbered_when_they_are_recorded():
    make("eventchip")
    stream = fl.eventchip.Stream()
    first, second = stream.record_event(), stream.record_event()
    assert fl.eventchip.Event().event_id == 0 < first.event_id < second.event_id


def test_memory_is_counted_and_a_full_device_gives_back_what_its_pool_keeps():
    blocks, room = {}, 4096
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )

    def allocate(size):
        if sum(blocks.values()) + size > room:
            raise MemoryError("[smallchip] expected room")
        address = libc.malloc(size)
        blocks[address] = size
        return address

    def free(address, size):
        assert blocks.pop(address) == size
        libc.free(address)

    register_device("smallchip", allocate=allocate, free=free, copy=lambda dst, src: None, pooled=True)
    x = fl.empty(512, device="smallchip")
    assert fl.smallchip.memory_allocated() == 2048 and fl.smallchip.memory_reserved() == 2048
    del x
    assert fl.smallchip.memory_allocated() == 0 and fl.smallchip.max_memory_allocated() == 2048
    assert fl.smallchip.memory_reserved() == 2048  # kept
    y = fl.empty(1024, device="smallchip")  # fits only without it
    assert list(blocks.values()) == [4096]
    with pytest.raises(MemoryError):
        fl.empty(1024, device="smallchip")
    fl.smallchip.reset_peak_memory_stats()
    stats = fl.smallchip.memory_stats()
    assert stats["allocated_bytes.all.current"] == stats["allocated_bytes.all.peak"] == y.untyped_storage().nbytes()


def test_blocks_on_one_of_several_devices():
    make("manychip", count=3)
    x = fl.ones(2, device="manychip:2")
    with fl.manychip.device(1), fl.manychip.device_of(fl.ones(1)), fl.manychip.device(None), fl.manychip.device(-1):
        assert fl.manychip.current_device() == 1
        with fl.manychip.device_of(x), fl.manychip.device("manychip:0"):
            assert fl.manychip.current_device() == 0
    assert fl.manychip.current_device() == 0
    with pytest.raises(RuntimeError, match="one of 3 devices"):
        fl.manychip.device(5).__enter__()


def test_a_device_without_double_precision_makes_sequences_and_draws():
    single = make("singlechip", dtypes=[fl.float32, fl.int64, fl.bool], host_fallback=True)
    for sequence in (
        lambda d: fl.linspace(0, 1, 5, device=d), lambda d: fl.logspace(0, 1, 5, device=d),
        lambda d: fl.arange(0, 1, 0.1, device=d), lambda d: fl.linspace(0, 9, 4, dtype=fl.int64, device=d),
    ):  # fmt: skip
        fl.testing.assert_close(sequence("singlechip").cpu(), sequence("cpu"))
    scaler = fl.amp.GradScaler("singlechip")
    scaler.scale(fl.ones((), device="singlechip", requires_grad=True)).backward()
    assert fl.multinomial(fl.tensor([0.0, 1.0, 1.0]).to("singlechip"), 2).sort().values.tolist() == [1, 2]
    assert fl.bernoulli(fl.ones(3, device="singlechip")).tolist() == [1, 1, 1]
    assert not any("float64" in why for why in single.host_reasons.values())
    assert (2.0 - fl.ones(2, device="singlechip", dtype=fl.float64)).tolist() == [1, 1]  # numbers go to the host, too
    assert any("float64" in why for why in single.host_reasons.values())
