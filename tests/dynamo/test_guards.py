"""No wrong reuse: each thing a capture relied on is changed in turn, and the result is right every time."""

import types

import pytest

import flambeau as fl
from flambeau import nn

GLOBAL = 2
TABLE = {"a": 1, "b": [1, 2]}
MODULE = types.ModuleType("made_up")
MODULE.value = 3


class Box:
    factor = 2

    def __init__(self, value):
        self.value = value
        self.items = [1, 2]

    def apply(self, x):
        return x * self.value * self.factor + len(self.items)

    @property
    def twice(self):
        return self.value * 2


class Other(Box):
    def apply(self, x):
        return x - self.value


def agree(function, *variants, **options):
    """Runs all variants of the arguments, some twice, on one compiled function."""
    fl._dynamo.config.recompile_limit = 64
    try:
        fast = fl.compile(function, backend="eager", **options)
        for make in (*variants, *variants):
            wanted, got = function(*make()), fast(*make())
            assert _equal(wanted, got), (wanted, got)
    finally:
        fl._dynamo.config.recompile_limit = 8


def _equal(a, b):
    if isinstance(a, fl.Tensor):
        return (
            isinstance(b, fl.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.requires_grad == b.requires_grad
            and fl.equal(a.detach(), b.detach())
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b))
    return type(a) is type(b) and a == b


def changing(function, changes, *args):
    """Calls a compiled function between changes of what it looks at."""
    fl._dynamo.config.recompile_limit = 64
    try:
        fast = fl.compile(function, backend="eager")
        assert _equal(function(*args), fast(*args))
        for change in changes:
            change()
            for _ in range(2):
                wanted, got = function(*args), fast(*args)
                assert _equal(wanted, got), (wanted, got)
    finally:
        fl._dynamo.config.recompile_limit = 8


def describe(x):
    kind = (x.dtype, tuple(x.shape), x.stride(), x.requires_grad, x.is_contiguous(), x.ndim)
    return x * 2, str(kind)


def test_shapes_dtypes_strides_and_requires_grad_of_tensors():
    agree(
        describe,
        lambda: (fl.ones(3),),
        lambda: (fl.ones(4),),
        lambda: (fl.ones(3, 4),),
        lambda: (fl.ones(4, 3).t(),),
        lambda: (fl.ones(3, dtype=fl.float64),),
        lambda: (fl.ones(3, dtype=fl.int64),),
        lambda: (fl.ones(3).requires_grad_(),),
        lambda: (fl.ones(6)[::2],),
        lambda: (fl.ones(()),),
        lambda: (fl.ones(0),),
        lambda: (fl.ones(1),),
        lambda: (nn.Parameter(fl.ones(3)),),
    )


def test_device_of_a_tensor():
    agree(lambda x: (x.device.type, x.shape[0]), lambda: (fl.ones(3),), lambda: (fl.ones(3, device="meta"),))


def test_grad_mode():
    x = fl.ones(3, requires_grad=True)
    fast = fl.compile(lambda v: (v * 2, fl.is_grad_enabled()), backend="eager")
    for _ in range(2):
        assert fast(x)[0].requires_grad and fast(x)[1]
        with fl.no_grad():
            assert not fast(x)[0].requires_grad and not fast(x)[1]
        with fl.inference_mode():
            assert fast(x)[0].is_inference()


def test_default_dtype():
    fast = fl.compile(lambda x: x + fl.ones(2).dtype.itemsize, backend="eager")
    assert fast(fl.zeros(2)).tolist() == [4, 4]
    fl.set_default_dtype(fl.float64)
    try:
        assert fast(fl.zeros(2, dtype=fl.float32)).tolist() == [8, 8]
    finally:
        fl.set_default_dtype(fl.float32)


def test_plain_values():
    agree(
        lambda x, v: (x + 1, v, str(type(v))),
        *[
            lambda v=v: (fl.ones(2), v)
            for v in (1, 2, True, False, 1.0, -0.0, 0.0, "a", "b", None, (1, 2), (1, 3), (1,), b"x", 2**70)
        ],
    )


def test_containers():
    agree(
        lambda x, v: (x * len(v), v, str(type(v))),
        *[
            lambda v=v: (fl.ones(2), v)
            for v in (
                [1],
                [1, 2],
                [2, 1],
                (1,),
                {"a": 1},
                {"b": 1},
                {"a": 2},
                {"a": 1, "b": 2},
                {"b": 2, "a": 1},
                {1},
                {2},
                [[1]],
                [(1,)],
            )
        ],
    )


def test_containers_of_tensors():
    agree(
        lambda v: [t * 2 for t in v],
        lambda: ([fl.ones(2)],),
        lambda: ([fl.ones(2), fl.zeros(2)],),
        lambda: ([fl.ones(2, dtype=fl.int64)],),
        lambda: ((fl.ones(2),),),
    )


def test_identity_of_arguments():
    x, y = fl.ones(2), fl.ones(2)
    agree(lambda a, b: (a + b, a is b), lambda: (x, y), lambda: (x, x), lambda: (y, x))


def test_aliased_lists():
    a, b = [1], [1]

    def f(x, p, q):
        p.append(2)
        return x * len(q)

    agree(f, lambda: (fl.ones(2), list(a), list(b)), lambda: (lambda v: (fl.ones(2), v, v))([1]))


def test_an_argument_is_a_member_of_a_module():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.register_buffer("mean", fl.zeros(2))
            self.items = [1]

        def forward(self, weight, mean, items):
            same = weight is self.inner.weight, mean is self.mean, items is self.items
            return same, weight.sum() + self.inner.weight.sum()

    holder, other = Holder(), nn.Linear(2, 2)
    weight, mean = holder.inner.weight, holder.mean
    agree(
        lambda *args: holder(*args),
        lambda: (other.weight, fl.zeros(2), [1]),
        lambda: (weight, fl.zeros(2), [1]),
        lambda: (other.weight, mean, [1]),
        lambda: (other.weight, fl.zeros(2), holder.items),
        lambda: (weight, mean, holder.items),
    )


def test_gradients_of_an_argument_that_is_a_parameter():
    layer, other = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)

    def step(weight):
        ((weight * 2).sum() + (layer.weight * 3).sum()).backward()
        return weight.grad.clone(), layer.weight.grad.clone()

    def fresh(weight):
        layer.weight.grad, other.weight.grad = fl.ones(2, 2), fl.ones(2, 2)
        return (weight,)

    agree(step, lambda: fresh(other.weight), lambda: fresh(layer.weight))


def test_members_of_modules_become_one():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return x + 1, self.a is self.b, self.a.weight is self.b.weight

    pair = Pair()
    changing(
        lambda x: pair(x),
        [
            lambda: setattr(pair.b, "weight", pair.a.weight),
            lambda: setattr(pair, "b", pair.a),
            lambda: setattr(pair, "b", nn.Linear(2, 2)),
        ],
        fl.ones(2),
    )
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    agree(lambda m, n: (m is n, m.weight is n.weight), lambda: (a, b), lambda: (a, a), lambda: (b, b), lambda: (b, a))


def test_an_argument_is_a_known_function():
    def make(n):
        return lambda x: x * n

    known = make(2)
    agree(lambda f, x: (f is known, f(x)), lambda: (make(3), 1), lambda: (known, 1), lambda: (make(4), 1))


def test_objects():
    agree(
        lambda x, box: box.apply(x) + box.twice,
        lambda: (fl.ones(2), Box(1)),
        lambda: (fl.ones(2), Box(2)),
        lambda: (fl.ones(2), Other(2)),
        lambda: (fl.ones(2), Box(2.0)),
    )


def test_functions_as_arguments():
    def make(n):
        return lambda x: x * n

    agree(
        lambda x, f: f(x),
        lambda: (fl.ones(2), make(2)),
        lambda: (fl.ones(2), make(3)),
        lambda: (fl.ones(2), fl.sin),
        lambda: (fl.ones(2), fl.cos),
        lambda: (fl.ones(2), Box(4).apply),
        lambda: (fl.ones(2), lambda v: v - 1),
    )


def test_globals():
    names = globals()

    def f(x):
        return x * GLOBAL + TABLE["a"] + len(TABLE["b"])

    def restore():
        names["GLOBAL"] = 2
        TABLE.update(a=1, b=[1, 2])

    try:
        changing(
            f,
            [
                lambda: names.__setitem__("GLOBAL", 5),
                lambda: names.__setitem__("GLOBAL", 5.0),
                lambda: TABLE.__setitem__("a", 7),
                lambda: TABLE["b"].append(3),
                lambda: TABLE.__setitem__("b", (1,)),
                lambda: TABLE.__setitem__("c", 1),
            ],
            fl.ones(2),
        )
    finally:
        restore()
        TABLE.pop("c", None)


def helper(x):
    return x + 1


def test_a_global_function_is_replaced():
    names = globals()
    original = helper
    try:
        changing(lambda x: helper(x), [lambda: names.__setitem__("helper", lambda x: x - 1)], fl.ones(2))
    finally:
        names["helper"] = original


def test_a_name_of_a_module():
    changing(lambda x: x * MODULE.value, [lambda: setattr(MODULE, "value", 9)], fl.ones(2))


def test_a_builtin_is_shadowed():
    names = globals()
    try:
        changing(lambda x: x * len([1, 2]), [lambda: names.__setitem__("len", lambda v: 10)], fl.ones(2))
    finally:
        names.pop("len", None)


def test_closure_cells():
    n, values = 2, [1]

    def f(x):
        return x * n + sum(values)

    def bump():
        nonlocal n
        n += 1

    def replace():
        nonlocal values
        values = [5, 6]

    changing(f, [bump, lambda: values.append(4), replace, bump], fl.ones(2))


def test_attributes_of_an_object_in_a_closure():
    box = Box(2)
    changing(
        lambda x: box.apply(x) + box.twice,
        [
            lambda: setattr(box, "value", 3),
            lambda: box.items.append(1),
            lambda: setattr(box, "factor", 7),
            lambda: delattr(box, "factor"),
            lambda: setattr(box, "apply", lambda x: x * 100),
            lambda: delattr(box, "apply"),
            lambda: setattr(box, "__class__", Other),
        ],
        fl.ones(2),
    )


def test_a_class_is_changed():
    class Local(Box):
        pass

    box = Local(2)
    changing(
        lambda x: box.apply(x),
        [
            lambda: setattr(Local, "factor", 5),
            lambda: setattr(Local, "apply", lambda self, x: x + 50),
            lambda: delattr(Local, "apply"),
            lambda: setattr(Local, "__getattr__", lambda self, name: 1),
        ],
        fl.ones(2),
    )


def test_hasattr_and_missing_attributes():
    box = Box(1)
    changing(
        lambda x: x + getattr(box, "extra", 10) + hasattr(box, "more"),
        [lambda: setattr(box, "extra", 1), lambda: setattr(box, "more", 1), lambda: delattr(box, "extra")],
        fl.ones(2),
    )


def test_missing_dict_keys():
    table = {"a": 1}
    changing(
        lambda x: x * table.get("b", 5) + ("c" in table),
        [lambda: table.update(b=2), lambda: table.update(c=2), lambda: table.pop("b")],
        fl.ones(2),
    )


def test_defaults_of_a_function():
    def inner(x, n=2, *, m=1):
        return x * n + m

    changing(
        lambda x: inner(x),
        [lambda: setattr(inner, "__defaults__", (4,)), lambda: setattr(inner, "__kwdefaults__", {"m": 6})],
        fl.ones(2),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
        self.register_buffer("b", fl.ones(2))
        self.scale = 2
        self.options = {"shift": 1}
        self.extra = None

    def forward(self, x):
        y = self.a(x)
        for block in self.blocks:
            y = block(y)
        y = y * self.scale + self.b + self.options["shift"]
        if self.training:
            y = y - 100
        return y if self.extra is None else y + self.extra


def hook(module, args, output):
    return output * 3


def net_changes(net):
    handles = []
    return [
        lambda: net.eval(),
        lambda: net.train(),
        lambda: setattr(net, "scale", 5),
        lambda: setattr(net, "extra", fl.ones(2)),
        lambda: setattr(net, "extra", None),
        lambda: net.options.update(shift=4),
        lambda: setattr(net, "a", nn.Linear(2, 2, bias=False)),
        lambda: setattr(net.a, "weight", nn.Parameter(fl.ones(2, 2) * 4)),
        lambda: net.a.weight.data.fill_(3),
        lambda: setattr(net.a.weight, "data", fl.ones(2, 2) * 5),
        lambda: net.a.weight.requires_grad_(False),
        lambda: net.requires_grad_(False),
        lambda: setattr(net, "b", fl.zeros(2)),
        lambda: net.b.add_(1),
        lambda: net.blocks.append(nn.Linear(2, 2)),
        lambda: net.blocks.insert(0, nn.Tanh()),
        lambda: handles.append(net.register_forward_hook(hook)),
        lambda: handles.append(net.a.register_forward_hook(hook)),
        lambda: handles.append(net.blocks[0].register_forward_pre_hook(lambda m, a: (a[0] + 1,))),
        lambda: handles[0].remove(),
        lambda: handles[1].remove(),
        lambda: setattr(net.a, "forward", lambda x: x * 9),
        lambda: net.double() and net.float(),
        lambda: net.blocks.__delitem__(0),
        lambda: net.load_state_dict({k: v * 0 + 1 for k, v in net.state_dict().items()}),
    ]


@pytest.mark.parametrize("wrap", [False, True], ids=["function", "module"])
def test_modules(wrap):
    fl._dynamo.config.recompile_limit = 64
    try:
        net = Net()
        x = fl.ones(3, 2)
        fast = fl.compile(net if wrap else (lambda v: net(v)), backend="eager")
        for change in [lambda: None, *net_changes(net)]:
            change()
            for _ in range(2):
                assert _equal(net(x), fast(x))
    finally:
        fl._dynamo.config.recompile_limit = 8


def test_global_hooks():
    from flambeau.nn.modules.module import register_module_forward_hook

    net = nn.Linear(2, 2)
    fast = fl.compile(net, backend="eager")
    x = fl.ones(1, 2)
    assert _equal(net(x), fast(x))
    handle = register_module_forward_hook(hook)
    try:
        assert _equal(net(x), fast(x))
    finally:
        handle.remove()
    assert _equal(net(x), fast(x))


def test_recompile_limit_warns_and_runs_in_python():
    fast = fl.compile(lambda x, s: x + len(s), backend="eager")
    with pytest.warns(UserWarning, match="argument 1"):
        for n in range(12):
            assert fast(fl.zeros(1), "a" * n).item() == n


def test_threads_compile_and_call_at_once():
    import threading

    fast = fl.compile(lambda x, n: x * n + 1, backend="eager")
    errors = []

    def work(n):
        try:
            for i in range(30):
                assert fl.equal(fast(fl.ones(2 + i % 3), n), fl.ones(2 + i % 3) * n + 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


class Held(nn.Module):
    """A model whose parameters and buffers are changed in place, under the eyes of nobody."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(fl.arange(6.0).reshape(2, 3))
        self.more = nn.ParameterList([nn.Parameter(fl.full((1,), float(i))) for i in range(4)])
        self.register_buffer("table", fl.arange(3.0))

    def forward(self, x):
        y = x @ self.weight + self.table
        for p in self.more:
            y = y * (1 + p)
        return y, str((self.weight.shape, self.weight.stride(), self.weight.dtype, self.weight.requires_grad))


def in_place_changes(net):
    wide = fl.arange(12.0).reshape(4, 3)

    def swap():
        with fl.no_grad():
            fl.utils.swap_tensors(net.weight, nn.Parameter(fl.ones(2, 3) * 7))

    def history():
        net.table.add_(fl.ones(3, requires_grad=True))

    return [
        lambda: net.weight.requires_grad_(False),
        lambda: net.weight.requires_grad_(True),
        lambda: setattr(net.weight, "requires_grad", False),
        lambda: net.weight.t_().t_(),
        lambda: net.weight.data.t_().t_(),
        lambda: setattr(net.weight, "data", fl.arange(6.0).reshape(3, 2).t()),
        lambda: setattr(net.weight, "data", wide[:2]),
        lambda: setattr(net.weight, "data", fl.ones(2, 1)),
        lambda: setattr(net.weight, "data", fl.ones(2, 3) * 3),
        lambda: net.weight.squeeze_(),
        lambda: net.weight.unsqueeze_(0),
        lambda: net.weight.squeeze_(0),
        lambda: net.weight.set_(wide[2:]),
        lambda: net.weight.resize_(2, 3).fill_(2),
        lambda: net.weight.as_strided_((2, 3), (1, 2)),
        lambda: net.weight.detach_(),
        history,
        lambda: net.table.detach_(),
        lambda: net.more[2].requires_grad_(False),
        swap,
        lambda: setattr(net.weight, "__class__", Other3) or None,
        lambda: setattr(net.weight, "__class__", nn.Parameter),
        lambda: net.double(),
        lambda: net.float(),
    ]


class Other3(nn.Parameter):
    pass


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_changed_in_place(backend):
    fl._dynamo.config.recompile_limit = 64
    try:
        net = Held()
        fast = fl.compile(net, backend=backend)
        x = fl.ones(5, 2)
        for change in [lambda: None, *in_place_changes(net)]:
            change()
            given = x.to(net.weight.dtype)
            for _ in range(2):
                wanted, got = net(given), fast(given)
                assert _equal(wanted, got), (wanted, got)
                for name, grads in _gradients(net, wanted[0]).items():
                    assert fl.equal(grads, _gradients(net, fast(given)[0])[name])
                del wanted, got  # their history holds the parameters, which then cannot be swapped
    finally:
        fl._dynamo.config.recompile_limit = 8


def _gradients(net, result):
    net.zero_grad()
    if result.requires_grad:
        result.sum().backward()
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def test_training_counts_no_change_of_tensors():
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    fast = fl.compile(net, backend="aot_eager")
    optimizer = fl.optim.Adam(net.parameters())

    def step(set_to_none):
        optimizer.zero_grad(set_to_none=set_to_none)
        x = fl.ones(2, 3, requires_grad=True)
        fast(x).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    for _ in range(2):
        step(True)
    before = fl._C._tensor_changes()
    for flag in (True, False, False):
        step(flag)
    assert fl._C._tensor_changes() == before
    net[0].weight.requires_grad_(False)
    assert fl._C._tensor_changes() == before + 1


def test_double_backward_through_bound_parameters():
    net = nn.Linear(3, 1, bias=False)
    fast = fl.compile(lambda x: (net(x) ** 3).sum(), backend="aot_eager")
    for _ in range(2):
        found = []
        for f in (lambda x: (net(x) ** 3).sum(), fast):
            x = fl.ones(2, 3, requires_grad=True)
            (g,) = fl.autograd.grad(f(x), x, create_graph=True)
            found.append(fl.autograd.grad(g.square().sum(), net.weight)[0])
        assert fl.allclose(found[0], found[1])
    x = fl.ones(2, 3, requires_grad=True)
    y = fast(x)
    with fl.no_grad():
        net.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        fl.autograd.grad(y, x, create_graph=True)


@pytest.mark.host  # the default device is a thread's own
def test_threads_train_one_compiled_model():
    import threading

    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
    fast = fl.compile(net, backend="aot_eager")
    errors = []

    def work(seed):
        try:
            for i in range(15):
                x = fl.full((1 + (seed + i) % 4, 3), float(seed))
                wanted, got = net(x), fast(x)
                assert fl.allclose(wanted, got)
                a = fl.autograd.grad(wanted.sum(), list(net.parameters()))
                b = fl.autograd.grad(got.sum(), list(net.parameters()))
                assert all(fl.allclose(p, q) for p, q in zip(a, b))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
