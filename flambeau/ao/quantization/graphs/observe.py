"""Observers in a graph, where annotations ask for them.

Places that share a grid share one observer: those that say so, and an input whose maker's result has the same
specification. An observer of a result is a node behind it that all readers read; one of an edge is read by that node alone.
"""

from __future__ import annotations

from typing import Any

from flambeau.ao.quantization.graphs.annotation import KEY, DerivedQuantizationSpec, SharedQuantizationSpec
from flambeau.fx import GraphModule, Node
from flambeau.nn.modules.module import Module

__all__ = ["PREFIX", "insert_observers"]

PREFIX = "activation_post_process_"


class DerivedObserver(Module):
    """Chooses a grid from those of other observers when it is asked."""

    def __init__(self, spec: DerivedQuantizationSpec, sources: list[Any]) -> None:
        super().__init__()
        self.dtype, self.qscheme, self.ch_axis = spec.dtype, spec.qscheme, spec.ch_axis or 0
        self.quant_min, self.quant_max, self.is_dynamic = spec.quant_min, spec.quant_max, False
        self._derive, self._sources = spec.derive_qparams_fn, sources

    def forward(self, x: Any) -> Any:
        return x

    def calculate_qparams(self) -> Any:
        return self._derive(self._sources)


class _Places:
    """Specifications of places, and the observer of each group of places that share one."""

    def __init__(self, model: GraphModule, enabled: Any) -> None:
        self.enabled = enabled
        self.specs: dict[Any, Any] = {}
        self.observers: dict[Any, Any] = {}
        self.implicit: dict[Any, bool] = {}
        for node in model.graph.nodes:
            annotation = node.meta.get(KEY)
            if annotation is None:
                continue
            for source, spec in annotation.input_qspec_map.items():
                if spec is not None:
                    self.specs[source, node] = spec
                    self.implicit[source, node] = annotation.allow_implicit_sharing
            if annotation.output_qspec is not None:
                self.specs[node] = annotation.output_qspec

    def root(self, place: Any, seen: tuple[Any, ...] = ()) -> Any:
        """The place whose observer this one has."""
        if place in seen:
            return place
        spec = self.specs.get(place)
        if isinstance(spec, SharedQuantizationSpec):
            return self.root(spec.edge_or_node, (*seen, place))
        if isinstance(place, tuple) and self.implicit.get(place, True):
            source = place[0]
            of_source = self.root(source, (*seen, place)) if source in self.specs else None
            if of_source is not None and self.specs.get(of_source) == spec:
                return of_source
            for other in source.users:  # another reader of the same tensor with the same specification
                if (source, other) in self.specs and self.specs[source, other] == spec:
                    return source, other
        return place

    def observer(self, place: Any) -> Any:
        root = self.root(place)
        if root not in self.observers:
            spec = self.specs.get(root)
            if spec is None:
                raise RuntimeError(
                    f"[prepare] expected a specification for {root}, got none: a shared one refers to it"
                )
            if isinstance(spec, DerivedQuantizationSpec):
                derived = DerivedObserver(spec, [self.observer(source) for source in spec.derived_from])
            else:
                derived = spec.make_observer()
            self.observers[root] = derived
        return self.observers[root]


def insert_observers(model: GraphModule) -> None:
    """Puts observers into a graph, in place."""
    places = _Places(model, None)
    inserted: dict[Any, str] = {}
    numbers = iter(range(1 << 30))

    def call(observer: Any, value: Node, before: Node) -> Node:
        name = inserted.get(id(observer))
        if name is None:
            name = f"{PREFIX}{next(n for n in numbers if not hasattr(model, f'{PREFIX}{n}'))}"
            model.add_submodule(name, observer)
            inserted[id(observer)] = name
        with model.graph.inserting_before(before):
            node = model.graph.call_module(name, (value,))
        if "val" in value.meta:
            node.meta["val"] = value.meta["val"]
        return node

    behind: dict[Node, Node] = {}  # results that are observed, with the node of the observer
    beside: dict[tuple[Node, int], Node] = {}
    for node in list(model.graph.nodes):
        annotation = node.meta.get(KEY)
        if annotation is not None:
            for source in list(annotation.input_qspec_map):
                if (source, node) in places.specs:
                    observer = places.observer((source, node))
                    shared = source in behind and places.observers.get(places.root(source)) is observer
                    if not shared:
                        value = behind.get(source, source) if source in behind else source
                        key = (source, id(observer))
                        if key not in beside:
                            beside[key] = call(observer, source, node)
                        node.replace_input_with(value, beside[key])
        if node in places.specs:
            observer = places.observer(node)
            after = call(observer, node, node.next)
            readers = [user for user in node.users if user is not after]
            for user in readers:
                user.replace_input_with(node, after)
            behind[node] = after
    model.graph.lint()
    model.recompile()


def is_observer(module: Any) -> bool:
    """Whether a module of a graph is one of its observers."""
    return hasattr(module, "calculate_qparams") or type(module).__name__ in ("PlaceholderObserver", "NoopObserver")
