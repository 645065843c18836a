"""Changes of tensors, modules, arrays and of the thread's modes between calls."""

import importlib
import pathlib
import sys

import numpy as np
import pytest

import flambeau as fl

sys.path.insert(0, str(pathlib.Path(__file__).parent))
check = importlib.import_module("mutations").check

CASES = []


def case(make):
    CASES.append(make)
    return make


@case
def default_dtype():
    def f(x):
        return fl.tensor(1.5) + 0

    return f, [lambda: fl.set_default_dtype(fl.float64), lambda: fl.set_default_dtype(fl.float32)]


@case
def get_default_dtype():
    def f(x):
        return x + (1 if fl.get_default_dtype() == fl.float32 else 2)

    return f, [lambda: fl.set_default_dtype(fl.float64), lambda: fl.set_default_dtype(fl.float32)]


@case
def num_threads():
    def f(x):
        return x + fl.get_num_threads()

    return f, [lambda: fl.set_num_threads(1), lambda: fl.set_num_threads(2)]


@case
def deterministic():
    def f(x):
        return x + (1 if fl.are_deterministic_algorithms_enabled() else 2)

    return f, [lambda: fl.use_deterministic_algorithms(True), lambda: fl.use_deterministic_algorithms(False)]


@case
def mod_train():
    m = fl.nn.Dropout(0.0)

    def f(x):
        return x + 1 if m.training else x

    return f, [lambda: m.eval()]


@case
def mod_forward_patch():
    m = fl.nn.Linear(3, 3)

    def f(x):
        return m(x)

    return f, [lambda: setattr(m, "forward", lambda x: x + 3)]


@case
def mod_fwd_hook():
    m = fl.nn.Linear(3, 3)

    def f(x):
        return m(x)

    return f, [lambda: m.register_forward_hook(lambda m, i, o: o + 3)]


@case
def mod_class_forward():
    class M(fl.nn.Module):
        def forward(s, x):
            return x + 1

    m = M()

    def f(x):
        return m(x)

    return f, [lambda: setattr(M, "forward", lambda s, x: x + 3)]


@case
def mod_forward_code():
    class M(fl.nn.Module):
        def forward(s, x):
            return x + 1

    def g(s, x):
        return x + 22

    m = M()

    def f(x):
        return m(x)

    return f, [lambda: setattr(M.forward, "__code__", g.__code__)]


@case
def mod_list_attr():
    class M(fl.nn.Module):
        def __init__(s):
            super().__init__()
            s.l = [1, 2]

        def forward(s, x):
            return x + s.l[0]

    m = M()

    def f(x):
        return m(x)

    return f, [lambda: m.l.__setitem__(0, 5)]


@case
def mod_obj_attr():
    class C:
        k = 1

    class M(fl.nn.Module):
        def __init__(s):
            super().__init__()
            s.c = C()

        def forward(s, x):
            return x + s.c.k

    m = M()

    def f(x):
        return m(x)

    return f, [lambda: setattr(m.c, "k", 5), lambda: setattr(C, "k", 8)]


@case
def mod_buffer_swap():
    m = fl.nn.BatchNorm1d(3).eval()

    def f(x):
        return m.running_mean + x

    def s():
        m.running_mean = fl.ones(3)

    return f, [s, lambda: m._buffers.__setitem__("running_mean", fl.ones(3) * 7)]


@case
def param_data():
    m = fl.nn.Linear(3, 3)

    def f(x):
        return m.weight + x

    return f, [
        lambda: setattr(m.weight, "data", fl.ones(3, 3)),
        lambda: setattr(m.weight, "data", fl.ones(3, 3).t()),
        lambda: setattr(m.weight, "data", fl.ones(3, 3, dtype=fl.float64)),
    ]


@case
def tensor_attr():
    t = fl.ones(3)
    t.k = 1

    def f(x):
        return x + t.k

    return f, [lambda: setattr(t, "k", 6)]


@case
def tensor_reqgrad():
    t = fl.ones(3)

    def f(x):
        return x + 1 if t.requires_grad else x

    return f, [lambda: t.requires_grad_()]


@case
def tensor_grad():
    t = fl.ones(3, requires_grad=True)

    def f(x):
        return x + 1 if t.grad is not None else x

    return f, [lambda: setattr(t, "grad", fl.ones(3)), lambda: setattr(t, "grad", None)]


@case
def tensor_version():
    t = fl.ones(3)

    def f(x):
        return x + t._version

    return f, [lambda: t.add_(1)]


@case
def tensor_gradfn():
    t = [fl.ones(3, requires_grad=True)]

    def f(x):
        return x + 1 if t[0].grad_fn is None else x

    return f, [lambda: t.__setitem__(0, t[0] * 2)]


@case
def tensor_isleaf():
    t = [fl.ones(3, requires_grad=True)]

    def f(x):
        return x + 1 if t[0].is_leaf else x

    return f, [lambda: t.__setitem__(0, t[0] * 2)]


@case
def tensor_offset():
    b = fl.arange(10.0)
    t = [b[0:3]]

    def f(x):
        return x + t[0].storage_offset()

    return f, [lambda: t.__setitem__(0, b[2:5])]


@case
def tensor_stride1():
    t = [fl.ones(1, 3)]

    def f(x):
        return x + t[0].stride(0)

    return f, [lambda: t.__setitem__(0, fl.ones(1, 3).as_strided((1, 3), (77, 1)))]


@case
def tensor_contig():
    t = [fl.ones(3, 3)]

    def f(x):
        return x + 1 if t[0].is_contiguous() else x

    return f, [lambda: t.__setitem__(0, fl.ones(3, 3).t())]


@case
def tensor_chlast():
    t = [fl.ones(1, 3, 2, 2)]

    def f(x):
        return x + 1 if t[0].is_contiguous(memory_format=fl.channels_last) else x

    return f, [lambda: t.__setitem__(0, fl.ones(1, 3, 2, 2).to(memory_format=fl.channels_last))]


@case
def tensor_isview():
    t = [fl.ones(3)]

    def f(x):
        return x + 1 if t[0]._is_view() else x

    return f, [lambda: t.__setitem__(0, fl.ones(6)[:3])]


@case
def tensor_base():
    t = [fl.ones(3)]

    def f(x):
        return x + 1 if t[0]._base is None else x

    return f, [lambda: t.__setitem__(0, fl.ones(6)[:3])]


@case
def tensor_dataptr():
    t = [fl.ones(3)]
    u = t[0]

    def f(x):
        return x + 1 if t[0].data_ptr() == u.data_ptr() else x

    return f, [lambda: t.__setitem__(0, fl.ones(3))]


@case
def tensor_alias():
    t = [fl.ones(3), fl.ones(3)]

    def f(x):
        t[0].fill_(1.0)
        t[1].fill_(1.0)
        t[0].add_(1)
        t[1].mul_(3)
        return t[0] + t[1]

    return f, [lambda: t.__setitem__(1, t[0].view(3)), lambda: t.__setitem__(1, t[0])]


@case
def tensor_overlap():
    b = fl.zeros(6)
    t = [b[:3], b[3:]]

    def f(x):
        b.fill_(1.0)
        t[0].add_(1)
        t[1].mul_(3)
        return t[0] + t[1]

    return f, [lambda: t.__setitem__(1, b[1:4])]


@case
def storage_size():
    t = [fl.ones(3)]

    def f(x):
        return x + t[0].untyped_storage().nbytes()

    return f, [lambda: t.__setitem__(0, fl.ones(9)[:3])]


@case
def tensor_hooks_len():
    t = fl.ones(3, requires_grad=True)

    def f(x):
        return x + 1 if t._backward_hooks else x

    return f, [lambda: t.register_hook(lambda g: g)]


@case
def ndarray():
    b = np.arange(3.0)

    def f(x):
        return x + fl.from_numpy(b)

    return f, [lambda: b.__setitem__(0, 5)]


@case
def ndarray_item():
    b = np.arange(3.0)

    def f(x):
        return x + float(b[0])

    return f, [lambda: b.__setitem__(0, 5)]


@case
def np_scalar():
    b = [np.float64(1)]

    def f(x):
        return x + b[0]

    return f, [lambda: b.__setitem__(0, np.float64(7))]


@case
def autocast_state():
    def f(x):
        return x + (1 if fl.is_autocast_enabled("cpu") else 2)

    ctx = fl.autocast("cpu")
    return f, [lambda: ctx.__enter__(), lambda: ctx.__exit__(None, None, None)]


@case
def grad_state():
    def f(x):
        return x + (1 if fl.is_grad_enabled() else 2)

    return f, [lambda: fl.set_grad_enabled(False), lambda: fl.set_grad_enabled(True)]


@case
def default_device():
    def f(x):
        return x + (1 if fl.get_default_device().type == "cpu" else 2)

    return f, [lambda: fl.set_default_device("meta"), lambda: fl.set_default_device("cpu")]


@case
def opt_state():
    p = fl.ones(3, requires_grad=True)
    o = fl.optim.SGD([p], lr=0.1)

    def f(x):
        return x * o.param_groups[0]["lr"] + o.param_groups[0]["momentum"]

    return f, [lambda: o.param_groups[0].__setitem__("lr", 0.5), lambda: o.param_groups[0].__setitem__("momentum", 0.5)]


@case
def device_of_new_tensors():
    def f(x):
        return 1 if fl.ones(3).device.type == "meta" else 2

    return f, [lambda: fl.set_default_device("meta"), lambda: fl.set_default_device("cpu")]


@case
def methods_of_tensor():
    own, add = fl.Tensor.sin, fl.Tensor.__add__

    def f(x):
        return x.sin() + 1

    return f, [
        lambda: setattr(fl.Tensor, "sin", lambda x: x * 100),
        lambda: setattr(fl.Tensor, "__add__", lambda x, y: x * 7),
        lambda: setattr(fl.Tensor, "sin", own),
        lambda: setattr(fl.Tensor, "__add__", add),
    ]


@case
def new_members_of_tensor():
    def f(x):
        return x.tenfold() if hasattr(x, "tenfold") else x

    return f, [
        lambda: setattr(fl.Tensor, "tenfold", lambda x: x * 10),
        lambda: setattr(fl.Tensor, "tenfold", lambda x: x * 10 + 1),
        lambda: delattr(fl.Tensor, "tenfold"),
    ]


@case
def attributes_that_hide_those_of_a_subclass():
    class Scaled(fl.Tensor):
        scale = 2.0

    t = fl.ones(3).as_subclass(Scaled)

    def f(x):
        return (x + t.scale).as_subclass(fl.Tensor)

    return f, [
        lambda: setattr(Scaled, "scale", 3.0),
        lambda: setattr(t, "scale", 4.0),
        lambda: setattr(t, "scale", 5.0),
        lambda: delattr(t, "scale"),
    ]


@pytest.fixture(autouse=True)
def restore():
    yield
    fl.set_default_dtype(fl.float32)
    fl.set_default_device("cpu")
    fl.set_grad_enabled(True)
    fl.use_deterministic_algorithms(False)
    fl.set_num_threads(THREADS)


THREADS = fl.get_num_threads()


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_change_is_seen(make):
    check(make)
