"""NumPy arrays while capturing: a `TracedArray` is a tensor of the graph that the program sees as an array.

Calls of NumPy functions are looked up in one table (`numpy_table.py`). What the dtype of a result is, NumPy itself is asked
at capture. What is not in the table breaks the graph, and Python does it. NumPy is used only when the program has imported it.
"""

from __future__ import annotations

import math
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import flambeau as fl
from flambeau._dynamo import breaks
from flambeau._dynamo.breaks import SkipFrame, Unsupported, UserError
from flambeau._dynamo.sizes import SYMBOLIC, SymInt, plain
from flambeau._dynamo.traced import TracedNumber, TracedTensor

if TYPE_CHECKING:
    from flambeau._dynamo.rebuild import Rebuilder
    from flambeau._dynamo.source import Source
    from flambeau._dynamo.trace import Tracer


def numpy() -> Any:
    return sys.modules["numpy"]


def is_usable() -> bool:
    """Whether NumPy is there, and has the rules of promotion of its second version."""
    np = sys.modules.get("numpy")
    return np is not None and hasattr(np, "ufunc") and not np.__version__.startswith(("0.", "1."))


def is_numpy(cls: type) -> bool:
    """Whether a class is one of NumPy's."""
    module = cls.__module__
    return type(module) is str and (module == "numpy" or module.startswith("numpy."))


def refuse(detail: str) -> NoReturn:
    raise Unsupported(breaks.NUMPY, detail)


class LazyView(NamedTuple):
    """How an array is a view that no tensor can be: of negative strides, or at a computed place."""

    parent: TracedArray
    read: Callable[[Any], Any]  # the view's elements, from the parent's
    put: Callable[[Any, Any], Any]  # stores all of the view's elements into the parent's
    make: Callable[[Rebuilder, str], str]  # code that makes the view of the real parent


class TracedArray:
    """An array, or (`scalar`) a scalar of NumPy, whose elements are a tensor of the graph."""

    __slots__ = ("tracer", "base", "dtype", "scalar", "source", "writable", "lazy", "__weakref__")
    __array_ufunc__ = None

    def __init__(
        self,
        tracer: Tracer,
        base: TracedTensor,
        scalar: bool = False,
        source: Source | None = None,
        writable: bool = True,
        lazy: LazyView | None = None,
    ) -> None:
        self.tracer = tracer
        self.base = base  # shares the array's memory; of a lazy view, a copy that has its shape
        self.dtype = array_dtype(base.fake.dtype)
        self.scalar = scalar
        self.source = source
        self.writable = writable
        self.lazy = lazy

    @property
    def tensor(self) -> TracedTensor:
        """The elements as they are now."""
        return self.base if self.lazy is None else self.lazy.read(self.lazy.parent.tensor)

    @property
    def ndim(self) -> int:
        return int(self.base.fake.ndim)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.base.fake.shape)

    def write(self, value: Any) -> None:
        """Replaces all elements."""
        if self.scalar or not self.writable:
            refuse("a store into an array that cannot be written to")
        if self.lazy is None:
            self.tracer.builder.call_method("copy_", (self.base, value), {})
            return
        parent = self.lazy.parent
        if parent.lazy is None:
            self.lazy.put(parent.base, value)
        else:
            elements = self.tracer.builder.call_method("clone", (parent.tensor,), {})
            self.lazy.put(elements, value)
            parent.write(elements)

    def _value(self, *args: Any) -> Any:
        raise Unsupported(breaks.TENSOR_VALUE, "of an array")

    __int__ = __float__ = __complex__ = __index__ = __contains__ = _value

    def __bool__(self) -> bool:
        raise Unsupported(breaks.BRANCH, "on an array")

    def _text(self, *args: Any) -> str:
        raise Unsupported(breaks.PRINT, "text of an array")

    __repr__ = __str__ = __format__ = _text
    __hash__ = object.__hash__

    def __len__(self) -> int:
        return int(length(self))

    def __iter__(self) -> Any:
        return iter([subscript(self.tracer, self, i) for i in range(int(length(self)))])


class ArrayMethod:
    """A method of a traced array, not yet called."""

    __slots__ = ("array", "name")

    def __init__(self, array: TracedArray, name: str) -> None:
        self.array = array
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from flambeau._dynamo import numpy_table

        return numpy_table.call_method(self.array, self.name, args, kwargs)


class Constant(NamedTuple):
    """A number among the operands: `kind` is int, float or complex where it adapts to the others, else a dtype."""

    value: Any
    kind: Any


# What the operators of the language are called in NumPy.
_UFUNCS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
    "rshift": "right_shift", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
    "ne": "not_equal", "neg": "negative", "pos": "positive", "invert": "invert", "abs": "absolute",
}  # fmt: skip


def operate(name: str, *operands: Any, inplace: bool = False) -> Any:
    """An operator of the language; `name` is that of its special method."""
    tracer = next(o for o in operands if type(o) is TracedArray).tracer
    if any(type(o) is TracedTensor for o in operands):
        return _beside_tensor(tracer, name, operands)
    ufunc = getattr(numpy(), _UFUNCS[name])
    out = operands[0] if inplace and type(operands[0]) is TracedArray and not operands[0].scalar else None
    return call_ufunc(tracer, ufunc, operands, {} if out is None else {"out": out})


def _beside_tensor(tracer: Tracer, name: str, operands: tuple[Any, ...]) -> Any:
    """An operator on a tensor and a scalar of NumPy: the scalar is a number for the tensor."""
    array = next(o for o in operands if type(o) is TracedArray)
    tensor = next(o for o in operands if type(o) is TracedTensor)
    kinds = "biufc"
    wider = kinds.index(array.dtype.kind) > kinds.index(array_dtype(tensor.fake.dtype).kind)
    if not array.scalar or len(operands) != 2 or not tensor.fake.ndim or wider:
        refuse("an operator on a tensor and an array")
    from flambeau._dynamo import operations

    function = operations.function_of(name)
    return tracer.builder.call_function(function, tuple(array.tensor if o is array else o for o in operands), {})


def _define_operators() -> None:
    def binary(name: str, swap: bool, inplace: bool = False) -> Callable[..., Any]:
        return lambda self, other: operate(name, *((other, self) if swap else (self, other)), inplace=inplace)

    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
        setattr(TracedArray, f"__{name}__", binary(name, False))
        setattr(TracedArray, f"__r{name}__", binary(name, True))
        setattr(TracedArray, f"__i{name}__", binary(name, False, True))
    for name in "lt le gt ge eq ne".split():
        setattr(TracedArray, f"__{name}__", binary(name, False))
    for name in "neg pos invert abs".split():
        setattr(TracedArray, f"__{name}__", lambda self, _name=name: operate(_name, self))


_define_operators()


# ---------------------------------------------------------------------------------------------- dtypes

_DTYPES = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
_tables: dict[str, dict[Any, Any]] = {}


def _table(to: str) -> dict[Any, Any]:
    if not _tables:
        pairs = [(numpy().dtype(name), getattr(fl, name)) for name in _DTYPES]
        _tables["tensor"] = dict(pairs)
        _tables["array"] = {b: a for a, b in pairs}
    return _tables[to]


def tensor_dtype(dtype: Any) -> Any:
    """The dtype of tensors for one of NumPy's (or what NumPy takes for one)."""
    tensor_type = _table("tensor").get(numpy().dtype(dtype))
    return refuse(f"arrays of {dtype}") if tensor_type is None else tensor_type


def array_dtype(dtype: Any) -> Any:
    array_type = _table("array").get(dtype)
    return refuse(f"arrays of {dtype}") if array_type is None else array_type


def cast(tensor: TracedTensor, dtype: Any) -> TracedTensor:
    wanted = tensor_dtype(dtype)
    if tensor.fake.dtype == wanted:
        return tensor
    return tensor.tracer.builder.call_method("to", (tensor, wanted), {})  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------- from and to outside


registered: list[Any] = []  # NumPy, when its functions are known


def is_scalar(args: tuple[Any, ...]) -> bool:
    """Whether the only argument is a scalar of NumPy in the graph."""
    return len(args) == 1 and type(args[0]) is TracedArray and args[0].scalar


def backwards(array: Any) -> tuple[int, ...]:
    """The dimensions of negative strides."""
    return tuple(i for i, stride in enumerate(array.strides) if stride < 0)


def as_tensor(array: Any) -> Any:
    """The tensor that shares an array's memory, all dimensions forwards; a scalar's is new."""
    array = array if type(array) is numpy().ndarray else numpy().asarray(array)
    turned = backwards(array)
    if turned:
        array = array[tuple(slice(None, None, -1 if i in turned else None) for i in range(array.ndim))]
    return fl.from_numpy(array)


def wrap(tracer: Tracer, value: Any, source: Source) -> Any:
    """The stand-in of a value of NumPy from outside."""
    np = numpy()
    cls = type(value)
    if not is_usable():
        return tracer.outside.wrap_object(value, source)
    if cls is np.ndarray or (isinstance(value, np.generic) and source.describe() in tracer.outside.varying):
        try:
            tensor = as_tensor(value)
            array_dtype(tensor.dtype)
        except (TypeError, ValueError, Unsupported):
            return tracer.outside.wrap_object(value, source)  # of objects, of text: only Python can handle it
        source.check("type", cls)
        traced = tracer.builder.add_input(tensor, source.apply(as_tensor))
        tracer.outside.memo[id(tensor)] = (tensor, traced)
        stand_in = TracedArray(tracer, traced, cls is not np.ndarray, source)
        if cls is np.ndarray:
            source.apply(backwards).check("equals", backwards(value))
            stand_in.writable = bool(value.flags.writeable)
            source.attribute("flags").attribute("writeable").check("equals", stand_in.writable)
            if backwards(value):
                key = tuple(slice(None, None, -1 if i in backwards(value) else None) for i in range(value.ndim))
                stand_in = subscript(tracer, TracedArray(tracer, traced, writable=stand_in.writable), key)
                stand_in.source = source
            tracer.outside.distinct.append(source)
        tracer.outside.memo[id(value)] = (value, stand_in)
        return stand_in
    if isinstance(value, (np.generic, np.dtype)):
        source.check("equals", value)
        return value
    if isinstance(value, np.ufunc) or callable(value):
        source.check("id", value)
        tracer.outside.register(value, tracer.outside.sources.constant(value))
        return value
    return tracer.outside.wrap_object(value, source)


def from_tensor(tracer: Tracer, tensor: TracedTensor, force: Any = False) -> TracedArray:
    """tensor.numpy()"""
    if not is_usable():
        raise Unsupported(breaks.TENSOR_VALUE, "numpy")
    if force:
        tensor = tracer.builder.call_method("detach", (tensor,), {})
    fake = tensor.fake
    if fake.requires_grad or fake.fake_device.type != "cpu" or tensor.cls.__name__ not in ("Tensor", "Parameter"):
        raise Unsupported(breaks.TENSOR_VALUE, "numpy")
    return TracedArray(tracer, tensor)


def on_host() -> dict[str, Any]:
    """Where tensors that stand for new arrays go, as an argument where that is not the default."""
    return {} if fl.get_default_device().type == "cpu" else {"device": fl.device("cpu")}


def to_tensor(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """from_numpy(), as_tensor(), asarray() and tensor() of an array."""
    array, *rest = args
    if rest or set(kwargs) - {"dtype", "device"}:
        refuse(f"{function.__name__} of an array with these arguments")
    device = kwargs.get("device")
    if device is None and function is not fl.from_numpy:
        device = fl.get_default_device()
    if device is not None and fl.device(device).type != "cpu":
        refuse(f"{function.__name__} of an array for another device")
    if type(array) is not TracedArray or (array.scalar and function is fl.from_numpy):
        refuse(f"{function.__name__} of these arrays")
    if function is fl.from_numpy and kwargs:
        refuse("from_numpy with keywords")
    if (array.lazy is not None or not array.writable) and function is not fl.tensor:
        refuse(f"{function.__name__} of an array that cannot be shared")
    dtype = kwargs.get("dtype")
    tensor = array.tensor
    if function is fl.tensor or array.scalar:
        copy = tracer.builder.call_method("clone", (tensor,), {})
    else:
        copy = tracer.builder.call_method("detach", (tensor,), {})
    return copy if dtype is None else tracer.builder.call_method("to", (copy, dtype), {})


def holds_array(value: Any) -> bool:
    if type(value) is TracedArray:
        return True
    if isinstance(value, (tuple, list)):
        return any(holds_array(v) for v in value)
    return isinstance(value, dict) and any(holds_array(v) for v in value.values())


def constant(tracer: Tracer, value: Any) -> TracedArray:
    """An array that is the same in each call, new each time."""
    tensor = as_tensor(numpy().array(value, order="C"))
    traced = tracer.outside.wrap(tensor, tracer.outside.sources.constant(tensor))
    return TracedArray(tracer, tracer.builder.call_method("clone", (traced,), {}))


def as_array(tracer: Tracer, value: Any) -> TracedArray:
    """What NumPy's asarray() makes of an argument."""
    cls = type(value)
    if cls is TracedArray:
        return value  # type: ignore[no-any-return]
    if cls is TracedTensor:
        return from_tensor(tracer, value)
    if isinstance(value, (tuple, list)) and holds_array(value):
        parts = [as_array(tracer, v) for v in value]
        dtype = numpy().result_type(*(p.dtype for p in parts))
        tensors = [cast(p.tensor, dtype) for p in parts]
        return TracedArray(tracer, tracer.builder.call_function(fl.stack, (tensors,), {}))
    value = _plain(value)
    if cls is TracedNumber:
        return TracedArray(
            tracer, tracer.builder.call_function(fl.full, ((), value), {"dtype": fl.float64, **on_host()})
        )
    if not is_known(value):
        refuse(f"an array of {cls.__name__}")
    return constant(tracer, value)


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(_plain(v) for v in value)
    return plain(value)


def is_known(value: Any) -> bool:
    """Whether a value is the same object for NumPy as for the program, and never changes."""
    np = numpy()
    if value is None or isinstance(value, (bool, int, float, complex, str, np.generic, np.dtype, type(Ellipsis))):
        return type(value) not in SYMBOLIC
    if isinstance(value, type):
        return value in (bool, int, float, complex) or issubclass(value, np.generic)
    if type(value) in (tuple, list):
        return all(is_known(v) for v in value)
    if type(value) is slice:
        return all(is_known(v) for v in (value.start, value.stop, value.step))
    return value is np._NoValue


# ---------------------------------------------------------------------------------------------- functions of elements


def operand(tracer: Tracer, value: Any) -> Any:
    """A TracedArray, or a Constant."""
    cls = type(value)
    if cls is TracedArray:
        return value
    if cls is SymInt or cls is int:
        return Constant(value, int)
    if cls is TracedNumber or cls is float:
        return Constant(value, float)
    if cls is complex:
        return Constant(value, complex)
    if cls is bool:
        return Constant(value, numpy().dtype(bool))
    if isinstance(value, numpy().generic):
        return Constant(value, value.dtype)
    if cls is TracedTensor:
        refuse("a function of NumPy on a tensor")
    return as_array(tracer, value)


def number(value: Any, dtype: Any) -> Any:
    """A number as one of that dtype."""
    if type(value) is SymInt:
        return value if dtype.kind in "if" and dtype.itemsize == 8 else number(int(value), dtype)
    if type(value) is TracedNumber:
        return value if dtype.kind == "f" and dtype.itemsize > 2 else number(value.specialize(), dtype)
    try:
        return dtype.type(value).item()
    except (OverflowError, TypeError, ValueError):
        return refuse("a number that does not fit into the array's dtype")


def call_ufunc(tracer: Tracer, ufunc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of elements, by the loop that NumPy would choose."""
    from flambeau._dynamo import numpy_table

    rule = numpy_table.UFUNCS.get(ufunc.__name__)
    out, dtype = kwargs.get("out"), kwargs.get("dtype")
    if rule is None or ufunc.nout != 1 or set(kwargs) - {"out", "dtype"}:
        refuse(f"np.{ufunc.__name__}" + (" with these keywords" if rule else ""))
    if len(args) == ufunc.nin + 1:
        *args, out = args  # type: ignore[assignment]
    if len(args) != ufunc.nin:
        refuse(f"np.{ufunc.__name__} of {len(args)} arguments")
    if isinstance(out, tuple):
        (out,) = out
    operands = [operand(tracer, a) for a in args]
    kinds = [o.kind if type(o) is Constant else o.dtype for o in operands]
    chosen = {} if dtype is None else {"signature": (*(None for _ in kinds), numpy().dtype(dtype))}
    try:
        loop = ufunc.resolve_dtypes((*kinds, None), **chosen)
    except (TypeError, ValueError) as error:
        refuse(f"np.{ufunc.__name__}: {error}")
    if ufunc.__name__ == "power" and loop[0].kind in "iub":
        exponent = operands[1]
        fixed = type(exponent) is Constant and type(exponent.value) is not SymInt
        if not fixed or exponent.value < 0 or loop[0] != kinds[0]:
            refuse("an integer to a power that may be negative")
    values: list[Any] = []
    for value, wanted in zip(operands, loop):
        if type(value) is not Constant:
            values.append(cast(value.tensor, wanted))
            continue
        converted = number(value.value, wanted)
        if ufunc.__name__ not in numpy_table.WITH_NUMBERS or type(converted) is SymInt:
            converted = tracer.builder.call_function(
                fl.full, ((), converted), {"dtype": tensor_dtype(wanted), **on_host()}
            )
        values.append(converted)
    result = cast(rule(tracer, *values), loop[-1])
    if out is None:
        return TracedArray(tracer, result, scalar=not result.fake.ndim)
    if type(out) is not TracedArray or not numpy().can_cast(loop[-1], out.dtype, "same_kind"):
        refuse(f"np.{ufunc.__name__} into an array of another kind")
    if tuple(result.fake.shape) != out.shape and len(result.fake.shape) > out.ndim:
        refuse(f"np.{ufunc.__name__} into a smaller array")
    out.write(cast(result, out.dtype))
    return out


# ---------------------------------------------------------------------------------------------- attributes, items


def load(tracer: Tracer, array: TracedArray, name: str) -> Any:
    """array.name"""
    from flambeau._dynamo import numpy_table

    if name == "shape":
        return array.shape
    if name in ("ndim", "dtype"):
        return getattr(array, name)
    if name == "size":
        return math.prod(array.shape)
    if name == "itemsize":
        return array.dtype.itemsize
    if name == "nbytes":
        return math.prod(array.shape) * array.dtype.itemsize
    if name == "T":
        return numpy_table.call_method(array, "transpose", (), {})
    if name in ("real", "imag") and (array.dtype.kind == "c" or name == "real"):
        if array.dtype.kind != "c":
            return array
        return view(array, lambda tensor: tracer.builder.call_function(getattr, (tensor, name), {}), name)
    if name == "__class__":
        return array.dtype.type if array.scalar else numpy().ndarray
    kind = array.dtype.type if array.scalar else numpy().ndarray
    if not hasattr(kind, name):
        raise UserError(AttributeError(f"'{kind.__module__}.{kind.__name__}' object has no attribute '{name}'"))
    if isinstance(getattr(kind, name), types.MethodDescriptorType) and not name.startswith("__"):
        return ArrayMethod(array, name)
    return refuse(f"ndarray.{name}")


def view(array: TracedArray, function: Callable[[Any], Any], name: str, *args: Any) -> TracedArray:
    """What a function that makes views of tensors makes of an array; `name` and `args` say the same to NumPy."""
    if array.lazy is None:
        return TracedArray(array.tracer, function(array.base), array.scalar, writable=array.writable)
    tracer = array.tracer

    def put(tensor: Any, value: Any) -> None:
        tracer.builder.call_method("copy_", (function(tensor), value), {})

    def make(rebuilder: Rebuilder, parent: str) -> str:
        arguments = "".join(", " + rebuilder.value(a) for a in args)
        return f"{rebuilder.names.add(getattr(numpy(), name))}({parent}{arguments})"

    lazy = LazyView(array, function, put, make)
    return TracedArray(tracer, function(array.tensor), array.scalar, writable=array.writable, lazy=lazy)


def _lazy_item(array: TracedArray, key: Any, parts: tuple[Any, ...], flips: tuple[int, ...]) -> TracedArray:
    """array[key], where a tensor cannot be that view."""
    tracer = array.tracer

    def turned(tensor: Any) -> Any:
        return tracer.builder.call_function(fl.flip, (tensor, flips), {}) if flips else tensor

    def read(tensor: Any) -> Any:
        return turned(tracer.builder.call_function(operator.getitem, (tensor, parts), {}))

    def put(tensor: Any, value: Any) -> None:
        tracer.builder.call_function(operator.setitem, (tensor, parts, turned(value)), {})

    lazy = LazyView(array, read, put, lambda rebuilder, parent: f"{parent}[{rebuilder.value(key)}]")
    return TracedArray(tracer, read(array.tensor), writable=array.writable, lazy=lazy)


def length(array: TracedArray) -> Any:
    if not array.ndim:
        raise UserError(TypeError("len() of unsized object"))
    return array.base.fake.shape[0]


def subscript(tracer: Tracer, array: TracedArray, key: Any) -> Any:
    """array[key]"""
    parts, copies, flips = _key(tracer, array, key)
    result = tracer.builder.call_function(operator.getitem, (array.tensor, parts), {})
    if not isinstance(result, TracedTensor):
        refuse("this kind of index")
    if not result.fake.ndim and Ellipsis not in parts:
        return TracedArray(tracer, tracer.builder.call_method("clone", (result,), {}), scalar=True)
    if copies is True:
        return TracedArray(tracer, result)
    if copies or flips or array.lazy is not None:
        return _lazy_item(array, key, parts, flips)
    return TracedArray(tracer, result, writable=array.writable)


def store(tracer: Tracer, array: TracedArray, key: Any, value: Any) -> None:
    """array[key] = value"""
    if array.scalar or not array.writable:
        refuse("a store into an array that cannot be written to")
    parts, _, flips = _key(tracer, array, key)
    source = operand(tracer, value) if type(value) is not TracedTensor else from_tensor(tracer, value)
    if type(source) is Constant:
        item = source.value
        if not isinstance(item, (SymInt, TracedNumber)):
            with numpy().errstate(all="ignore"):
                item = numpy().asarray(item).astype(array.dtype).item()
        elif array.dtype.kind not in ("if" if type(item) is SymInt else "f"):
            refuse("a store of a number into an array of another kind")
    else:
        item = cast(source.tensor, array.dtype)
        if flips:
            item = tracer.builder.call_function(fl.flip, (_broadcast(tracer, array, parts, item), flips), {})
    if array.lazy is not None:
        changed = tracer.builder.call_method("clone", (array.tensor,), {})
        tracer.builder.call_function(operator.setitem, (changed, parts, item), {})
        array.write(changed)
    else:
        tracer.builder.call_function(operator.setitem, (array.base, parts, item), {})


def _broadcast(tracer: Tracer, array: TracedArray, parts: Any, item: Any) -> Any:
    shape = tracer.builder.call_function(operator.getitem, (array.tensor, parts), {}).fake.shape
    return tracer.builder.call_function(fl.broadcast_to, (item, tuple(shape)), {})


def _key(tracer: Tracer, array: TracedArray, key: Any) -> tuple[tuple[Any, ...], Any, tuple[int, ...]]:
    """An index for tensors; whether the result is a copy ("view": that stands for a view); what to see backwards."""
    np = numpy()
    key_parts = list(key) if type(key) is tuple else [key]
    parts: list[Any] = []
    advanced: list[int] = []  # positions of index arrays, and of integers, which count as such beside them
    integers: list[int] = []
    arrays_used = masks = computed = 0
    backwards: list[int] = []  # positions in the result
    place = dims = 0  # dimensions of the result and of the array so far
    taken = sum(_consumes(part) for part in key_parts)
    for index, part in enumerate(key_parts):
        if isinstance(part, np.generic) or type(part) is bool:
            part = part.item() if isinstance(part, np.integer) else refuse("a scalar mask as an index")
        if part is None:
            parts.append(None)
            place += 1
        elif part is Ellipsis:
            parts.append(part)
            place += array.ndim - taken
            dims += array.ndim - taken
        elif type(part) is slice:
            step = plain(part.step)
            if step is not None and step < 0:
                part = _forward(part, int(array.base.fake.shape[dims]), int(step))
                backwards.append(place)
            parts.append(part)
            place += 1
            dims += 1
        elif type(part) in (int, SymInt):
            parts.append(part)
            integers.append(index)
            dims += 1
        else:
            chosen = as_array(tracer, part)
            if chosen.dtype.kind == "b":
                masks += 1
                dims += chosen.ndim
                parts.append(chosen.tensor)
            elif chosen.dtype.kind in "iu":
                dims += 1
                parts.append(cast(chosen.tensor, np.int64))
                computed += not chosen.ndim
            else:
                refuse("an index of this dtype")
            arrays_used += bool(chosen.ndim)
            advanced.append(index)
    if (arrays_used or masks) and integers:
        refuse("integers and arrays in one index")
    if backwards and advanced:
        refuse("a reversed slice and arrays in one index")
    copies: Any = bool(arrays_used or masks) or ("view" if computed else False)
    return tuple(parts), copies, tuple(backwards)


def _consumes(part: Any) -> int:
    """How many dimensions an index is about."""
    if part is None or part is Ellipsis:
        return 0
    if type(part) is TracedArray and part.dtype.kind == "b":
        return part.ndim
    return 1


def _forward(part: slice, size: int, step: int) -> slice:
    """The slice with a positive step that has the same elements, in the opposite order."""
    start, stop, _ = slice(plain(part.start), plain(part.stop), step).indices(size)
    count = len(range(start, stop, step))
    if not count:
        return slice(0, 0, 1)
    last = start + (count - 1) * step
    return slice(last, start + 1, -step)


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """What goes wrong inside is done, or raised, by NumPy itself."""

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (Unsupported, UserError, SkipFrame):
            raise
        except Exception as error:
            return refuse(f"{type(error).__name__}: {error}")

    return run
