"""Quantization of exported programs.

    program = export(model, inputs).module()
    prepared = prepare_pt2e(program, X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config()))
    for batch in examples:
        prepared(batch)
    quantized = convert_pt2e(prepared)

The result is a graph of floating point operators between `quantized_decomposed` ones. The compiler computes products between
such pairs with integers, and ONNX export writes them as QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ao.quantization.graphs import conv_bn, fold
from flambeau.ao.quantization.graphs.observe import insert_observers
from flambeau.ao.quantization.graphs.reference import observers_to_pairs
from flambeau.ao.quantization.graphs.unlift import unlifted
from flambeau.ao.quantization.quantizer import Quantizer
from flambeau.fx import GraphModule

__all__ = [
    "allow_exported_model_train_eval", "convert_pt2e", "move_exported_model_to_eval", "move_exported_model_to_train", "prepare_pt2e",
    "prepare_qat_pt2e",
]  # fmt: skip


def _annotated(model: Any, quantizer: Quantizer, is_qat: bool) -> GraphModule:
    graph_module = unlifted(model)
    if is_qat:
        conv_bn.spread(graph_module)
    else:
        fold.fold_batch_norms(graph_module)
    graph_module = quantizer.transform_for_annotation(graph_module)
    quantizer.annotate(graph_module)
    quantizer.validate(graph_module)
    insert_observers(graph_module)
    return allow_exported_model_train_eval(graph_module)


def prepare_pt2e(model: Any, quantizer: Quantizer) -> GraphModule:
    """The program with observers where the quantizer wants them."""
    return _annotated(model, quantizer, False)


def prepare_qat_pt2e(model: Any, quantizer: Quantizer) -> GraphModule:
    """The program with fake quantization, to be trained."""
    return _annotated(model, quantizer, True)


def convert_pt2e(
    model: GraphModule, use_reference_representation: bool = False, fold_quantize: bool = True
) -> GraphModule:
    """The program with quantize and dequantize operators in place of observers; weights are kept as integers."""
    if use_reference_representation:
        raise NotImplementedError(
            "[convert_pt2e] expected use_reference_representation=False, got True: integer forms are the compiler's"
        )
    move_exported_model_to_eval(model)
    conv_bn.gather(model)
    observers_to_pairs(model)
    if fold_quantize:
        fold.fold_quantized_constants(model)
    for parameter in model.parameters():
        parameter.requires_grad_(False)  # rounding has no derivative, and integers are quicker without
    return allow_exported_model_train_eval(model)


# ---------------------------------------------------------------------------------------------- training and evaluation


def _set_mode(model: Any, training: bool) -> Any:
    for node in model.graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        for position, argument in enumerate(schema.arguments if schema else ()):
            if argument.name in ("train", "training") and len(node.args) > position:
                node.update_arg(position, training)
    model.recompile()
    return model


def move_exported_model_to_eval(model: Any) -> Any:
    """Dropout and batch norm as in evaluation."""
    return _set_mode(model, False)


def move_exported_model_to_train(model: Any) -> Any:
    """Dropout and batch norm as in training."""
    return _set_mode(model, True)


def allow_exported_model_train_eval(model: Any) -> Any:
    """Lets `train()` and `eval()` of an exported model change dropout and batch norm."""

    def train(mode: bool = True) -> Any:
        fl.nn.Module.train(model, mode)
        return _set_mode(model, mode)

    model.train, model.eval = train, lambda: train(False)
    model.forward  # noqa: B018  printed code is compiled when it is first asked for, which captures cannot look into
    return model
