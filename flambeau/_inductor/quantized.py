"""Products between quantize and dequantize operators, computed with integers.

Runs over the fx graph before it is recorded. What stands for
`dequantize -> linear or convolution (-> sum) (-> activation) -> quantize` becomes one call on the integers, `_int8_linear` or
`_int8_convolution`; their weights are packed by calls of their own, which freezing keeps. Operators that choose elements, such
as max pooling, run on the integers where the grid stays. What is left of `quantized_decomposed::*` is replaced by its
arithmetic, so that it becomes loops. Integers have no derivatives: graphs that record them are left alone.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import _ops
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.ops import tags
from flambeau.ops.quantized.arithmetic import FUNCTIONS

__all__ = ["compute_with_integers"]

_SPACE = "quantized_decomposed::"
_POST_OPS = {
    f.__name__ for f in (fl.relu, fl.sigmoid, fl.tanh, fl.nn.functional.silu)
}  # by the names that kernels have


def compute_with_integers(module: GraphModule, differentiated: bool) -> bool:
    """Changes a graph with quantized tensors, in place; whether there was one."""
    if not any(_name(node).startswith(_SPACE) for node in module.graph.nodes):
        return False
    if not differentiated:
        for node in list(module.graph.nodes):
            if _base_name(node) in _products():
                _Product(module, node).rewrite()
        for node in list(module.graph.nodes):
            _on_integers(module, node)
    for node in module.graph.nodes:
        if _name(node).startswith(_SPACE):
            node.target = FUNCTIONS[_name(node)[len(_SPACE) :].partition(".")[0]]
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return True


def _products() -> frozenset[str]:
    return tags.operators("integer_product")


def _name(node: Any) -> str:
    """The full name of the operator that a node calls."""
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return ""
    return str(getattr(node.target, "_full_name", None) or getattr(node.target, "__name__", node.target))


def _base_name(node: Any) -> str:
    """The same without overload, and without the mark of operators that write in place."""
    name = _name(node)
    return name if "::" in name else name.partition(".")[0].removesuffix("_")


def _is_call(node: Any, name: str) -> bool:
    return _name(node) == _SPACE + name


def _shape(node: Any) -> Any:
    value = node.meta.get("example_value", node.meta.get("val"))
    return tuple(value.shape) if isinstance(value, fl.Tensor) else None


def _only_reader(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


class _Product:
    """One product, with what its kernel takes along."""

    def __init__(self, module: GraphModule, node: Node) -> None:
        self.module, self.node = module, node
        self.graph = module.graph

    def rewrite(self) -> None:
        arguments = list(self.node.args) + [None] * 7
        x, weight, bias = arguments[:3]
        bias = self.node.kwargs.get("bias", bias)
        held = self._weight(weight)
        if held is None or set(self.node.kwargs) - {"bias"}:
            return
        is_linear = _base_name(self.node) == "linear"
        settings = None if is_linear else self._settings(arguments[3:7], weight)
        if not is_linear and settings is None:
            return
        if _is_call(x, "dequantize_per_tensor") and not isinstance(x.args[1], Node):
            self._static(x, held, bias, settings)
        elif is_linear and _is_call(x, "dequantize_per_tensor.tensor"):
            self._dynamic(x, held, bias)

    def _weight(self, node: Any) -> tuple[Node, Any, Any] | None:
        """Integers, scales and zero points of a weight that lies on a grid for each of its rows, or on one."""
        if node is None or _shape(node) is None:
            return None
        if _is_call(node, "dequantize_per_channel") and node.args[3] == 0 and node.args[6] == fl.int8:
            return node.args[0], node.args[1], node.args[2]
        if _is_call(node, "dequantize_per_tensor") and node.args[5] == fl.int8 and not isinstance(node.args[1], Node):
            return node.args[0], float(node.args[1]), int(node.args[2])
        return None

    def _settings(self, settings: list[Any], weight: Any) -> list[Any] | None:
        """Stride, padding, dilation and groups of a convolution."""
        shape = _shape(weight)
        if "transpose" in _base_name(self.node) or any(isinstance(value, str) for value in settings):
            return None
        count = len(shape) - 2
        plain = [default if value is None else value for value, default in zip(settings, (1, 0, 1, 1))]
        spread = [list(v) if isinstance(v, (list, tuple)) else [v] * count for v in plain[:3]]
        spread = [v * count if len(v) == 1 else v for v in spread]
        return [*spread, plain[3]]

    def _operands(self, held: tuple[Node, Any, Any], packed: Any) -> list[Any]:
        """The weight as the operators take it: integers, packed, scales and zero points."""
        integers, scales, zero_points = held
        call = self.graph.call_function
        if not isinstance(scales, Node):
            scales = call(fl.full, ([1], scales))
            zero_points = call(fl.full, ([1], zero_points), {"dtype": fl.int32}) if zero_points else None
        elif zero_points is not None:
            zero_points = call(fl.ops.aten._to_copy.default, (zero_points,), {"dtype": fl.int32})
        return [integers, packed, scales, zero_points]

    def _chain(self) -> tuple[Node, str, list[Any]]:
        """The last of the calls that the kernel takes along, what it is to do, and the tensor that it adds."""
        last, post_op = self.node, "none"
        other: list[Any] = [None, 1.0, 0]
        reader = _only_reader(last)
        if reader is not None and _base_name(reader) == "add" and not reader.kwargs and len(reader.args) == 2:
            beside = [a for a in reader.args if a is not last]
            shape = _shape(last)
            if len(beside) == 1 and isinstance(beside[0], Node) and shape is not None and _shape(beside[0]) == shape:
                operand = beside[0]
                other = [operand, 1.0, 0]
                if _is_call(operand, "dequantize_per_tensor") and not isinstance(operand.args[1], Node):
                    other = list(operand.args[:3])
                last, post_op, reader = reader, "add", _only_reader(reader)
        activation = self._activation(reader)
        if reader is not None and activation is not None:
            last, post_op = reader, activation if post_op == "none" else f"add_{activation}"
        return last, post_op, other

    @staticmethod
    def _activation(reader: Node | None) -> str | None:
        name = _base_name(reader)
        if reader is None or len(reader.args) != 1:
            return None
        if name == "gelu":
            return "gelu_tanh" if reader.kwargs.get("approximate") == "tanh" else "gelu"
        return name if name in _POST_OPS and not reader.kwargs else None

    @staticmethod
    def _limits(node: Node | None) -> tuple[float, float] | None:
        """The bounds that an activation sets, which on a grid are bounds of integers."""
        if node is None or node.kwargs:
            return None
        if _base_name(node) == "relu6":
            return 0.0, 6.0
        if _base_name(node) == "hardtanh":
            limits = [float(value) for value in node.args[1:3]]
            low, high = limits + [-1.0, 1.0][len(limits) :]
            return low, high
        return None

    def _static(self, x: Node, held: tuple[Node, Any, Any], bias: Any, settings: Any) -> None:
        last, post_op, other = self._chain()
        result = _only_reader(last)
        limits = self._limits(result)
        if limits is not None:
            after = _only_reader(result)  # type: ignore[arg-type]
            if _is_call(after, "quantize_per_tensor") and not isinstance(after.args[1], Node):  # type: ignore[union-attr]
                result = after
            else:
                limits = None
        grid: list[Any] = [1.0, 0, None]
        ends = None
        if _is_call(result, "quantize_per_tensor") and not isinstance(result.args[1], Node):  # type: ignore[union-attr]
            scale, zero_point, low, high, dtype = result.args[1:6]  # type: ignore[union-attr]
            if dtype in (fl.uint8, fl.int8):
                grid, last = [scale, zero_point, dtype], result  # type: ignore[assignment]
                if limits is not None:
                    places = [round(limit * (1.0 / scale)) + zero_point for limit in limits]
                    low, high = max(low, places[0]), min(high, places[1])
                widest = fl.iinfo(dtype)
                ends = (low, high) if (low, high) != (widest.min, widest.max) else None
        with self.graph.inserting_before(last):
            call = self.graph.call_function
            start = list(x.args[:3])
            if settings is None:
                operands = self._operands(held, call(_ops._int8_pack, (held[0],)))
                new = call(_ops._int8_linear, (*start, *operands, bias, *grid, post_op, *other))
            else:
                operands = self._operands(held, call(_ops._int8_convolution_pack, (held[0], settings[3])))
                new = call(_ops._int8_convolution, (*start, *operands, bias, *settings, *grid, post_op, *other))
            if ends is not None:
                new = call(fl.clamp, (new, *ends))
        self._replace(last, new)

    def _dynamic(self, x: Node, held: tuple[Node, Any, Any], bias: Any) -> None:
        """The grid of the input is chosen by the kernel, as the operators of the graph would."""
        quantize = x.args[0]
        source = quantize.args[0] if _is_call(quantize, "quantize_per_tensor.tensor") else None
        grid = x.args[1].args[0] if isinstance(x.args[1], Node) and x.args[1].args else None
        width = x.args[4] - x.args[3]
        if source is None or not _is_call(grid, "choose_qparams.tensor") or width not in (127, 255):
            return
        last, post_op, other = self._chain()
        if other[0] is not None:
            last, post_op = self.node, "none"
        with self.graph.inserting_before(last):
            call = self.graph.call_function
            operands = self._operands(held, call(_ops._int8_pack, (held[0],)))
            new = call(_ops._int8_linear_dynamic, (source, *operands, bias, width == 127, False, post_op))
        self._replace(last, new)

    def _replace(self, last: Node, new: Node) -> None:
        new.meta.update(last.meta)
        last.replace_all_uses_with(new)
        self.graph.eliminate_dead_code()


def _on_integers(module: GraphModule, node: Node) -> None:
    """An operator between a pair on one grid that only chooses or moves elements takes the integers."""
    name = _name(node)
    base = _base_name(node)
    if not ({name, base} & tags.operators("moves", "chooses", "view")) or not node.args:
        return
    source, result = node.args[0], _only_reader(node)
    if not _is_call(source, "dequantize_per_tensor") or not _is_call(result, "quantize_per_tensor"):
        return
    if source.args[1:6] != result.args[1:6] or len(node.all_input_nodes) != 1:  # type: ignore[union-attr]
        return
    node.replace_input_with(source, source.args[0])
    result.replace_all_uses_with(node)  # type: ignore[union-attr]
    module.graph.erase_node(result)  # type: ignore[arg-type]
