"""Making a trained model cheaper to run: batch normalisation folded into the layer before it, dropout and identities
gone, an activation joined to the layer that feeds it.

The passes here change a graph module in place and return how many places they changed. They are for models in eval mode;
`prepare_for_inference` traces a model, runs them all and folds constants.
"""

from __future__ import annotations

import copy
from typing import Any

import flambeau
from flambeau import nn
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.constant_folding import fold_constants
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.ops import tags

_CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d")
_TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
_DROPOUTS = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")


def _module(gm: GraphModule, node: Any) -> Any:
    return gm.get_submodule(str(node.target)) if isinstance(node, Node) and node.op == "call_module" else None


def _kind(module: Any) -> str:
    """The class of one of the library's own layers; nothing for those derived from them."""
    return type(module).__name__ if type(module).__module__.startswith("flambeau.nn") else ""


def _calls_of(gm: GraphModule, node: Node) -> int:
    """How often the module that a node calls is called in the graph."""
    module = _module(gm, node)
    return sum(_module(gm, other) is module for other in gm.graph.nodes if other.op == "call_module")


def fold_batch_norm(gm: GraphModule) -> int:
    """Fold batch normalisations in eval mode into the convolution or linear layer whose only user they are."""
    count = 0
    for node in list(gm.graph.nodes):
        norm = _module(gm, node)
        if _kind(norm) not in _NORMS or norm.training or not norm.track_running_stats or not node.args:
            continue
        before = node.args[0]
        layer = _module(gm, before)
        kind = _kind(layer)
        if kind not in (*_CONVOLUTIONS, *_TRANSPOSED, "Linear") or len(before.users) > 1 or _calls_of(gm, before) > 1:
            continue
        _set_module(gm, str(before.target), folded(layer, norm))
        node.replace_all_uses_with(before)
        gm.graph.erase_node(node)
        count += 1
    return _finish(gm, count)


def folded(layer: Any, norm: Any) -> Any:
    """A copy of a layer that also does what a batch normalisation in eval mode does after it."""
    fused = copy.deepcopy(layer)
    with flambeau.no_grad():
        scale = (norm.running_var + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight
        shift = -norm.running_mean * scale
        if norm.bias is not None:
            shift = shift + norm.bias
        weight = layer.weight
        if _kind(layer) in _TRANSPOSED:
            groups = layer.groups
            sizes = [weight.shape[0], weight.shape[1]] + [1] * (weight.dim() - 2)
            each = scale.reshape(groups, 1, -1).expand(groups, sizes[0] // groups, sizes[1]).reshape(sizes)
            scaled = weight * each
        else:
            scaled = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
        bias = shift if layer.bias is None else layer.bias * scale + shift
        grad = weight.requires_grad
        fused.weight = Parameter(scaled.to(weight.dtype), grad)
        fused.bias = Parameter(bias.to(weight.dtype), grad)
    return fused


def remove_dropout(gm: GraphModule) -> int:
    """Take out dropout, as modules, functions and methods: it does nothing in eval mode."""
    functions = {
        getattr(place, name)
        for place in (flambeau, nn.functional)
        for name in tags.functions("dropout")
        if getattr(place, name, None) is not None
    }
    return _bypass(gm, lambda n, m: _kind(m) in _DROPOUTS or (n.op == "call_function" and n.target in functions))


def remove_identities(gm: GraphModule) -> int:
    """Take out nn.Identity."""
    return _bypass(gm, lambda n, m: _kind(m) == "Identity")


def _bypass(gm: GraphModule, wanted: Any) -> int:
    count = 0
    for node in list(gm.graph.nodes):
        if node.op in ("call_module", "call_function") and wanted(node, _module(gm, node)):
            source = node.args[0] if node.args else node.kwargs.get("input")
            if isinstance(source, Node):
                node.replace_all_uses_with(source)
                gm.graph.erase_node(node)
                count += 1
    return _finish(gm, count)


class LayerWithActivation(Module):
    """A layer and the activation after it as one module, whose results are written in place."""

    def __init__(self, layer: Any, activation: Any) -> None:
        super().__init__()
        self.layer = layer
        self.activation = activation

    def forward(self, *args: Any) -> Any:
        return self.activation(self.layer(*args))


def fuse_activations(gm: GraphModule) -> int:
    """Join ReLU and its kin to the layer that feeds it, so that it writes in place instead of making a tensor."""
    count = 0
    for node in list(gm.graph.nodes):
        activation = _module(gm, node)
        if _kind(activation) not in ("ReLU", "ReLU6", "LeakyReLU", "Hardtanh", "SiLU", "Hardswish") or not node.args:
            continue
        before = node.args[0]
        layer = _module(gm, before)
        if _kind(layer) not in (*_CONVOLUTIONS, "Linear") or len(before.users) > 1 or _calls_of(gm, before) > 1:
            continue
        activation = copy.deepcopy(activation)
        activation.inplace = True
        _set_module(gm, str(before.target), LayerWithActivation(layer, activation))
        node.replace_all_uses_with(before)
        gm.graph.erase_node(node)
        count += 1
    return _finish(gm, count)


def _set_module(gm: GraphModule, path: str, module: Any) -> None:
    parent, _, name = path.rpartition(".")
    setattr(gm.get_submodule(parent) if parent else gm, name, module)


def _finish(gm: GraphModule, count: int) -> int:
    if count:
        gm.delete_all_unused_submodules()
        gm.recompile()
    return count


def prepare_for_inference(model: Any, *, inplace: bool = False) -> GraphModule:
    """A traced model in eval mode, with batch normalisation folded, dropout and identities removed, activations joined to
    their layers and constants folded. The model given is left as it is unless inplace is true."""
    model = model if inplace else copy.deepcopy(model)
    gm = model.eval() if isinstance(model, GraphModule) else symbolic_trace(model.eval())
    remove_dropout(gm)
    remove_identities(gm)
    fold_batch_norm(gm)
    fuse_activations(gm)
    fold_constants(gm, fold_parameters=False)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm
