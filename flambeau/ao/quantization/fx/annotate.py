"""Annotations on a traced model, from a QConfigMapping and the patterns of a backend."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ao.quantization.backend_config import BackendConfig, ObservationType
from flambeau.ao.quantization.graphs.annotation import (
    KEY,
    QuantizationAnnotation,
    QuantizationSpecBase,
    SharedQuantizationSpec,
)
from flambeau.ao.quantization.observer import ReuseInputObserver
from flambeau.ao.quantization.qconfig_mapping import QConfigMapping
from flambeau.fx import GraphModule, Node

__all__ = ["ConfiguredSpec", "annotate", "configurations"]


class ConfiguredSpec(QuantizationSpecBase):
    """By an observer that a configuration makes; equal where the configurations are."""

    def __init__(self, make: Any) -> None:
        self.make = make
        example = make()
        self.dtype, self.is_dynamic = getattr(example, "dtype", fl.float32), getattr(example, "is_dynamic", False)
        self.reuses_input = isinstance(example, ReuseInputObserver)

    def make_observer(self) -> Any:
        return self.make()

    def _key(self) -> Any:
        return getattr(self.make, "func", self.make), str(getattr(self.make, "keywords", {}))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfiguredSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def configurations(model: GraphModule, mapping: QConfigMapping) -> dict[Node, Any]:
    """The configuration of each call of a graph."""
    modules = dict(model.named_modules(remove_duplicate=False))
    counts: dict[Any, int] = {}
    qconfigs: dict[Node, Any] = {}
    for node in model.graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if node.op == "call_module":
            kind, path = type(modules[str(node.target)]), str(node.target)
            place = path.rpartition(".")[0]
            kind = _float_kind(modules[str(node.target)])
        elif node.op in ("call_function", "call_method"):
            kind = node.target  # type: ignore[assignment]
            path = place = str(stack[-1][0]) if stack else ""
        else:
            continue
        number = counts.get((place, kind), 0)
        counts[place, kind] = number + 1
        qconfigs[node] = mapping.find(path, kind, (place, kind, number))
    return qconfigs


def _float_kind(module: Any) -> Any:
    """The class that users name in configurations: of a fused module, that of its layer."""
    from flambeau.ao.nn.intrinsic import _FusedModule

    return type(module[0]) if isinstance(module, _FusedModule) else getattr(module, "_configured_as", type(module))


_NUMBERS = frozenset("size dim ndimension numel nelement stride item tolist __len__ is_contiguous element_size".split())
_ATTRIBUTES_OF_TENSORS = frozenset("T mT H mH real imag data grad".split())


def _is_number(node: Node) -> bool:
    """Whether a node computes sizes or other numbers of Python: from attributes of tensors, or from such numbers."""
    if node.op == "call_method":
        return node.target in _NUMBERS or (bool(node.all_input_nodes) and _is_number(node.all_input_nodes[0]))
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] not in _ATTRIBUTES_OF_TENSORS
    if node.target is len:
        return True
    sources = node.all_input_nodes
    return getattr(node.target, "__module__", "") in _PLAIN and bool(sources) and all(map(_is_number, sources))


_PLAIN = ("_operator", "builtins", "math")  # modules of functions that give numbers for numbers


def _takes_tensors(node: Node) -> list[Node]:
    return [n for n in node.all_input_nodes if n.op != "get_attr" and not _is_number(n)]


def _returns_tensor(node: Node) -> bool:
    return not _is_number(node)


def annotate(
    model: GraphModule, qconfigs: dict[Node, Any], backend_config: BackendConfig, quantized_inputs: Any = ()
) -> None:
    """Writes annotations for all calls that the backend has a pattern for."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for node, config in qconfigs.items():
        kind = type(modules[str(node.target)]) if node.op == "call_module" else node.target
        pattern = backend_config.find(kind)
        if pattern is None or config is None or not _returns_tensor(node) or not _allowed(pattern, config):
            continue
        if KEY in node.meta:
            continue  # the relu of a sum
        if node.op == "call_module":
            modules[str(node.target)].qconfig = config
        if pattern.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
            continue
        spec = ConfiguredSpec(config.activation)
        shares = pattern.observation_type is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT or spec.reuses_input
        if shares:
            _share(node)
        elif _is_static(spec):
            _own(node, spec, config, pattern, model)
        elif spec.is_dynamic and pattern._input_type_to_index:
            _dynamic_function(node, spec, config)


def _is_static(spec: ConfiguredSpec) -> bool:
    return not spec.is_dynamic and spec.dtype not in (fl.float32, fl.float16, None)


def _allowed(pattern: Any, config: Any) -> bool:
    """Whether the backend computes the pattern with the dtypes of the configuration."""
    activation = ConfiguredSpec(config.activation)
    if activation.reuses_input or not pattern.dtype_configs:
        return True
    weight = getattr(config.weight(), "dtype", None) if config.weight is not None else None
    for allowed in pattern.dtype_configs:
        dynamic = bool(allowed.is_dynamic)
        same_input = allowed.input_dtype is None or activation.dtype in (
            allowed.input_dtype,
            _signed(allowed.input_dtype),
        )
        same_weight = allowed.weight_dtype is None or weight in (None, allowed.weight_dtype, fl.float32)
        if same_input and same_weight and dynamic == activation.is_dynamic:
            return True
    return False


def _signed(dtype: Any) -> Any:
    return fl.qint8 if dtype is fl.quint8 else dtype


def _own(node: Node, spec: ConfiguredSpec, config: Any, pattern: Any, model: GraphModule) -> None:
    fixed = type(spec.make()).__name__.startswith("FixedQParams")
    inputs: dict[Node, Any] = {}
    for source in _takes_tensors(node):
        if _is_float(source):
            if not fixed:
                inputs[source] = spec
            elif KEY not in source.meta or source.meta[KEY].output_qspec is None:
                return  # nothing before it is quantized
    for name, index in pattern._input_type_to_index.items():
        weight = node.args[index] if len(node.args) > index else node.kwargs.get(name)
        if name == "weight" and isinstance(weight, Node):
            inputs[weight] = ConfiguredSpec(config.weight)
    if not inputs and not fixed:
        return
    node.meta[KEY] = QuantizationAnnotation(inputs, spec, _annotated=True)
    reader = next(iter(node.users)) if len(node.users) == 1 else None
    if node.op != "call_module" and reader is not None and _is_relu(reader, model) and len(inputs) <= 2:
        # A sum and the relu behind it are one kernel: what lies between them is not rounded.
        node.meta[KEY].output_qspec = None
        reader.meta[KEY] = QuantizationAnnotation({}, spec, _annotated=True)


def _is_relu(node: Node, model: GraphModule) -> bool:
    if node.op == "call_module":
        return type(model.get_submodule(str(node.target))) is fl.nn.ReLU
    return node.target in (fl.relu, fl.nn.functional.relu, "relu", "relu_")


def _dynamic_function(node: Node, spec: ConfiguredSpec, config: Any) -> None:
    node.meta[KEY] = QuantizationAnnotation(_custom={"dynamic": config})


def _is_float(node: Node) -> bool:
    """Whether a node makes a tensor that can be quantized, as far as one can tell: sizes and indices cannot."""
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    dtype = getattr(value, "dtype", None)
    return _returns_tensor(node) and (dtype is None or dtype is fl.float32)


def _share(node: Node) -> None:
    sources = [s for s in _takes_tensors(node) if _is_float(s)]
    quantized = [s for s in sources if KEY in s.meta and s.meta[KEY].output_qspec is not None]
    if not quantized:
        return
    first = quantized[0]
    inputs: dict[Node, Any] = {first: SharedQuantizationSpec(first)}
    inputs.update((s, SharedQuantizationSpec((first, node))) for s in sources if s is not first)
    node.meta[KEY] = QuantizationAnnotation(inputs, SharedQuantizationSpec((first, node)), _annotated=True)
