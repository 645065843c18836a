"""The stand-ins that the interpreter computes with in place of real values.

Ordinary Python values stand for themselves. Tensors are `TracedTensor`s, which record what is done to them; Python
functions handed to native code are `Interpreted`, and suspended generators are `TracedGenerator`s.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau import _C
from flambeau._dynamo import breaks, float_facts
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.bytecode import runs_code_on_exit

if TYPE_CHECKING:
    from flambeau._dynamo.source import Source
    from flambeau._dynamo.trace import Tracer
    from flambeau.ops.symbolic.numbers import SymFloat


class _Null:
    """An empty slot: the NULL of the value stack, an unbound variable, a deleted attribute."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<null>"


NULL = _Null()


class Lazy:
    """An argument that nothing has looked at yet, and that needs no guard while that is so."""

    __slots__ = ("value", "source")

    def __init__(self, value: Any, source: Source) -> None:
        self.value = value
        self.source = source


class TracedTensor:
    """A tensor of the captured graph: its node, and a fake tensor that has its shape."""

    __slots__ = (
        "tracer",
        "node",
        "fake",
        "source",
        "cls",
        "real",
        "slots",
        "first_geometry",
        "inference",
        "__weakref__",
    )

    def __init__(self, tracer: Tracer, node: Any, fake: Any, source: Source | None, cls: type) -> None:
        self.tracer = tracer
        self.node = node
        self.fake = fake
        self.source = source
        self.cls = cls
        # Of tensors from outside: the real one, the symbols of its sizes for the guards, sizes and strides at first.
        self.real: Any = None
        self.slots: list[int] = []
        self.first_geometry: Any = None
        self.inference: bool = source is None and tracer.modes.inference

    def __repr__(self) -> str:
        raise Unsupported(breaks.PRINT, "text of a tensor")

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        raise Unsupported(breaks.PRINT, "text of a tensor")

    def __bool__(self) -> bool:
        raise Unsupported(breaks.BRANCH)

    def __len__(self) -> int:
        if not self.fake.ndim:
            raise TypeError("len() of a 0-d tensor")
        return int(self.fake.shape[0])  # native callers need a number

    def _value(self, *args: Any) -> Any:
        raise Unsupported(breaks.TENSOR_VALUE)

    __int__ = __float__ = __complex__ = __index__ = _value
    __contains__ = _value

    def __iter__(self) -> Any:
        if not self.fake.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.tracer.builder.call_method("unbind", (self, 0), {}))

    def __getitem__(self, key: Any) -> Any:
        return self.tracer.builder.call_function(operator.getitem, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.builder.call_function(operator.setitem, (self, key, value), {})

    __hash__ = object.__hash__

    def __eq__(self, other: Any) -> Any:
        return self.tracer.builder.call_function(operator.eq, (self, other), {})

    def __ne__(self, other: Any) -> Any:
        return self.tracer.builder.call_function(operator.ne, (self, other), {})


def _define_operators() -> None:
    def forward(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, other: self.tracer.builder.call_function(function, (self, other), {})

    def reflected(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, other: self.tracer.builder.call_function(function, (other, self), {})

    def unary(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self: self.tracer.builder.call_function(function, (self,), {})

    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
        function = getattr(operator, name + "_" if name in ("and", "or") else name)
        setattr(TracedTensor, f"__{name}__", forward(function))
        setattr(TracedTensor, f"__r{name}__", reflected(function))
        setattr(TracedTensor, f"__i{name}__", forward(getattr(operator, "i" + name)))
    for name in "lt le gt ge".split():
        setattr(TracedTensor, f"__{name}__", forward(getattr(operator, name)))
    for name in "neg pos invert abs".split():
        setattr(TracedTensor, f"__{name}__", unary(getattr(operator, name)))


_define_operators()


class VaryingInt(int):
    """An integer from outside that is an input of the graph, whatever its value."""

    symbol: Any = None  # once it was read


class TracedNumber:
    """A float from outside (or a number drawn at random) that is an input of the graph, or computed from such.

    It can be calculated with; where its value decides something, the floats it came from are guarded.
    """

    __slots__ = ("tracer", "node", "hint", "source", "roots", "unknown", "of_sizes", "computed")

    def __init__(
        self,
        tracer: Tracer,
        node: Any,
        hint: float,
        source: Source | None,
        roots: dict[Source, float],
        unknown: breaks.Record | None = None,
        of_sizes: SymFloat | None = None,
    ) -> None:
        self.tracer = tracer
        self.node = node
        self.hint = hint
        self.source = source
        self.roots = roots
        self.unknown = unknown  # read from a tensor or drawn: the hint means nothing
        self.of_sizes = of_sizes  # how it is computed, if from sizes alone
        self.computed: Any = None  # the one source that it is computed from, and how

    def specialize(self) -> float:
        """The value, assumed from now on."""
        if self.unknown:
            raise Unsupported(self.unknown, "that the program depends on")
        if self.of_sizes is not None:
            return float(self.of_sizes)
        for source, value in self.roots.items():
            source.checks.pop(("float", None), None)
            source.check("equals", value)
        return self.hint

    def __float__(self) -> float:
        return self.specialize()

    def __int__(self) -> int:
        return int(self.decide(int))

    def __bool__(self) -> bool:
        return bool(self.decide(bool))

    def decide(self, function: Callable[..., Any], *others: Any) -> Any:
        """What a function makes of the number, assumed from now on: the number itself may be another."""
        known = float_facts.decide(function, (self, *others), (self.hint, *others))
        return function(self.specialize(), *others) if known is None else known[0]

    def __hash__(self) -> int:
        return hash(self.specialize())

    def __repr__(self) -> str:
        return repr(self.specialize())

    def __format__(self, spec: str) -> str:
        return format(self.specialize(), spec)


def _define_arithmetic() -> None:
    def plain(value: Any) -> Any:
        return value.specialize() if isinstance(value, TracedNumber) else value

    def arithmetic(function: Callable[..., Any], swap: bool) -> Callable[..., Any]:
        def method(self: Any, other: Any) -> Any:
            if isinstance(other, TracedTensor):
                return NotImplemented
            if not isinstance(other, (int, float, TracedNumber)):
                return function(*((other, plain(self)) if swap else (plain(self), other)))
            return self.tracer.builder.call_number(function, *((other, self) if swap else (self, other)))

        return method

    def exact(function: Callable[..., Any], swap: bool) -> Callable[..., Any]:
        def method(self: Any, other: Any) -> Any:
            a, b = plain(self), plain(other)
            return function(b, a) if swap else function(a, b)

        return method

    for name in "add sub mul truediv".split():
        setattr(TracedNumber, f"__{name}__", arithmetic(getattr(operator, name), False))
        setattr(TracedNumber, f"__r{name}__", arithmetic(getattr(operator, name), True))
    for name in "floordiv mod pow".split():
        setattr(TracedNumber, f"__{name}__", exact(getattr(operator, name), False))
        setattr(TracedNumber, f"__r{name}__", exact(getattr(operator, name), True))

    def comparison(function: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, other: Any) -> Any:
            if type(other) in (int, float, bool):
                return self.decide(function, other)
            return function(plain(self), plain(other))

        return method

    for name in "lt le gt ge eq ne".split():
        setattr(TracedNumber, f"__{name}__", comparison(getattr(operator, name)))
    for name in "neg pos abs".split():
        function = getattr(operator, name)
        setattr(
            TracedNumber,
            f"__{name}__",
            lambda self, _function=function: self.tracer.builder.call_number(_function, self),
        )
    TracedNumber.__round__ = lambda self, *digits: self.decide(round, *digits)
    TracedNumber.__trunc__ = lambda self: self.decide(int)
    TracedNumber.__floor__ = lambda self: self.decide(math.floor)
    TracedNumber.__ceil__ = lambda self: self.decide(math.ceil)


_define_arithmetic()


class TensorMethod:
    """A method of a traced tensor, not yet called."""

    __slots__ = ("tensor", "name")

    def __init__(self, tensor: TracedTensor, name: str) -> None:
        self.tensor = tensor
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tensor.tracer.builder.call_method(self.name, (self.tensor, *args), kwargs)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TensorMethod) and self.tensor is other.tensor and self.name == other.name

    def __hash__(self) -> int:
        return hash((id(self.tensor), self.name))


class TracedHandle:
    """What registering a hook returned: a node of the graph."""

    __slots__ = ("tracer", "node")

    def __init__(self, tracer: Tracer, node: Any) -> None:
        self.tracer = tracer
        self.node = node

    def remove(self) -> None:
        self.tracer.builder.graph.call_method("remove", (self.node,))


class TracedReference:
    """A weak reference that the program made: what it refers to is alive as long as the capture lasts."""

    __slots__ = ("referent",)

    def __init__(self, referent: Any) -> None:
        self.referent = referent


class Interpreted:
    """A Python callable as native code sees it: calling it runs the interpreter."""

    __slots__ = ("tracer", "function")

    def __init__(self, tracer: Tracer, function: Any) -> None:
        self.tracer = tracer
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.tracer.call(self.function, args, kwargs)
        except UserError as error:
            raise error.exception from None


class TracedIterator:
    """An object with __next__ in Python, as native code sees it."""

    __slots__ = ("tracer", "iterator")

    def __init__(self, tracer: Tracer, iterator: Any) -> None:
        self.tracer = tracer
        self.iterator = iterator

    def __iter__(self) -> TracedIterator:
        return self

    def __next__(self) -> Any:
        try:
            return self.tracer.call_special(self.iterator, "__next__")
        except UserError as error:
            raise error.exception from None


class TracedGenerator:
    """A generator whose frame is run by the interpreter."""

    __slots__ = ("tracer", "frame", "running", "finished", "started", "__name__", "__qualname__")

    def __init__(self, tracer: Tracer, frame: Any) -> None:
        self.tracer = tracer
        self.frame = frame
        self.running = self.finished = self.started = False
        self.__name__: str = frame.code.co_name
        self.__qualname__: str = frame.code.co_qualname
        tracer.generators.append(self)

    def _resume(self, value: Any, error: BaseException | None) -> Any:
        if self.running:
            raise ValueError("generator already executing")
        if self.finished:
            if error is not None:
                raise error
            raise StopIteration
        if error is not None and not self.started:
            self.finished = True
            raise error
        self.running = True
        first, self.started = not self.started, True
        if first and value is not None:
            self.running = self.started = False
            raise TypeError("can't send non-None value to a just-started generator")
        try:
            done, result = self.frame.resume(value, error, first)
        except UserError as raised:
            self.finished = True
            if isinstance(raised.exception, StopIteration):
                wrapped = RuntimeError("generator raised StopIteration")
                wrapped.__cause__ = wrapped.__context__ = raised.exception
                raise wrapped from raised.exception
            raise raised.exception from None
        except BaseException:
            self.finished = True
            raise
        finally:
            self.running = False
        if done:
            self.finished = True
            stop = StopIteration() if result is None else StopIteration(result)
            raise stop
        return result

    def has_cleanup(self) -> bool:
        """Whether it is suspended in a try block: dropping it would run code."""
        if not self.started or self.finished:
            return False
        return runs_code_on_exit(self.frame.decoded, self.frame.current.offset)

    def __iter__(self) -> TracedGenerator:
        return self

    def __next__(self) -> Any:
        return self._resume(None, None)

    def send(self, value: Any) -> Any:
        return self._resume(value, None)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        if isinstance(kind, type):
            kind = kind() if value is None else value if isinstance(value, kind) else kind(value)
        return self._resume(None, kind)

    def close(self) -> Any:
        if self.finished or not self.started:
            self.finished = True
            return None
        try:
            self._resume(None, GeneratorExit())
        except GeneratorExit:
            return None
        except StopIteration as stop:
            return stop.value if sys.version_info >= (3, 13) else None
        raise RuntimeError("generator ignored GeneratorExit")


def tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors among arguments, those in lists too."""
    for value in values:
        if isinstance(value, _C.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)
