"""Quantization of models by their traces: the parts are found, fused and replaced without marks in the model.

mapping = get_default_qconfig_mapping("x86")
prepared = prepare_fx(model.eval(), mapping, example_inputs)
for batch in examples:
    prepared(batch)
quantized = convert_fx(prepared)
"""

from __future__ import annotations

import copy
from typing import Any

from flambeau.ao.quantization.backend_config import BackendConfig, get_native_backend_config
from flambeau.ao.quantization.fx import annotate, lower
from flambeau.ao.quantization.fx.custom_config import (
    ConvertCustomConfig,
    FuseCustomConfig,
    PrepareCustomConfig,
    flat_classes,
)
from flambeau.ao.quantization.fx.fuse import fuse
from flambeau.ao.quantization.graphs.annotation import KEY
from flambeau.ao.quantization.graphs.observe import insert_observers
from flambeau.ao.quantization.graphs.reference import observers_to_pairs
from flambeau.ao.quantization.qconfig_mapping import QConfigMapping
from flambeau.fx import GraphModule, Tracer
from flambeau.nn.modules.module import Module

__all__ = ["convert_fx", "convert_to_reference_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]


class QuantizationTracer(Tracer):
    """Does not look into modules that users name, nor into observers and quantized layers."""

    def __init__(self, skipped_module_names: list[str], skipped_module_classes: list[Any]) -> None:
        super().__init__()
        self.skipped_module_names, self.skipped_module_classes = skipped_module_names, skipped_module_classes

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        named = module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes
        return named or super().is_leaf_module(m, module_qualified_name)


def _custom(value: Any, kind: Any) -> Any:
    if value is None:
        return kind()
    return kind.from_dict(value) if isinstance(value, dict) else value


def _traced(model: Module, custom: Any) -> GraphModule:
    if isinstance(model, GraphModule):
        traced = model
    else:
        names = [
            *getattr(custom, "non_traceable_module_names", []),
            *getattr(custom, "standalone_module_names", {}),
        ]
        classes = [
            *getattr(custom, "non_traceable_module_classes", []),
            *flat_classes(getattr(custom, "float_to_observed_mapping", {})),
            *getattr(custom, "standalone_module_classes", {}),
        ]
        tracer = QuantizationTracer(names, classes)
        traced = GraphModule(model, tracer.trace(model))
    for name in custom.preserved_attributes:
        setattr(traced, name, getattr(model, name))
    return traced


def fuse_fx(model: Module, fuse_custom_config: Any = None, backend_config: BackendConfig | None = None) -> GraphModule:
    """The traced model with layers fused, for evaluation."""
    if model.training:
        raise AssertionError("[fuse_fx] expected a model in eval mode, got one in training mode")
    graph_module = _traced(copy.deepcopy(model), _custom(fuse_custom_config, FuseCustomConfig))
    fuse(graph_module, False, backend_config or get_native_backend_config())
    return graph_module


def _prepare(
    model: Module, qconfig_mapping: Any, is_qat: bool, prepare_custom_config: Any, backend_config: Any
) -> GraphModule:
    custom = _custom(prepare_custom_config, PrepareCustomConfig)
    mapping = QConfigMapping.from_dict(qconfig_mapping) if isinstance(qconfig_mapping, dict) else qconfig_mapping
    backend = BackendConfig.from_dict(backend_config) if isinstance(backend_config, dict) else backend_config
    backend = backend or get_native_backend_config()
    graph_module = _traced(copy.deepcopy(model), custom)
    fuse(graph_module, is_qat, backend)
    qconfigs = annotate.configurations(graph_module, mapping)
    if is_qat:
        _swap_qat(graph_module, qconfigs, backend)
    _observe_custom(graph_module, qconfigs, custom)
    _prepare_standalone(graph_module, mapping, is_qat, custom)
    annotate.annotate(graph_module, qconfigs, backend)
    _ends(graph_module, custom)
    insert_observers(graph_module)
    graph_module.meta["quantization"] = {"backend": backend, "custom": custom}
    return graph_module


def _swap_qat(model: GraphModule, qconfigs: Any, backend: BackendConfig) -> None:
    """Layers that round their weights, in place of float ones."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for node, config in qconfigs.items():
        if node.op != "call_module" or config is None:
            continue
        module = modules[str(node.target)]
        pattern = backend.find(type(module))
        if pattern is None or pattern.qat_module is None or getattr(config.weight(), "dtype", None) is None:
            continue
        module.qconfig = config
        path, _, name = str(node.target).rpartition(".")
        trained = pattern.qat_module.from_float(module)
        trained._configured_as = annotate._float_kind(module)
        setattr(model.get_submodule(path) if path else model, name, trained)
        modules[str(node.target)] = trained


def _observe_custom(model: GraphModule, qconfigs: Any, custom: Any) -> None:
    """Classes of users that bring a form with observers inside."""
    table = flat_classes(custom.float_to_observed_mapping)
    for node, config in qconfigs.items():
        module = model.get_submodule(str(node.target)) if node.op == "call_module" and table else None
        if module is not None and type(module) in table and config is not None:
            module.qconfig = config
            path, _, name = str(node.target).rpartition(".")
            observed = table[type(module)].from_float(module)
            observed.qconfig = config
            setattr(model.get_submodule(path) if path else model, name, observed)


def _prepare_standalone(model: GraphModule, mapping: QConfigMapping, is_qat: bool, custom: Any) -> None:
    """Modules that are quantized by themselves, with observers of their own inside."""
    for path, module in list(model.named_modules()):
        entry = custom.standalone_module_names.get(path, custom.standalone_module_classes.get(type(module)))
        if entry is None:
            continue
        prepared = _prepare(
            module, entry.qconfig_mapping or mapping, is_qat, entry.prepare_custom_config, entry.backend_config
        )
        prepared.meta["standalone"] = True
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner) if owner else model, name, prepared)


def _ends(model: GraphModule, custom: Any) -> None:
    """Inputs that come quantized are not observed again."""
    inputs = [node for node in model.graph.nodes if node.op == "placeholder"]
    for index in custom.input_quantized_indexes:
        for reader in inputs[index].users:
            if KEY in reader.meta:
                reader.meta[KEY].input_qspec_map.pop(inputs[index], None)


def prepare_fx(
    model: Module, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None, _equalization_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:  # fmt: skip
    """The traced model with observers, to be run on examples."""
    if model.training and not isinstance(model, GraphModule):
        import warnings

        warnings.warn(
            "[prepare_fx] expected a model in eval mode, got one in training mode: batch norms are not fused",
            stacklevel=2,
        )
    return _prepare(model, qconfig_mapping, False, prepare_custom_config, backend_config)


def prepare_qat_fx(
    model: Module,
    qconfig_mapping: Any,
    example_inputs: Any,
    prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """The traced model with fake quantization, to be trained."""
    if not model.training:
        raise AssertionError("[prepare_qat_fx] expected a model in training mode, got one in eval mode")
    return _prepare(model, qconfig_mapping, True, prepare_custom_config, backend_config)


def _convert(
    graph_module: GraphModule, reference: bool, decomposed: bool, custom: Any, remove_qconfig: bool
) -> GraphModule:
    custom = _custom(custom, ConvertCustomConfig)
    preserved = {name: getattr(graph_module, name) for name in custom.preserved_attributes}
    model, classes = copy.deepcopy(graph_module), flat_classes(custom.observed_to_quantized_mapping)
    for path, module in list(model.named_modules()):
        owner, _, name = path.rpartition(".")
        standalone = isinstance(module, GraphModule) and module.meta.get("standalone") and module is not model
        if standalone or type(module) in classes:
            new: Any = (
                _convert(module, reference, decomposed, None, remove_qconfig)  # type: ignore[arg-type]
                if standalone
                else classes[type(module)].from_observed(module)
            )
            setattr(model.get_submodule(owner) if owner else model, name, new)
    prepared_with = model.meta.get("quantization", {}).get("custom")
    outputs = getattr(prepared_with, "output_quantized_indexes", [])
    observers_to_pairs(model, decomposed)
    _quantized_inputs(model, getattr(prepared_with, "input_quantized_indexes", []))
    if reference:
        _reference_weights(model, decomposed)
    else:
        lower.lower(model)
        lower.swap_dynamic(model)
    _quantized_results(model, outputs)
    if remove_qconfig:
        for part in model.modules():
            part.__dict__.pop("qconfig", None)
    for name, value in preserved.items():
        setattr(model, name, value)
    model.recompile()
    model.forward  # noqa: B018  printed code is compiled when it is first asked for, which captures cannot look into
    return model


def _quantized_inputs(model: GraphModule, indexes: list[int]) -> None:
    """Inputs that come quantized are dequantized first; layers that read them directly take that away again."""
    inputs = [node for node in model.graph.nodes if node.op == "placeholder"]
    for index in indexes:
        readers = list(inputs[index].users)
        with model.graph.inserting_after(inputs[index]):
            values = model.graph.call_method("dequantize", (inputs[index],))
        for reader in readers:
            reader.replace_input_with(inputs[index], values)


def _quantized_results(model: GraphModule, indexes: list[int]) -> None:
    """Results that are to stay quantized are returned before they are dequantized."""
    output = model.graph.output_node()
    results = output.args[0]
    if not indexes or results is None:
        return
    many = list(results) if isinstance(results, (tuple, list)) else [results]
    for index in indexes:
        if lower._is_dequantize(many[index]):
            many[index] = many[index].args[0]
    output.args = (tuple(many) if isinstance(results, (tuple, list)) else many[0],)
    model.graph.eliminate_dead_code()


def _reference_weights(model: GraphModule, decomposed: bool) -> None:
    """Float layers whose weights lie on their grid, which is what the quantized ones compute."""
    from flambeau.ao.nn.quantized.reference import reference_module

    for path, module in list(model.named_modules(remove_duplicate=False)):
        if getattr(module, "qconfig", None) is not None and (new := reference_module(module)) is not None:
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner) if owner else model, name, new)
    model.recompile()


def convert_fx(
    graph_module: GraphModule, convert_custom_config: Any = None, _remove_qconfig: bool = True, qconfig_mapping: Any = None,
    backend_config: Any = None, keep_original_weights: bool = False,
) -> GraphModule:  # fmt: skip
    """The prepared model with quantized layers on quantized tensors."""
    return _convert(graph_module, False, False, convert_custom_config, _remove_qconfig)


def convert_to_reference_fx(
    graph_module: GraphModule, convert_custom_config: Any = None, _remove_qconfig: bool = True, qconfig_mapping: Any = None,
    backend_config: Any = None,
) -> GraphModule:  # fmt: skip
    """The prepared model in reference form: float layers between quantize and dequantize, for other compilers."""
    return _convert(graph_module, True, False, convert_custom_config, _remove_qconfig)


def _convert_to_reference_decomposed_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """The same with `quantized_decomposed` operators on plain tensors: compiles, exports to ONNX and packages."""
    return _convert(graph_module, True, True, convert_custom_config, True)
