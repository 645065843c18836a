"""__torch_dispatch__: modes and tensor subclasses that handle operators, and wrappers without memory."""

import threading
from collections import Counter
from typing import ClassVar

import pytest

import flambeau as torch
from flambeau.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    return_and_correct_aliasing,
)
from flambeau.utils._pytree import tree_map

aten = torch.ops.aten


class Log(TorchDispatchMode):
    """Notes every operator and runs it."""

    def __init__(self):
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((func, types, args, kwargs))
        return func(*args, **(kwargs or {}))

    @property
    def names(self):
        return [str(func) for func, *_ in self.calls]


class LoggingTensor(torch.Tensor):
    """Wraps a tensor and notes every operator on it."""

    log: ClassVar[list] = []
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem):
        made = torch.Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, device=elem.device, layout=elem.layout
        )
        made.elem = elem
        return made

    def __repr__(self):
        return f"LoggingTensor({self.elem})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrap(x):
            return x.elem if isinstance(x, LoggingTensor) else x

        def wrap(x):
            return LoggingTensor(x) if isinstance(x, torch.Tensor) else x

        LoggingTensor.log.append(str(func))
        out = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return return_and_correct_aliasing(func, args, kwargs, tree_map(wrap, out))


@pytest.fixture(autouse=True)
def clear():
    LoggingTensor.log.clear()


# ---------------------------------------------------------------------------------------------- modes


def test_a_mode_sees_operators_and_factories():
    with Log() as log:
        x = torch.zeros(2)
        y = x + 1
    assert log.names == ["aten.zeros.default", "aten.add.Tensor"]
    assert y.tolist() == [1, 1]
    assert log.calls[1][1] == () and log.calls[1][2][1] == 1


def test_defaults_are_left_out_of_the_arguments():
    x = torch.ones(2)
    with Log() as log:
        torch.add(x, x)
        torch.add(x, x, alpha=3)
    assert log.calls[0][3] == {} and log.calls[1][3] == {"alpha": 3}


def test_decompositions_are_taken_apart_before_a_mode_sees_them():
    x = torch.ones(2, 3)
    with Log() as log:
        x.reshape(3, 2)
        x.flatten()
    assert log.names == ["aten.view.default", "aten.view.default"]


def test_modes_nest_and_the_outer_sees_what_the_inner_calls():
    with Log() as outer, Log() as inner:
        assert _get_current_dispatch_mode_stack() == [outer, inner]
        torch.ones(1).sin()
    assert inner.names == outer.names == ["aten.ones.default", "aten.sin.default"]
    assert _get_current_dispatch_mode_stack() == []


def test_a_mode_may_answer_by_itself():
    class Zeros(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return torch.zeros(7) if func is aten.sin.default else func(*args, **(kwargs or {}))

    with Zeros():
        assert torch.ones(2).sin().shape == (7,)


def test_a_mode_counts_work():
    class Count(TorchDispatchMode):
        def __init__(self):
            self.flops = Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is aten.mm.default:
                (m, k), (_, n) = args[0].shape, args[1].shape
                self.flops[func] += 2 * m * k * n
            return func(*args, **(kwargs or {}))

    with Count() as count:
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    assert count.flops[aten.mm.default] == 48


def test_in_place_and_out_return_the_written_tensor():
    class Other(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            func(*args, **(kwargs or {}))
            return torch.full((1,), -1.0)

    x, out = torch.ones(2), torch.empty(2)
    with Other():
        assert x.add_(1) is x
        assert torch.add(x, 1, out=out) is out
    assert x.tolist() == [2, 2] and out.tolist() == [3, 3]


def test_reading_a_value_is_an_operator():
    x = torch.tensor([3.0])
    with Log() as log:
        assert x.item() == 3 and float(x) == 3 and bool(x)
    assert log.names == ["aten._local_scalar_dense.default"] * 3


def test_errors_leave_the_stack_as_it_was():
    class Bad(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise KeyError("no")

    with pytest.raises(KeyError), Bad():
        torch.ones(1)
    with Bad() as bad:
        with pytest.raises(KeyError):
            torch.ones(1)
        assert _get_current_dispatch_mode_stack() == [bad]
        with _disable_current_modes():
            assert torch.ones(1).item() == 1
    assert torch.ones(1).item() == 1


def test_a_mode_belongs_to_its_thread():
    seen = []
    with Log() as log:
        thread = threading.Thread(target=lambda: seen.append(torch.ones(1).sin()))
        thread.start()
        thread.join()
    assert seen and log.names == []


def test_the_call_fails_when_everybody_declines():
    class Decline(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="NotImplemented"), Decline():
        torch.ones(1)


# ---------------------------------------------------------------------------------------------- subclasses


def test_a_wrapper_handles_its_operators():
    x = LoggingTensor(torch.arange(4.0))
    y = x * 2 + x
    assert type(y) is LoggingTensor and y.elem.tolist() == [0, 3, 6, 9]
    assert y.shape == (4,) and y.dtype is torch.float32
    assert LoggingTensor.log == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_views_of_a_wrapper_share_its_storage():
    x = LoggingTensor(torch.zeros(4))
    view = x.view(2, 2)
    assert view._storage_id() == x._storage_id()
    assert view.add_(1) is view
    assert x.elem.tolist() == [1, 1, 1, 1]
    x[1:3] = 5
    assert x.elem.tolist() == [1, 5, 5, 1]
    assert x[2].item() == 5


def test_results_that_are_lists_are_wrapped_one_by_one():
    parts = LoggingTensor(torch.arange(4.0)).unbind(0)
    assert [type(p) for p in parts] == [LoggingTensor] * 4
    joined = torch.cat([torch.ones(1), LoggingTensor(torch.zeros(1))])
    assert type(joined) is LoggingTensor and joined.elem.tolist() == [1, 0]


def test_subclasses_are_asked_before_their_bases():
    asked = []

    class Base(LoggingTensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            asked.append((cls.__name__, [t.__name__ for t in types]))
            return NotImplemented

    class Derived(Base):
        pass

    with pytest.raises(TypeError):
        torch.add(Base(torch.ones(1)), Derived(torch.ones(1)))
    assert asked == [("Derived", ["Derived", "Base"]), ("Base", ["Derived", "Base"])]


def test_a_mode_comes_before_subclasses():
    with Log() as log:
        LoggingTensor(torch.ones(2)).sin()
    assert log.calls[1][1] == (LoggingTensor,)
    assert log.names == ["aten.ones.default", "aten.sin.default"]
    assert LoggingTensor.log == ["aten.sin.default"]


def test_a_subclass_with_memory_may_call_super():
    class Counting(torch.Tensor):
        count = 0
        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            Counting.count += 1
            return super().__torch_dispatch__(func, types, args, kwargs or {})

    x = torch.Tensor._make_subclass(Counting, torch.arange(3.0))
    assert (x + 1).tolist() == [1, 2, 3] and Counting.count == 1


def test_wrappers_never_crash_when_read_by_mistake():
    x = LoggingTensor(torch.ones(3))
    with torch._C._DisableTorchDispatch():
        assert torch.Tensor.add(x, 1).shape == (3,)


def test_strides_and_offsets_of_wrappers():
    made = torch.Tensor._make_wrapper_subclass(LoggingTensor, (2, 3), strides=(1, 2), dtype=torch.int32, device="meta")
    assert made.stride() == (1, 2) and made.dtype is torch.int32 and made.is_meta
    with pytest.raises(RuntimeError):
        torch.Tensor._make_wrapper_subclass(LoggingTensor, (2, 3), strides=(1,))
    with pytest.raises(TypeError):
        torch.Tensor._make_wrapper_subclass(int, (2,))
    with pytest.raises(RuntimeError):
        torch.Tensor._make_wrapper_subclass(LoggingTensor, (-1,))


def test_autograd_records_above_handlers():
    """Wrappers are differentiated as a whole, and the backward pass reaches the handler too."""
    x = LoggingTensor(torch.tensor([1.0, 2.0])).requires_grad_()
    y = x.sin() * 3
    assert y.requires_grad and y.grad_fn is not None and not y.elem.requires_grad
    LoggingTensor.log.clear()
    y.backward(LoggingTensor(torch.ones(2)))
    assert type(x.grad) is LoggingTensor and LoggingTensor.log
    with Log() as log:
        plain = torch.tensor([2.0], requires_grad=True)
        (plain * plain).backward(torch.ones(1))
    assert plain.grad.tolist() == [4] and "aten.mul.Tensor" in log.names


# ---------------------------------------------------------------------------------------------- operator objects


def test_overloads_know_their_schema():
    op = aten.add_.Tensor
    assert op.name() == "aten::add_.Tensor" and str(op) == "aten.add_.Tensor" and op.namespace == "aten"
    self, other, alpha = op._schema.arguments
    assert self.alias_info.is_write and other.alias_info is None
    assert alpha.kwarg_only and alpha.default_value == 1
    assert op._schema.returns[0].alias_info.is_write
    assert aten.select.int._schema.arguments[0].alias_info.before_set == {"a"}


def test_packets_pick_an_overload():
    assert aten.add(torch.ones(1), 2).item() == 3
    assert "Tensor" in aten.add.overloads() and aten.add.Tensor is aten.add.Tensor
    assert aten.mul.Scalar is aten.mul.Tensor  # one overload takes both here
    assert aten.add.Tensor.overloadpacket == aten.add
    out = torch.empty(1)
    assert aten.add.out(torch.ones(1), torch.ones(1), out=out) is out and out.item() == 2


def test_unknown_names_raise():
    with pytest.raises(AttributeError):
        _ = aten.no_such_operator
    with pytest.raises(AttributeError):
        _ = aten.add.no_such_overload
    assert not hasattr(aten, "no_such_operator")


def test_overloads_are_hashable_and_pickle():
    import copy
    import pickle

    op = aten.add.Tensor
    assert pickle.loads(pickle.dumps(op)) is op and copy.deepcopy(op) is op and {op: 1}[aten.add.Tensor] == 1


def test_decompose():
    assert aten.reshape.default.decompose(torch.ones(2, 2), [4]).shape == (4,)
    assert aten.add.Tensor.decompose(torch.ones(1), 1) is NotImplemented


def test_a_wrapper_kept_by_the_graph_comes_back_every_time():
    """Its Python object dies and is saved again and again."""
    wrapper = LoggingTensor(torch.ones(2))
    seen = []

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, kept):
            ctx.save_for_backward(kept)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            (kept,) = ctx.saved_tensors
            seen.append(type(kept) is LoggingTensor and kept.elem.tolist() == [1, 1])
            return g, None

    out = Keep.apply(torch.ones(2, requires_grad=True), wrapper).sum()
    del wrapper
    for _ in range(3):
        out.backward(retain_graph=True)
    assert seen == [True] * 3


def test_results_saved_for_backward_stay_wrapped():
    x = LoggingTensor(torch.tensor([0.5, 1.0])).requires_grad_()
    LoggingTensor.log.clear()
    x.tanh().backward(LoggingTensor(torch.ones(2)))
    assert type(x.grad) is LoggingTensor
    assert torch.allclose(x.grad.elem, 1 - torch.tensor([0.5, 1.0]).tanh() ** 2)


# ---------------------------------------------------------------------------------------------- parts, as ATen has them


def seen_by_a_mode(function, *args):
    plain = function(*args)
    with Log() as log:
        handled = function(*args)
    torch.testing.assert_close(handled, plain)
    return [name.removeprefix("aten.").partition(".")[0] for name in log.names]


@pytest.mark.parametrize(
    ("left", "right", "work"),
    [
        ((3,), (3,), "dot"),
        ((2, 3), (3,), "mv"),
        ((3,), (3, 4), "mm"),
        ((2, 3), (3, 4), "mm"),
        ((5, 2, 3), (3, 4), "mm"),
        ((5, 2, 3), (3,), "mv"),
        ((5, 2, 3), (5, 3, 4), "bmm"),
        ((6, 1, 2, 3), (5, 3, 4), "bmm"),
        ((3,), (5, 3, 4), "bmm"),
    ],
)
def test_products_are_those_of_aten(left, right, work):
    names = seen_by_a_mode(torch.matmul, torch.rand(left), torch.rand(right))
    assert [n for n in names if n in ("dot", "mv", "mm", "bmm", "matmul")] == [work]


def test_linear_layers_are_addmm_and_t():
    x, weight, bias = torch.rand(2, 3), torch.rand(4, 3), torch.rand(4)
    linear = torch.nn.functional.linear
    assert seen_by_a_mode(linear, x, weight, bias) == ["t", "addmm"]
    assert seen_by_a_mode(linear, x, weight) == ["t", "mm"]
    assert seen_by_a_mode(linear, x.expand(5, 2, 3), weight, bias)[-2:] == ["addmm", "view"]
    assert seen_by_a_mode(torch.t, weight) == ["t"]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_convolutions_are_one_operator(n, transposed):
    function = getattr(torch.nn.functional, f"conv_transpose{n}d" if transposed else f"conv{n}d")
    x, weight = torch.rand(2, 2, *[5] * n), torch.rand(2, 2, *[3] * n)
    bias, single = torch.rand(2), x[0]
    assert seen_by_a_mode(lambda: function(x, weight, stride=2, padding=1)) == ["convolution"]
    assert "convolution" in seen_by_a_mode(lambda: function(single, weight, bias))


def test_gradients_pass_parts():
    x, weight = torch.rand(2, 3, requires_grad=True), torch.rand(4, 3, requires_grad=True)
    with Log():
        out = torch.nn.functional.linear(x, weight)
        out.sum().backward()
    torch.testing.assert_close(weight.grad, x.detach().sum(0).expand(4, 3))


def test_bad_shapes_are_told_about_as_without_a_mode():
    for function in (lambda: torch.rand(2, 3) @ torch.rand(2, 3), lambda: torch.rand(4, 2, 3) @ torch.rand(4, 2, 3)):
        with pytest.raises(RuntimeError), Log():
            function()


def test_operators_say_what_is_known_of_them():
    assert torch.Tag.pointwise in aten.add.Tensor.tags and torch.Tag.core in aten.mm.default.tags
    assert torch.Tag.inplace in aten.mul_.Tensor.tags and torch.Tag.pointwise not in aten.mm.default.tags
    assert torch.Tag.nondeterministic_seeded in aten.rand.default.tags
    assert aten.mm.default._overloadpacket is aten.mm


def test_modules_convert_parameters_with_their_parts():
    class Scaled(torch.Tensor):
        @staticmethod
        def __new__(cls, whole, scale):
            return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype)

        def __init__(self, whole, scale):
            self.whole, self.scale = whole, scale

        def __tensor_flatten__(self):
            return ["whole", "scale"], None

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func in (aten.detach.default, aten._to_copy.default):
                return cls(args[0].whole, func(args[0].scale, **(kwargs or {})))
            raise NotImplementedError(str(func))

    layer = torch.nn.Linear(3, 4)
    layer.weight = weight = torch.nn.Parameter(Scaled(torch.ones(4, 3).char(), torch.ones(4)), requires_grad=False)
    layer.to(torch.bfloat16)
    assert layer.weight is weight and weight.dtype is torch.bfloat16 and weight.scale.dtype is torch.bfloat16
    assert weight.whole.dtype is torch.int8 and isinstance(weight, torch.nn.Parameter)


def test_a_class_that_handles_operators_does_not_convert_results():
    class Packed(torch.Tensor):
        @staticmethod
        def __new__(cls, values):
            return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)

        def __init__(self, values):
            self.values_ = values

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            plain = [a.values_ if isinstance(a, cls) else a for a in args]
            out = func(*plain, **(kwargs or {}))
            return cls(out) if func in (aten.detach.default, aten.t.default) else out

    weight = Packed(torch.rand(4, 3))
    assert type(torch.rand(2, 3) @ weight.t()) is torch.Tensor and type(weight + 1) is torch.Tensor
    layer = torch.nn.Linear(3, 4)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    x = torch.rand(2, 3)
    out = layer(x)
    assert type(out) is torch.Tensor and type(layer.weight) is Packed
    torch.testing.assert_close(out, x @ weight.values_.t() + layer.bias)

    class Both(Packed):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "function"

    assert torch.sin(Both(torch.rand(2))) == "function"


def test_more_operators_have_the_names_of_aten():
    x = torch.rand(1, 1, 4, 4)
    assert seen_by_a_mode(lambda: x.clamp(0.2, 0.7)) == ["clamp"]
    assert seen_by_a_mode(lambda: x.norm()) == ["linalg_vector_norm"]
    assert seen_by_a_mode(lambda: torch.nn.functional.max_pool2d(x, 2)) == ["max_pool2d_with_indices"]


class Pair(torch.Tensor):
    """Two tensors that go the same way."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype)

    def __init__(self, a, b):
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def one(side):
            plain = tree_map(lambda x: getattr(x, side) if isinstance(x, cls) else x, (args, kwargs or {}))
            return func(*plain[0], **plain[1])

        return tree_map(lambda x, y: cls(x, y) if isinstance(x, torch.Tensor) else x, one("a"), one("b"))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adamax"])
def test_steps_of_optimizers_count_once(name):
    start, other = torch.linspace(-1, 1, 4), torch.linspace(2, 1, 4)
    pair = torch.nn.Parameter(Pair(start.clone(), other.clone()))
    plain = [torch.nn.Parameter(start.clone()), torch.nn.Parameter(other.clone())]
    steps = [getattr(torch.optim, name)(ps, lr=0.1) for ps in ([pair], plain)]
    for _ in range(3):
        for optimizer, parameters in zip(steps, ([pair], plain)):
            optimizer.zero_grad()
            for p in parameters:
                (p * p).sum().backward()
            optimizer.step()
    torch.testing.assert_close(pair.a, plain[0].detach())
    torch.testing.assert_close(pair.b, plain[1].detach())


def test_every_step_of_an_optimizer_has_parts():
    from flambeau.ops.record import load
    from flambeau.ops.rules import aten_parts

    assert {n for n in load() if n.startswith("_update_")} <= set(aten_parts.all())
