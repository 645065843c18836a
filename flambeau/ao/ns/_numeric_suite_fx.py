"""Comparison of traced models, such as a float one and its quantized form: weights, results of layers, and shadows.

Nodes of the two models belong together when they have the same name, which they keep when a model is prepared; nodes of a
converted model know the name of the float node that they take the place of.
Results are `{layer: {type: {model: [{"values": [...], ...}]}}}`.

| | |
|---|---|
| `extract_weights` | weights of layers |
| `add_loggers`, `extract_logger_info` | what layers return when both models are run |
| `add_shadow_loggers`, `extract_shadow_logger_info` | what float layers return for the inputs of the quantized ones |
| `extend_logger_results_with_comparison` | a measure beside the values of the second model |
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as fl
from flambeau.ao.ns.fx.ns_types import NSResultsType, NSSingleResultValuesType
from flambeau.ao.ns.fx.utils import compute_sqnr
from flambeau.ao.quantization.fx.lower import COMPUTES
from flambeau.ao.quantization.observer import _is_activation_post_process
from flambeau.fx import GraphModule, Node, Tracer
from flambeau.nn.modules.module import Module
from flambeau.ops import tags

__all__ = [
    "NSTracer", "OutputComparisonLogger", "OutputLogger", "add_loggers", "add_shadow_loggers",
    "extend_logger_results_with_comparison", "extract_logger_info", "extract_shadow_logger_info", "extract_weights",
    "loggers_set_enabled", "loggers_set_save_activations",
]  # fmt: skip

WEIGHT, OUTPUT, INPUT = (
    NSSingleResultValuesType.WEIGHT.value,
    NSSingleResultValuesType.NODE_OUTPUT.value,
    NSSingleResultValuesType.NODE_INPUT.value,
)


class OutputLogger(Module):
    """Keeps what passes in `stats`, and knows where in its model it is."""

    def __init__(
        self, ref_node_name: str, prev_node_name: str, model_name: str, ref_name: str, prev_node_target_type: str,
        ref_node_target_type: str, results_type: str, index_within_arg: int, index_of_arg: int, fqn: str | None,
        qconfig_str: str | None = "",
    ) -> None:  # fmt: skip
        super().__init__()
        self.stats: list[Any] = []
        self.comparisons: list[Any] = []
        self.comparison_fn_name = ""
        self.enabled = self.save_activations = True
        self.ref_node_name, self.prev_node_name, self.model_name = ref_node_name, prev_node_name, model_name
        self.ref_name, self.results_type, self.fqn, self.qconfig_str = ref_name, results_type, fqn, qconfig_str
        self.prev_node_target_type, self.ref_node_target_type = prev_node_target_type, ref_node_target_type
        self.index_within_arg, self.index_of_arg = index_within_arg, index_of_arg

    def forward(self, x: Any) -> Any:
        if self.enabled and self.save_activations:
            self.stats.append(_detached(x))
        return x

    def __repr__(self) -> str:
        shown = {
            k: v for k, v in self.__dict__.items() if k[0] != "_" and k not in ("training", "stats", "comparisons")
        }
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


class OutputComparisonLogger(OutputLogger):
    """Keeps how far what passes is from what is passed beside it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.comparison_fn: Callable[..., Any] = compute_sqnr
        self.comparison_fn_name = "sqnr"

    def forward(self, x: Any, x_ref: Any) -> Any:  # type: ignore[override]
        if self.enabled:
            if self.save_activations:
                self.stats.append(_detached(x))
            self.comparisons.append(self.comparison_fn(x, x_ref))
        return x


class NSTracer(Tracer):
    """Traces float models; some modules are not looked into."""

    def __init__(self, skipped_module_names: Any = (), skipped_module_classes: Any = ()) -> None:
        super().__init__()
        self.skipped_module_names, self.skipped_module_classes = skipped_module_names, skipped_module_classes

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes:
            return True
        return _is_activation_post_process(m) or super().is_leaf_module(m, module_qualified_name)


def _detached(x: Any) -> Any:
    return type(x)(map(_detached, x)) if isinstance(x, (list, tuple)) else x.detach()


# ---------------------------------------------------------------------------------------------- nodes


def _traced(model: Module) -> GraphModule:
    if isinstance(model, GraphModule):
        return copy.deepcopy(model)
    traced = GraphModule(model, NSTracer().trace(model))
    return traced.train(model.training)  # type: ignore[return-value]


def _is_compared(node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node computes something: observers, grids and moves of elements do not."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        kinds = (
            fl.nn.Identity,
            fl.nn.Dropout,
            fl.ao.nn.quantized.Quantize,
            fl.ao.nn.quantized.DeQuantize,
            OutputLogger,
        )
        return not _is_activation_post_process(module) and not isinstance(module, kinds)
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    passive = ("dequantize", "quantize_per_tensor", "quantize_per_channel", "getitem", "getattr", "to")
    return name not in passive and not any(name in tags.functions(tag) for tag in ("moves", "averages", "chooses"))


def _pairs(a: GraphModule, b: GraphModule) -> Iterator[tuple[Node, Node]]:
    """Nodes of two models that belong together, in the order of the second."""
    of_a, of_b = dict(a.named_modules(remove_duplicate=False)), dict(b.named_modules(remove_duplicate=False))
    named = {node.meta.get(COMPUTES, node.name): node for node in a.graph.nodes if _is_compared(node, of_a)}
    for node in b.graph.nodes:
        name = node.meta.get(COMPUTES, node.name)
        if name in named and _is_compared(node, of_b):
            yield named[name], node


def _layer_name(node: Node) -> str:
    return node.meta.get(COMPUTES, node.name)


def _type_name(node: Node, modules: dict[str, Any]) -> str:
    kind = type(modules[str(node.target)]) if node.op == "call_module" else node.target
    if isinstance(kind, str):
        return kind
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', getattr(kind, '__name__', kind))}"


def _fqn(node: Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


# ---------------------------------------------------------------------------------------------- weights


def _weights_of(node: Node, model: GraphModule) -> list[Any]:
    """Weights that a node multiplies by."""
    if node.op == "call_module":
        module: Any = model.get_submodule(str(node.target))
        module = module[0] if isinstance(module, fl.nn.Sequential) else module
        if hasattr(module, "get_weight") and not hasattr(module, "weight"):  # recurrent layers with smaller weights
            return [w.dequantize() if w.is_quantized else w.float() for w in module.get_weight().values()]
        if isinstance(module, (fl.nn.LSTM, fl.nn.GRU)):
            return [p.detach() for name, p in module.named_parameters() if name.startswith("weight")]
        weight = getattr(module, "weight", None)
        weight = weight() if callable(weight) else weight
        return [] if weight is None or weight.dim() < 2 else [weight.detach()]
    values = [_attribute(arg, model) for arg in node.args[1:2]]
    unpacked = [value.unpack()[0] if hasattr(value, "unpack") else value for value in values]
    return [value.detach() for value in unpacked if isinstance(value, fl.Tensor) and value.dim() > 1]


def _attribute(arg: Any, model: GraphModule) -> Any:
    """What an argument is in the model, behind the observers that look at it."""
    while isinstance(arg, Node) and arg.op in ("call_module", "call_function", "call_method") and arg.args:
        arg = arg.args[0]
    if not isinstance(arg, Node) or arg.op != "get_attr":
        return None
    value: Any = model
    for part in str(arg.target).split("."):
        value = getattr(value, part)
    return value


def extract_weights(
    model_name_a: str, model_a: Module, model_name_b: str, model_b: Module, base_name_to_sets_of_related_ops: Any = None,
    unmatchable_types_map: Any = None, op_to_type_to_weight_extraction_fn: Any = None,
) -> NSResultsType:  # fmt: skip
    """The weights of layers that both models have."""
    a, b = _traced(model_a), _traced(model_b)
    results: NSResultsType = {}
    for pair in _pairs(a, b):
        weights = [_weights_of(node, model) for node, model in zip(pair, (a, b), strict=True)]
        if all(weights):
            kinds = zip(pair, (a, b), weights, (model_name_a, model_name_b), strict=True)
            results[_layer_name(pair[1])] = {WEIGHT: {name: [_weight_result(n, m, w)] for n, m, w, name in kinds}}
    return results


def _weight_result(node: Node, model: GraphModule, values: list[Any]) -> dict[str, Any]:
    kind = _type_name(node, dict(model.named_modules(remove_duplicate=False)))
    return {
        "type": WEIGHT, "values": values, "prev_node_name": node.name, "prev_node_target_type": kind,
        "ref_node_name": node.name, "ref_node_target_type": kind, "index_within_arg": 0, "index_of_arg": 0, "fqn": _fqn(node),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- loggers


def _log(
    model: GraphModule, value: Node, at: Node, name: str, make: Any, results_type: str, index: int, kind: str,
    owner: Node | None = None,
) -> Node:  # fmt: skip
    """A logger behind a node; `at` is the node of the model that it belongs to."""
    path = f"{value.name}_ns_logger_{index}"
    logger = make(
        at.name, value.name, name, _layer_name(at), kind, kind, results_type, 0, index, _fqn(owner or at), "",
    )  # fmt: skip
    model.add_module(path, logger)
    with model.graph.inserting_after(value):
        return model.graph.call_module(path, (value,))


def _read_behind(node: Node, logged: Node) -> None:
    """All that read a node read its logger instead."""
    node.replace_all_uses_with(logged, delete_user_cb=lambda user: user is not logged)


def _log_results(model: GraphModule, nodes: list[Node], name: str, make: Any, with_inputs: bool) -> GraphModule:
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in nodes:
        kind = _type_name(node, modules)
        if with_inputs:
            for index, arg in enumerate(node.args):
                if isinstance(arg, Node) and arg.op != "get_attr":
                    logged = _log(model, arg, node, name, make, INPUT, index, kind)
                    node.replace_input_with(arg, logged)
        logged = _log(model, node, node, name, make, OUTPUT, 0, kind)
        _read_behind(node, logged)
    model.graph.lint()
    model.recompile()
    return model


def add_loggers(
    name_a: str, model_a: Module, name_b: str, model_b: Module, logger_cls: Any, should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Any = None, unmatchable_types_map: Any = None,
) -> tuple[GraphModule, GraphModule]:  # fmt: skip
    """Both models with loggers behind the layers that they share."""
    a, b = _traced(model_a), _traced(model_b)
    pairs = list(_pairs(a, b))
    of_a, of_b = ([pair[i] for pair in pairs] for i in (0, 1))
    return (
        _log_results(a, of_a, name_a, logger_cls, should_log_inputs),
        _log_results(b, of_b, name_b, logger_cls, should_log_inputs),
    )


def _collect(model: Module, logger_cls: Any, results: NSResultsType) -> None:
    for module in model.modules():
        if isinstance(module, logger_cls):
            layer = results.setdefault(module.ref_name, {}).setdefault(module.results_type, {})
            layer.setdefault(module.model_name, []).append(_logged(module))


def _logged(logger: Any) -> dict[str, Any]:
    names = (
        "ref_node_name", "ref_node_target_type", "prev_node_name", "prev_node_target_type", "index_within_arg",
        "index_of_arg", "fqn", "qconfig_str", "comparisons", "comparison_fn_name",
    )  # fmt: skip
    return {"type": logger.results_type, "values": logger.stats, **{name: getattr(logger, name) for name in names}}


def extract_logger_info(
    model_a: Module, model_b: Module, logger_cls: Any, model_name_to_use_for_layer_names: str
) -> NSResultsType:
    """What the loggers of both models have kept."""
    results: NSResultsType = {}
    for model in (model_a, model_b):
        _collect(model, logger_cls, results)
    return results


# ---------------------------------------------------------------------------------------------- shadows


def _as_float(x: Any) -> Any:
    return x.dequantize() if isinstance(x, fl.Tensor) and x.is_quantized else x


def _shadow(b: GraphModule, of_b: Node, a: GraphModule, of_a: Node, name: str) -> Node | None:
    """The node of the first model beside that of the second, on its inputs as float32."""
    args: list[Any] = []
    for index, arg in enumerate(of_a.args):
        if not isinstance(arg, Node):
            args.append(arg)
        elif (value := _attribute(arg, a)) is not None:
            path = f"{of_b.name}_shadow_attribute_{index}"
            setattr(b, path, value.detach() if isinstance(value, fl.Tensor) else value)
            args.append(b.graph.get_attr(path))
        elif index < len(of_b.args) and isinstance(of_b.args[index], Node):
            args.append(b.graph.call_function(_as_float, (of_b.args[index],)))
        else:
            return None
    if of_a.op == "call_module":
        path = f"{of_b.name}_shadow_copy_{name}_0"
        b.add_module(path, copy.deepcopy(a.get_submodule(str(of_a.target))))
        return b.graph.call_module(path, tuple(args))
    return b.graph.create_node(of_a.op, of_a.target, tuple(args), dict(of_a.kwargs))


def add_shadow_loggers(
    name_a: str, model_a: Module, name_b: str, model_b: Module, logger_cls: Any, should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Any = None, node_type_to_io_type_map: Any = None, unmatchable_types_map: Any = None,
) -> GraphModule:  # fmt: skip
    """The second model with the layers of the first beside its own, on the same inputs, and loggers behind both."""
    a, b = _traced(model_a), _traced(model_b)
    kinds_a, kinds_b = (dict(m.named_modules(remove_duplicate=False)) for m in (a, b))
    for of_a, of_b in list(_pairs(a, b)):
        if any(isinstance(value, Node) for value in of_a.kwargs.values()):
            continue
        with b.graph.inserting_before(of_b):
            shadow = _shadow(b, of_b, a, of_a, name_a)
        if shadow is None:
            continue
        kind_a, kind_b = _type_name(of_a, kinds_a), _type_name(of_b, kinds_b)
        _log(b, shadow, of_b, name_a, logger_cls, OUTPUT, 0, kind_a, of_a)
        logged = _log(b, of_b, of_b, name_b, logger_cls, OUTPUT, 0, kind_b)
        _read_behind(of_b, logged)
        if should_log_inputs:
            for index, arg in enumerate(of_b.args):
                if isinstance(arg, Node) and arg.op != "get_attr":
                    _log(b, arg, of_b, name_b, logger_cls, INPUT, index, kind_b)
    b.graph.lint()
    b.recompile()
    return b


def extract_shadow_logger_info(
    model_a_shadows_b: Module, logger_cls: Any, model_name_to_use_for_layer_names: str
) -> NSResultsType:
    """What the loggers of a model with shadows have kept."""
    results: NSResultsType = {}
    _collect(model_a_shadows_b, logger_cls, results)
    return results


# ---------------------------------------------------------------------------------------------- measures


def extend_logger_results_with_comparison(
    results: NSResultsType,
    model_name_1: str,
    model_name_2: str,
    comparison_fn: Callable[..., Any],
    comparison_name: str,
) -> None:
    """Puts a measure of the values of the first model against those of the second beside the latter."""
    for types in results.values():
        for models in types.values():
            if model_name_1 not in models or model_name_2 not in models:
                raise AssertionError(
                    f"[extend_logger_results_with_comparison] expected results of {model_name_1!r} and {model_name_2!r}, "
                    f"got {sorted(models)}"
                )
            for one, two in zip(models[model_name_1], models[model_name_2], strict=True):
                two[comparison_name] = [
                    comparison_fn(_as_float(x), _as_float(y)) for x, y in zip(one["values"], two["values"], strict=True)
                ]


def loggers_set_enabled(model: Module, enabled: bool) -> None:
    """Whether the loggers of a model keep anything."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.enabled = enabled


def loggers_set_save_activations(model: Module, save_activations: bool) -> None:
    """Whether the loggers of a model keep values; those that compare keep their measures."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.save_activations = save_activations
