"""Models in older versions of ONNX: operators in the forms that they had before opset 17.

Translations are written for opset 17 and later. Here each node that an older version has in another form, or not at all, is
replaced; `_FORMS` has the version that introduced today's form of an operator, and what stands for it before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.onnx._builder import Builder
from flambeau.onnx._model import Graph, Model, Node, Value
from flambeau.onnx.errors import OnnxExporterError

OLDEST, NEWEST = 9, 16
_NEGATIVE_AXES = 11  # the version from which on operators take axes from the end


class _Rewriter(Builder):
    """Builds what replaces one node."""

    def fresh(self, prefix: str = "val") -> str:
        self.main._count += 1
        return f"{prefix}_older_{self.main._count}"

    def known(self, value: Value | None) -> Any:
        """The constant that a value is, as a list or number; None if it is computed."""
        held = None if value is None else self.main.graph.initializers.get(value.name)
        return None if held is None else held[1].tolist()

    def needs(self, node: Node, version: int, what: str = "") -> OnnxExporterError:
        return OnnxExporterError(
            f"[onnx.export] expected opset_version of {version} or more for {node.op_type}{what}, got {self.opset}"
        )


Form = Callable[[_Rewriter, Node], Any]


def rewrite(model: Model, opset: int) -> None:
    """Changes a model of opset 17 into one of an older opset."""
    model.opset = opset
    main = _Rewriter(model, model.graph)
    _rewrite_graph(main, model.graph)


def _rewrite_graph(main: _Rewriter, graph: Graph) -> None:
    nodes: list[Node] = []
    for node in graph.nodes:
        for attribute in node.attributes.values():
            if isinstance(attribute, Graph):
                _rewrite_graph(main, attribute)
        nodes += _rewritten(main, node)
    graph.nodes[:] = nodes


def _rewritten(main: _Rewriter, node: Node) -> list[Node]:
    version, form = _FORMS.get(node.op_type, (0, None))
    if node.domain or form is None or main.opset >= version:
        return [_plain_axes(main, node)]
    g = _Rewriter(main.model, Graph("older"), main)
    g.metadata = node.metadata
    results = form(g, node)
    if results is None:
        raise g.needs(node, version)
    for result, output in zip(results if isinstance(results, tuple) else (results,), node.outputs):
        maker = next((n for n in g.graph.nodes if any(v is result for v in n.outputs)), None)
        if maker is None:
            g.graph.nodes.append(Node("Identity", [result], [output], {}, name=f"{node.name}_same"))
            continue
        for other in g.graph.nodes:
            other.inputs = [output if v is result else v for v in other.inputs]
        maker.outputs = [output if v is result else v for v in maker.outputs]
    for place, part in enumerate(g.graph.nodes):
        part.name = f"{node.name}_{place}"
    own = [n for n in g.graph.nodes if n.op_type != node.op_type]  # of the others some are older than asked, too
    return [part for n in g.graph.nodes for part in (_rewritten(main, n) if n in own else [_plain_axes(main, n)])]


def _plain_axes(main: _Rewriter, node: Node) -> Node:
    """Axes from the end as axes from the start, where the version wants them so."""
    if main.opset >= _NEGATIVE_AXES or node.domain:
        return node
    value = node.outputs[0] if node.op_type == "Unsqueeze" else next((v for v in node.inputs if v is not None), None)
    rank = None if value is None or value.shape is None else len(value.shape)
    for name in ("axis", "axes"):
        axes = node.attributes.get(name)
        listed = [axes] if isinstance(axes, int) else axes
        if listed and any(axis < 0 for axis in listed):
            if rank is None:
                raise main.needs(node, _NEGATIVE_AXES, " with axes from the end")
            plain = [axis % rank for axis in listed]
            node.attributes[name] = plain[0] if isinstance(axes, int) else plain
    return node


def _same(g: _Rewriter, node: Node, inputs: Sequence[Value | None], **attributes: Any) -> Any:
    """The node with other inputs and attributes."""
    merged = {**node.attributes, **attributes}
    results = [Value(g.fresh(), v.dtype, v.shape) for v in node.outputs]
    g.graph.nodes.append(Node(node.op_type, list(inputs), results, merged, name=node.name, metadata=node.metadata))
    return tuple(results)


# ---------------------------------------------------------------------------------------------- inputs that were attributes


def _input_to_attribute(place: int, name: str) -> Form:
    def form(g: _Rewriter, node: Node) -> Any:
        if len(node.inputs) <= place or node.inputs[place] is None:
            return _same(g, node, node.inputs[:place])
        value = g.known(node.inputs[place])
        if value is None:
            return None
        return _same(g, node, node.inputs[:place], **{name: value})

    return form


def _clip(g: _Rewriter, node: Node) -> Any:
    x, *bounds = node.inputs
    assert x is not None
    known = [g.known(bound) for bound in bounds]
    floats = x.dtype is not None and x.dtype.is_floating_point
    if floats and g.opset == 11:
        return _same(g, node, node.inputs)
    if floats and all(value is not None for value, bound in zip(known, bounds) if bound is not None):
        named = {key: float(v) for key, v in zip(("min", "max"), known) if v is not None}
        return _same(g, node, [x], **named)
    for op_type, bound in zip(("Less", "Greater"), bounds):
        if bound is not None:
            outside = g.op(op_type, x, bound, dtype=fl.bool, shape=x.shape)
            x = g.op("Where", outside, bound, x, dtype=x.dtype, shape=x.shape)
    return x


def _pad(g: _Rewriter, node: Node) -> Any:
    pads, value = g.known(node.inputs[1]), g.known(node.inputs[2]) if len(node.inputs) > 2 else 0.0
    if pads is None or value is None:
        return None
    return _same(g, node, node.inputs[:1], pads=pads, value=float(value))


def _slice(g: _Rewriter, node: Node) -> Any:
    parts = [g.known(v) for v in node.inputs[1:]]
    if any(part is None for part in parts) or (len(parts) > 3 and any(step != 1 for step in parts[3])):
        return None
    return _same(g, node, node.inputs[:1], **dict(zip(("starts", "ends", "axes"), parts)))


def _top_k(g: _Rewriter, node: Node) -> Any:
    if not node.attributes.pop("largest", 1):
        return None
    node.attributes.pop("sorted", None)
    if g.opset >= 10:
        return _same(g, node, node.inputs)
    (k,) = g.known(node.inputs[1]) or (None,)
    return None if k is None else _same(g, node, node.inputs[:1], k=k)


def _resize(g: _Rewriter, node: Node) -> Any:
    x, roi, *rest = node.inputs
    if g.opset < 11:
        return None
    empty = g.constant(fl.zeros(0))
    none = [empty if v is None else v for v in rest[:1]]
    return _same(g, node, [x, empty if roi is None else roi, *none, *rest[1:]])


def _gemm(g: _Rewriter, node: Node) -> Any:
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        return _same(g, node, node.inputs)
    first = node.inputs[0]
    assert first is not None
    return _same(g, node, [*node.inputs[:2], g.constant([0], first.dtype)])


# ---------------------------------------------------------------------------------------------- other operators


def _shape(g: _Rewriter, node: Node) -> Any:
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    (x,) = node.inputs
    assert x is not None
    whole = g.op("Shape", x, dtype=fl.int64, shape=(x.rank,))
    if not start and end is None:
        return whole
    places = list(range(x.rank))[start:end]
    return g.op("Gather", whole, g.constant(places, fl.int64), dtype=fl.int64, shape=(len(places),), axis=0)


def _softmax(g: _Rewriter, node: Node) -> Any:
    """Softmax took all axes from one on as one: the last axis means the same."""
    (x,) = node.inputs
    assert x is not None
    axis, last = node.attributes.get("axis", -1) % x.rank, x.rank - 1
    if axis == last:
        return _same(g, node, [x], axis=last)
    order = list(range(x.rank))
    order[axis], order[last] = last, axis
    shape = tuple(x.shape[i] for i in order)
    moved = g.op("Transpose", x, shape=shape, perm=order)
    result = g.op(node.op_type, moved, shape=shape, axis=last)
    return g.op("Transpose", result, shape=x.shape, perm=order)


def _layer_norm(g: _Rewriter, node: Node) -> Any:
    x, weight, *bias = node.inputs
    assert x is not None
    if len(node.outputs) > 1:
        return None
    axes = list(range(node.attributes.get("axis", -1) % x.rank, x.rank))
    shape = (*x.shape[: axes[0]], *(1 for _ in axes))
    centered = g.op("Sub", x, g.op("ReduceMean", x, shape=shape, axes=axes, keepdims=1), shape=x.shape)
    square = g.op("Mul", centered, centered, shape=x.shape)
    variance = g.op("ReduceMean", square, shape=shape, axes=axes, keepdims=1)
    spread = g.op("Sqrt", g.op("Add", variance, node.attributes.get("epsilon", 1e-5), shape=shape), shape=shape)
    result = g.op("Div", centered, spread, shape=x.shape)
    result = g.op("Mul", result, weight, shape=x.shape)
    return g.op("Add", result, bias[0], shape=x.shape) if bias and bias[0] is not None else result


def _trilu(g: _Rewriter, node: Node) -> Any:
    x, *rest = node.inputs
    assert x is not None
    offset = (g.known(rest[0]) or 0) if rest else 0
    sizes = x.shape[-2:]
    if not all(isinstance(size, int) for size in sizes):
        return None
    ones = fl.ones(sizes, dtype=fl.bool)
    mask = ones.triu(offset) if node.attributes.get("upper", 1) else ones.tril(offset)
    return g.op("Where", g.constant(mask), x, g.constant(0, x.dtype), dtype=x.dtype, shape=x.shape)


def _hard_swish(g: _Rewriter, node: Node) -> Any:
    (x,) = node.inputs
    assert x is not None
    return g.op("Mul", x, g.op("HardSigmoid", x, shape=x.shape, alpha=1 / 6, beta=0.5), shape=x.shape)


def _celu(g: _Rewriter, node: Node) -> Any:
    (x,) = node.inputs
    assert x is not None
    alpha = float(node.attributes.get("alpha", 1.0))
    below = g.op("Elu", g.op("Div", x, alpha, shape=x.shape), shape=x.shape, alpha=1.0)
    negative = g.op("Less", x, 0.0, dtype=fl.bool, shape=x.shape)
    return g.op("Where", negative, g.op("Mul", below, alpha, shape=x.shape), x, dtype=x.dtype, shape=x.shape)


def _pow(g: _Rewriter, node: Node) -> Any:
    base, exponent = node.inputs
    assert base is not None and exponent is not None
    if base.dtype is None or not base.dtype.is_floating_point:
        return None
    return _same(g, node, [base, g.cast(exponent, base.dtype)])


def _extremum(g: _Rewriter, node: Node) -> Any:
    if node.inputs[0] is None or node.inputs[0].dtype is None or node.inputs[0].dtype.is_floating_point:
        return _same(g, node, node.inputs)
    result: Any = node.inputs[0]
    for other in node.inputs[1:]:
        first = g.op("Greater" if node.op_type == "Max" else "Less", result, other, dtype=fl.bool)
        result = g.op("Where", first, result, other, dtype=result.dtype)
    return result


def _equal(g: _Rewriter, node: Node) -> Any:
    first = node.inputs[0]
    if first is None or first.dtype is None or not first.dtype.is_floating_point:
        return _same(g, node, node.inputs)
    apart = [g.op(name, *node.inputs, dtype=fl.bool) for name in ("Less", "Greater")]
    return g.op("Not", g.op("Or", *apart, dtype=fl.bool), dtype=fl.bool)


def _without(name: str, plain: Any) -> Form:
    """The node without an attribute that has to be what it meant before there was one."""

    def form(g: _Rewriter, node: Node) -> Any:
        if node.attributes.pop(name, plain) not in (plain, None):
            return None
        return _same(g, node, node.inputs)

    return form


def _max_pool(g: _Rewriter, node: Node) -> Any:
    dilations = node.attributes.pop("dilations", [1])
    if any(step != 1 for step in dilations) or node.attributes.pop("ceil_mode", 0):
        raise g.needs(node, 10, " with dilations or ceil_mode")
    return _same(g, node, node.inputs)


def _renamed(op_type: str) -> Form:
    def form(g: _Rewriter, node: Node) -> Any:
        (value,) = node.outputs
        return g.op(op_type, *node.inputs, dtype=value.dtype, shape=value.shape, **node.attributes)

    return form


def _lacking(g: _Rewriter, node: Node) -> None:
    """Nothing stands for it."""


_FORMS: dict[str, tuple[int, Form]] = {
    "LayerNormalization": (17, _layer_norm), "Shape": (15, _shape), "BatchNormalization": (14, _without("training_mode", 0)),
    "Reshape": (14, _without("allowzero", 0)), "Trilu": (14, _trilu), "HardSwish": (14, _hard_swish),
    "Squeeze": (13, _input_to_attribute(1, "axes")), "Unsqueeze": (13, _input_to_attribute(1, "axes")),
    "ReduceSum": (13, _input_to_attribute(1, "axes")), "Split": (13, _input_to_attribute(1, "split")),
    "Softmax": (13, _softmax), "LogSoftmax": (13, _softmax), "QuantizeLinear": (13, _without("axis", 1)),
    "DequantizeLinear": (13, _without("axis", 1)), "Resize": (13, _resize), "Celu": (12, _celu), "Pow": (12, _pow),
    "Max": (12, _extremum), "Min": (12, _extremum), "Einsum": (12, _lacking), "NegativeLogLikelihoodLoss": (12, _lacking),
    "Dropout": (12, _input_to_attribute(1, "ratio")), "Clip": (12, _clip), "Pad": (11, _pad), "TopK": (11, _top_k), "Gemm": (11, _gemm),
    "Equal": (11, _equal), "ScatterElements": (11, _renamed("Scatter")), "GatherElements": (11, _lacking),
    "ScatterND": (11, _lacking), "GatherND": (11, _lacking), "Range": (11, _lacking), "CumSum": (11, _lacking),
    "Round": (11, _lacking), "DepthToSpace": (11, _without("mode", "DCR")), "Slice": (10, _slice), "Mod": (10, _lacking),
    "IsInf": (10, _lacking), "MaxPool": (10, _max_pool), "AveragePool": (10, _without("ceil_mode", 0)),
}  # fmt: skip
