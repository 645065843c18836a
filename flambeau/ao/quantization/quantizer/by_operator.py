"""What the quantizers of this package share: annotations of ATen's operators by tables.

A product or convolution takes quantized inputs and a quantized weight, and has the sum and the activation behind it along;
the result of the last one is quantized. Operators that choose or average elements keep the grid of their input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flambeau.ao.quantization.graphs.annotation import KEY, QuantizationAnnotation, SharedQuantizationSpec
from flambeau.ao.quantization.graphs.fold import is_call, is_tagged
from flambeau.ao.quantization.quantizer import QuantizationSpec, Quantizer
from flambeau.fx import Node

__all__ = ["OperatorQuantizer", "QuantizationConfig", "get_module_name_filter", "get_module_type_filter"]

SUMS = ("add.Tensor", "add_.Tensor")
BINARY = (*SUMS, "mul.Tensor", "mul_.Tensor")


@dataclass(eq=True, frozen=True)
class QuantizationConfig:
    """How activations, weights and biases are quantized."""

    input_activation: QuantizationSpec | None
    output_activation: QuantizationSpec | None
    weight: QuantizationSpec | None
    bias: QuantizationSpec | None = None
    is_qat: bool = False


def _module_stack(node: Node) -> list[Any]:
    stack = node.meta.get("nn_module_stack") or {}
    return list(stack.values())


def get_module_name_filter(module_name: str) -> Callable[[Node], bool]:
    """Whether a node comes from the module of that name."""
    return lambda node: any(str(path).replace("L['self'].", "") == module_name for path, _ in _module_stack(node))


def get_module_type_filter(kind: Any) -> Callable[[Node], bool]:
    """Whether a node comes from a module of that class."""
    named = f"{kind.__module__}.{kind.__qualname__}"
    return lambda node: any(k is kind or k == named for _, k in _module_stack(node))


class OperatorQuantizer(Quantizer):
    """Annotates products, convolutions, sums, and operators that keep grids; by configurations set beforehand."""

    activations = "after_product"  # the tag of activations that a product takes along
    fuses_sums = True
    quantizes_sums = True  # a sum that no convolution takes along is quantized for itself

    def __init__(self) -> None:
        self.global_config: QuantizationConfig | None = None
        self.operator_configs: dict[Any, QuantizationConfig | None] = {}
        self.module_name_configs: dict[str, QuantizationConfig | None] = {}
        self.module_type_configs: dict[Any, QuantizationConfig | None] = {}

    # ------------------------------------------------------------------------------------------ configuration

    def set_global(self, quantization_config: QuantizationConfig) -> Any:
        self.global_config = quantization_config
        return self

    def set_object_type(self, module_type: Any, quantization_config: QuantizationConfig | None) -> Any:
        """The configuration of a class of modules, or of an operator."""
        if isinstance(module_type, type):
            self.module_type_configs[module_type] = quantization_config
        else:
            self.operator_configs[module_type] = quantization_config
        return self

    set_operator_type = set_object_type
    set_module_type = set_object_type
    set_function_type_qconfig = set_object_type
    set_module_type_qconfig = set_object_type

    def set_module_name(self, module_name: str, quantization_config: QuantizationConfig | None) -> Any:
        self.module_name_configs[module_name] = quantization_config
        return self

    set_module_name_qconfig = set_module_name

    def config_of(self, node: Node) -> QuantizationConfig | None:
        for name, config in self.module_name_configs.items():
            if get_module_name_filter(name)(node):
                return config
        for kind, config in self.module_type_configs.items():
            if get_module_type_filter(kind)(node):
                return config
        if node.target in self.operator_configs:
            return self.operator_configs[node.target]
        packet = getattr(node.target, "overloadpacket", None)
        if packet in self.operator_configs:
            return self.operator_configs[packet]
        return self.global_config

    # ------------------------------------------------------------------------------------------ annotation

    def annotate(self, model: Any) -> Any:
        for node in model.graph.nodes:
            if is_tagged(node, "integer_product"):
                self._annotate_product(node)
        for node in model.graph.nodes:
            if is_call(node, *BINARY) and self.quantizes_sums:
                self._annotate_binary(node)
        self._annotate_sharing(model)
        return model

    def validate(self, model: Any) -> None:
        for node in model.graph.nodes:
            annotation = node.meta.get(KEY)
            strangers = [s for s in (annotation.input_qspec_map if annotation else ()) if s not in node.all_input_nodes]
            if strangers:
                raise RuntimeError(f"[quantizer] expected annotations of inputs of {node}, got {strangers}")

    def _is_free(self, *nodes: Node) -> bool:
        return not any(KEY in node.meta and node.meta[KEY]._annotated for node in nodes)

    def _only_reader(self, node: Node) -> Node | None:
        return next(iter(node.users)) if len(node.users) == 1 else None

    def _annotate_product(self, node: Node) -> None:
        config = self.config_of(node)
        if config is None or not self._is_free(node):
            return
        x, weight = node.args[0], node.args[1]
        bias = node.args[2] if len(node.args) > 2 else None
        inputs = {x: config.input_activation, weight: config.weight}
        if bias is not None and config.bias is not None:
            inputs[bias] = config.bias
        chain, extra = self._chain(node)
        last = chain[-1]
        for member in chain:
            member.meta[KEY] = QuantizationAnnotation(_annotated=True)
        node.meta[KEY].input_qspec_map = inputs
        if extra is not None:
            total, other = extra
            total.meta[KEY].input_qspec_map = {other: config.input_activation}
        dynamic = config.input_activation is not None and config.input_activation.is_dynamic
        if config.output_activation is not None and not dynamic and self.quantizes_result(last):
            last.meta[KEY].output_qspec = config.output_activation

    def quantizes_result(self, node: Node) -> bool:
        """Whether the result of a product is quantized: where a reader computes with integers, too."""
        computes = ("integer_product", "moves", "chooses", "averages", "view")
        return any(is_tagged(user, *computes) or is_call(user, *BINARY, "cat") for user in node.users)

    def _chain(self, node: Node) -> tuple[list[Node], tuple[Node, Any] | None]:
        """The product with batch norm, sum and activation behind it, which one kernel computes."""
        chain, extra = [node], None
        reader = self._only_reader(node)
        if reader is not None and is_call(reader, "batch_norm", "div.Tensor"):
            while (
                reader is not None
                and is_call(reader, "batch_norm", "div.Tensor", "add.Tensor")
                and reader.meta.get("qat_conv_bn", True)
            ):
                if is_call(reader, "add.Tensor") and "qat_conv_bn" not in reader.meta:
                    break
                chain.append(reader)
                if is_call(reader, "batch_norm"):
                    reader = self._only_reader(reader)
                    break
                reader = self._only_reader(reader)
        if self.fuses_sums and reader is not None and is_call(reader, *SUMS) and self._is_free(reader):
            others = [a for a in reader.args[:2] if isinstance(a, Node) and a is not chain[-1]]
            if len(others) == 1:
                chain.append(reader)
                extra = (reader, others[0])
                reader = self._only_reader(reader)
        if reader is not None and is_tagged(reader, self.activations) and self._is_free(reader):
            chain.append(reader)
        return chain, extra

    def _annotate_binary(self, node: Node) -> None:
        config = self.config_of(node)
        if (
            config is None
            or not self._is_free(node)
            or config.input_activation is None
            or config.input_activation.is_dynamic
        ):
            return
        operands = [a for a in node.args[:2] if isinstance(a, Node)]
        if len(operands) != 2:
            return
        reader = self._only_reader(node)
        last = reader if reader is not None and is_call(reader, "relu", "relu_") and self._is_free(reader) else node
        for member in dict.fromkeys((node, last)):
            member.meta[KEY] = QuantizationAnnotation(_annotated=True)
        node.meta[KEY].input_qspec_map = dict.fromkeys(operands, config.input_activation)
        last.meta[KEY].output_qspec = config.output_activation

    def _annotate_sharing(self, model: Any) -> None:
        """Operators between quantized ones that keep the grid of their input."""
        for node in model.graph.nodes:
            joins = is_call(node, "cat")
            if not (joins or is_tagged(node, "moves", "chooses", "averages", "view")) or not self._is_free(node):
                continue
            config = self.config_of(node)
            if config is None or config.input_activation is None or config.input_activation.is_dynamic:
                continue
            sources = list(node.args[0]) if joins else [node.args[0]]
            first = sources[0]
            if not self._is_quantized(sources) or not isinstance(first, Node):
                continue
            shared = SharedQuantizationSpec((first, node))
            inputs: dict[Node, Any] = {first: config.input_activation}
            of_first = first.meta.get(KEY)
            if of_first is not None and of_first.output_qspec is not None:
                inputs[first] = SharedQuantizationSpec(first)
            inputs.update((source, shared) for source in sources[1:] if source is not first)
            node.meta[KEY] = QuantizationAnnotation(inputs, shared, _annotated=True)

    def _is_quantized(self, sources: Iterable[Any]) -> bool:
        annotations = (s.meta.get(KEY) for s in sources if isinstance(s, Node))
        return any(annotation is not None and annotation.output_qspec is not None for annotation in annotations)
