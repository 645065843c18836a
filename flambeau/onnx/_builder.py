"""What translations of operators are written with: `g.op("Relu", x)` adds a node and gives its result.

Rules (`onnx.py` in the folder of a family) get the arguments of the operator by name: tensors as `Value`, everything else
as it is; a list of sizes may hold `Value`s. `g.result` describes what the operator returns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.onnx._model import DTYPE_NUMBER, Graph, Model, Node, Value
from flambeau.ops.geometry import geometry_of

NUMBERS = (bool, int, float)


class Builder:
    """Adds nodes to a graph."""

    def __init__(self, model: Model, graph: Graph, outer: Builder | None = None) -> None:
        self.model = model
        self.graph = graph
        self.opset = model.opset
        self.outer = outer
        self.main: Builder = self if outer is None else outer.main
        self.result: Any = None  # fake results of the operator that is being translated
        self.metadata: dict[str, str] = {}
        self._count = 0
        self._taken: set[str] = set()
        self._constants: dict[Any, Value] = {}
        self._shapes: dict[tuple[int, int], Value] = {}
        self.size_of: Any = int  # of the main builder: sizes as values
        self.size_text: Any = int  # and as names of dimensions

    # ------------------------------------------------------------------------------------------ nodes

    def fresh(self, prefix: str = "val") -> str:
        self.main._count += 1
        return f"{prefix}_{self.main._count}"

    def unique(self, name: str) -> str:
        """A name that no other value has."""
        main = self.main
        while name in main._taken:
            name = self.fresh(name)
        main._taken.add(name)
        return name

    def op(
        self, op_type: str, *inputs: Any, outputs: int = 1, dtype: Any = None, shape: Any = None, domain: str = "",
        **attributes: Any,
    ) -> Any:  # fmt: skip
        """Adds a node. Numbers among the inputs take the dtype of the first value; the result has it, too, unless told."""
        first = next((x for x in inputs if isinstance(x, Value)), None)
        kind = first.dtype if first is not None else None
        values = [x if x is None or isinstance(x, Value) else self.constant(x, kind) for x in inputs]
        results = [Value(self.fresh(), kind if dtype is None else dtype, shape) for _ in range(outputs)]
        name = f"node_{op_type}_{self.main._count}"
        self.graph.nodes.append(Node(op_type, values, results, attributes, domain, name, self.metadata))
        return results[0] if outputs == 1 else tuple(results)

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """A constant tensor; equal ones are stored once."""
        main = self.main
        if isinstance(value, fl.Tensor):
            return main.initializer(main.fresh("const"), value)
        listed = isinstance(value, (list, tuple))
        if dtype is None:
            sample = value[0] if listed and value else value
            dtype = fl.bool if isinstance(sample, bool) else fl.int64 if isinstance(sample, int) else fl.float32
        key = (repr(value), dtype)
        if key not in main._constants:
            tensor = fl.tensor(list(value) if listed else value, dtype=dtype)
            main._constants[key] = main.initializer(main.fresh("const"), tensor)
        return main._constants[key]

    def initializer(self, name: str, tensor: Any) -> Value:
        value = Value(name, tensor.dtype, tuple(tensor.shape))
        self.main._taken.add(name)
        self.main.graph.initializers[name] = (value, tensor)
        return value

    # ------------------------------------------------------------------------------------------ dtypes

    @property
    def dtype(self) -> Any:
        """The dtype of the operator's result."""
        first = self.result[0] if isinstance(self.result, (list, tuple)) else self.result
        return first.dtype

    def cast(self, x: Any, dtype: Any) -> Value:
        """A value, or a number, in a dtype."""
        if not isinstance(x, Value):
            if dtype == fl.bool:
                x = bool(x)
            elif not dtype.is_floating_point and not dtype.is_complex:
                x = int(x)
            return self.constant(x, dtype)
        if x.is_size:
            x = self.scalar(x)
        if x.dtype == dtype:
            return x
        return self.op("Cast", x, dtype=dtype, shape=x.shape, to=DTYPE_NUMBER[dtype])

    def promoted(self, *operands: Any, at_least: Any = None) -> list[Value]:
        """Operands in their common dtype, by the rules of promotion."""
        dtype = self.common_dtype(*operands)
        if at_least is not None and not dtype.is_floating_point:
            dtype = at_least
        return [self.cast(x, dtype) for x in operands]

    def common_dtype(self, *operands: Any) -> Any:
        best: Any = None
        for kind in ("tensor", "scalar tensor", "number"):
            for x in operands:
                if _priority(x) != kind:
                    continue
                dtype = x.dtype if isinstance(x, Value) else _dtype_of_number(x)
                if best is None:
                    best = dtype
                elif kind == "tensor" or _category(dtype) > _category(best):
                    best = fl.promote_types(best, dtype) if kind == "tensor" else _raised(best, dtype)
        return best

    # ------------------------------------------------------------------------------------------ sizes

    def shape(self, x: Value) -> Value:
        return self.op("Shape", x, dtype=fl.int64, shape=(x.rank,))

    def dim(self, x: Value, d: int) -> Any:
        """The size of a dimension: a number where it is known."""
        size = x.shape[d]
        if isinstance(size, int):
            return size
        d %= x.rank
        key = (id(x), d)
        if key not in self._shapes:
            dimension = self.op("Shape", x, dtype=fl.int64, shape=(1,), start=d, end=d + 1)
            dimension.is_size = True
            self._shapes[key] = dimension
        return self._shapes[key]

    def scalar(self, size: Value) -> Value:
        """A size as a tensor without dimensions."""
        return self.op("Squeeze", size, dtype=fl.int64, shape=())

    def ints(self, values: Any) -> Value:
        """Numbers and sizes as one list."""
        items = list(values) if isinstance(values, (list, tuple)) else [values]
        if all(isinstance(item, int) for item in items):
            return self.constant([int(item) for item in items], fl.int64)
        parts: list[Value] = []
        plain: list[int] = []
        for item in (*items, None):
            if isinstance(item, int):
                plain.append(item)
                continue
            if plain:
                parts.append(self.constant(plain, fl.int64))
                plain = []
            if item is not None:
                parts.append(self._one_element(item))
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, dtype=fl.int64, shape=(len(items),), axis=0)

    def _one_element(self, item: Value) -> Value:
        if item.is_size:
            return item
        whole = self.cast(item, fl.int64)
        return self.op("Reshape", whole, self.constant([1], fl.int64), dtype=fl.int64, shape=(1,))

    def arithmetic(self, op_type: str, *operands: Any) -> Any:
        """Arithmetic on sizes."""
        values = [self.constant([x], fl.int64) if isinstance(x, int) else x for x in operands]
        result = self.op(op_type, *values, dtype=fl.int64, shape=(1,))
        result.is_size = True
        return result

    def numel(self, x: Value) -> Any:
        if all(isinstance(size, int) for size in x.shape):
            return math.prod(x.shape)
        count = self.op("Size", x, dtype=fl.int64, shape=())
        return count

    def result_sizes(self, result: Any = None) -> list[Any]:
        """The sizes of the operator's result, in terms of the inputs' where they vary."""
        fake = self.result if result is None else result
        return [self.main.size_of(size) for size in geometry_of(fake).sizes]

    def result_shape(self, result: Any = None) -> Any:
        """The same as it is described: numbers, and names of dimensions."""
        fake = self.result if result is None else result
        return tuple(self.main.size_text(size) for size in geometry_of(fake).sizes)

    # ------------------------------------------------------------------------------------------ common steps

    def reshape(self, x: Value, sizes: Sequence[Any], shape: Any = None) -> Value:
        """A reshape; where one size alone varies it is inferred, and one that the input has in the same place is copied."""
        items: list[Any] = list(sizes)
        unknown = [i for i, item in enumerate(items) if not isinstance(item, int)]
        if unknown and -1 not in items:
            known = shape if shape is not None else ()
            for i in list(unknown):
                same = i < len(known) and x.shape is not None and i < len(x.shape) and isinstance(known[i], str)
                if same and x.shape[i] == known[i]:
                    items[i] = 0
                    unknown.remove(i)
            if len(unknown) == 1 and not any(item == 0 for item in sizes if isinstance(item, int)):
                items[unknown[0]] = -1
        if 0 in sizes and all(isinstance(item, int) for item in items):
            return self.op("Reshape", x, self.ints(items), shape=shape, allowzero=1)
        return self.op("Reshape", x, self.ints(items), shape=shape)

    def squeeze(self, x: Value, *axes: int) -> Value:
        return self.op("Squeeze", x, self.constant([int(a) for a in axes], fl.int64))

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        return self.op("Unsqueeze", x, self.constant([int(a) for a in axes], fl.int64))

    def reduce(self, op_type: str, x: Value, axes: Sequence[int] | None, keepdim: bool) -> Value:
        """A reduction. Before opset 18 only ReduceSum takes its axes as an input."""
        if axes is not None and x.shape is not None:
            axes = [a % max(x.rank, 1) for a in axes]
        if op_type != "ReduceSum" and self.opset < 18:
            listed = None if axes is None else list(axes)
            return self.op(op_type, x, axes=listed, keepdims=int(keepdim))
        if axes is None:
            return self.op(op_type, x, keepdims=int(keepdim))
        return self.op(op_type, x, self.constant(list(axes), fl.int64), keepdims=int(keepdim))

    def subgraph(self, name: str) -> Builder:
        """A builder of a graph inside of this one, which sees its values."""
        inner = Builder(self.model, Graph(name), self)
        inner.metadata = self.metadata
        return inner

    def unsupported(self, why: str) -> Exception:
        """For rules to raise: the operator is translated, but not this call of it."""
        return NotTranslated(why)


class NotTranslated(Exception):
    """A rule that does not cover a call."""


def _priority(x: Any) -> str:
    if not isinstance(x, Value) or x.is_size:
        return "number"
    return "scalar tensor" if x.shape is not None and len(x.shape) == 0 else "tensor"


def _dtype_of_number(x: Any) -> Any:
    if isinstance(x, Value):
        return fl.int64
    return fl.bool if isinstance(x, bool) else fl.int64 if isinstance(x, int) else fl.get_default_dtype()


def _category(dtype: Any) -> int:
    return 0 if dtype == fl.bool else 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1


def _raised(best: Any, dtype: Any) -> Any:
    """A number of a higher category raises the dtype to the default one of that category."""
    return fl.get_default_dtype() if _category(dtype) == 2 else dtype
