"""Integers that a trace follows: sizes of tensors and what is computed from them."""

from __future__ import annotations

from typing import Any


class TracedInt(int):
    """An integer with the value of the graph that it is."""

    value: Any
    tracer: Any

    @staticmethod
    def of(number: int, value: Any, tracer: Any) -> TracedInt:
        traced = TracedInt(number)
        traced.value, traced.tracer = value, tracer
        return traced

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _arithmetic(name: str, op: str, swapped: bool) -> Any:
    plain = getattr(int, name)

    def method(self: TracedInt, other: Any) -> Any:
        result = plain(int(self), int(other) if isinstance(other, int) else other)
        if not isinstance(other, int) or isinstance(other, bool) or result is NotImplemented:
            return result
        tracer = self.tracer
        operands = [self.value, tracer.recorder.as_value(tracer.value(other), None)]
        value = tracer.recorder.operator(op, operands[::-1] if swapped else operands, None)
        return (
            TracedInt.of(result, value, tracer) if isinstance(result, int) and not isinstance(result, bool) else result
        )

    return method


for _name, _op in (
    ("add", "aten::add"),
    ("sub", "aten::sub"),
    ("mul", "aten::mul"),
    ("floordiv", "aten::floordiv"),
    ("mod", "aten::remainder"),
):
    setattr(TracedInt, f"__{_name}__", _arithmetic(f"__{_name}__", _op, False))
    setattr(TracedInt, f"__r{_name}__", _arithmetic(f"__r{_name}__", _op, True))


def _negative(self: TracedInt) -> TracedInt:
    return TracedInt.of(-int(self), self.tracer.recorder.operator("aten::neg", [self.value], None), self.tracer)


TracedInt.__neg__ = _negative  # type: ignore[method-assign, assignment]


class TracedSize(tuple[Any, ...]):
    """The shape of a traced tensor."""

    def numel(self) -> Any:
        total: Any = 1
        for size in self:
            total = size * total
        return total
