"""Pictures of graphs: DOT for Graphviz, and SVG laid out here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Union

from flambeau.fx._codegen import dtype_abbreviation, magic_methods
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes._layered_layout import Box, draw

__all__ = ["FxGraphDrawer"]

# Fill and outline by kind of node.
_COLOURS = {
    "placeholder": ("#d7f0dd", "#4f9b68"),
    "get_attr": ("#f6efc6", "#b09a35"),
    "call_module": ("#d6e6fb", "#4c7fc2"),
    "call_function": ("#fde3cf", "#cf8043"),
    "call_method": ("#eadcf6", "#8f63b8"),
    "output": ("#e3e5e9", "#6d7480"),
}
# What is shown of a layer, and the value that goes without saying.
_SHOWN = {"kernel_size": "", "stride": "1", "groups": "1", "p": "", "num_features": "", "normalized_shape": "",
          "num_embeddings": ""}  # fmt: skip


class Drawing:
    """A picture of a graph, in two forms."""

    def __init__(self, name: str, boxes: list[tuple[Node, list[str]]], edges: list[tuple[Node, Node]]) -> None:
        self.name = name
        self._boxes = boxes
        self._edges = edges

    def to_string(self) -> str:
        """DOT."""
        lines = [f'digraph "{_quoted(self.name)}" {{', "rankdir=TB;", 'node [shape=box, style="rounded,filled"];']
        for node, text in self._boxes:
            fill, stroke = _COLOURS[node.op]
            label = "\\n".join(_quoted(line) for line in text)
            lines.append(f'"{node.name}" [label="{label}", fillcolor="{fill}", color="{stroke}"];')
        lines += [f'"{a.name}" -> "{b.name}";' for a, b in self._edges]
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self) -> str:
        """SVG, laid out without help."""
        boxes = {node: Box(text, *_COLOURS[node.op]) for node, text in self._boxes}
        edges = [(boxes[a], boxes[b]) for a, b in self._edges]
        used = {node.op for node, _ in self._boxes}
        legend = [(kind, fill) for kind, (fill, _) in _COLOURS.items() if kind in used]
        return draw(self.name, list(boxes.values()), edges, legend)

    _repr_svg_ = svg
    __str__ = to_string

    def create_svg(self) -> bytes:
        return self.svg().encode()

    def create_dot(self) -> bytes:
        return self.to_string().encode()

    def write_svg(self, path: Union[str, os.PathLike[str]]) -> bool:
        with open(path, "w") as file:
            file.write(self.svg())
        return True

    def write_dot(self, path: Union[str, os.PathLike[str]]) -> bool:
        with open(path, "w") as file:
            file.write(self.to_string())
        return True

    write_raw = write = write_dot


class FxGraphDrawer:
    """Draws a graph module: `FxGraphDrawer(gm, "name").get_dot_graph().write_svg("graph.svg")`.

    ignore_getattr     leave out parameters and other attributes
    parse_stack_trace  show the user's line where it was recorded
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name = name
        self._module = graph_module
        self._skip_attributes = ignore_getattr or ignore_parameters_and_buffers
        self._stack = parse_stack_trace
        self._drawings = {name: self._draw(graph_module, name)}
        for path, child in graph_module.named_modules():
            if path and isinstance(child, GraphModule):
                self._drawings[f"{name}_{path}"] = self._draw(child, f"{name}_{path}")

    def get_dot_graph(self, submod_name: str | None = None) -> Drawing:
        """The picture of the module, or of one of its graph modules by path."""
        return self._drawings[self._name if submod_name is None else f"{self._name}_{submod_name}"]

    def get_main_dot_graph(self) -> Drawing:
        return self.get_dot_graph()

    def get_submod_dot_graph(self, submod_name: str) -> Drawing:
        return self.get_dot_graph(submod_name)

    def get_all_dot_graphs(self) -> dict[str, Drawing]:
        return self._drawings

    def _draw(self, gm: GraphModule, name: str) -> Drawing:
        skipped = {n for n in gm.graph.nodes if n.op == "get_attr" and self._skip_attributes}
        boxes = [(n, list(self._lines(gm, n))) for n in gm.graph.nodes if n not in skipped]
        edges = [(used, n) for n, _ in boxes for used in n._input_nodes if used not in skipped]
        return Drawing(name, boxes, edges)

    def _lines(self, gm: GraphModule, node: Node) -> Iterator[str]:
        yield node.name
        if node.op == "call_module":
            yield _module_text(gm.get_submodule(str(node.target)))
        elif node.op == "get_attr":
            yield str(node.target)
        elif node.op == "call_function" and (text := _operator_text(node)) is not None:
            yield _short(text)
        elif node.op in ("call_function", "call_method"):
            name = node._pretty_print_target(node.target)
            constants = [repr(a) for a in node.args if not isinstance(a, Node) and len(repr(a)) < 18]
            constants += [f"{k}={v!r}" for k, v in node.kwargs.items() if not isinstance(v, Node) and len(repr(v)) < 18]
            shown = f"({', '.join(constants)})" if constants else ""
            yield _short(("." if node.op == "call_method" else "") + name.removeprefix("torch.") + shown)
        shape = _shape_text(node)
        if shape:
            yield shape
        if self._stack and node.stack_trace:
            yield _short(str(node.stack_trace).strip().split("\n")[-1].strip())


def _module_text(module: Any) -> str:
    """A layer in a line: `Conv2d 64 to 128, 3 by 3, stride 2`."""
    text = type(module).__name__
    if hasattr(module, "in_channels"):
        text += f" {module.in_channels} \u2192 {module.out_channels}"
    elif hasattr(module, "in_features"):
        text += f" {module.in_features} \u2192 {module.out_features}"
    details = []
    for name, quiet in _SHOWN.items():
        value = getattr(module, name, None)
        if value is not None and _plain(value) != quiet:
            label = "" if name in ("kernel_size", "num_features", "normalized_shape", "num_embeddings") else name + " "
            details.append(label + _plain(value))
    return _short(", ".join([text, *details]))


def _plain(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        same = len(value) > 1 and len(set(value)) == 1 and value[0] in (0, 1, 2)
        return str(value[0]) if same else "\u00d7".join(map(str, value))
    return str(value)


def _operator_text(node: Node) -> str | None:
    """An operator as it is written, with a dot for each value: `. + 1`."""
    form = magic_methods.get(getattr(node.target, "__name__", ""))
    if form is None or getattr(node.target, "__module__", "") != "_operator" or len(node.args) != form.count("{}"):
        return None
    return form.format(*("\u00b7" if isinstance(a, Node) else _index(a) for a in node.args))


def _index(a: Any) -> str:
    if isinstance(a, slice):
        ends = ["" if end is None else _index(end) for end in (a.start, a.stop)]
        return ":".join(ends) + (f":{_index(a.step)}" if a.step is not None else "")
    if isinstance(a, tuple):
        return ", ".join(map(_index, a))
    return "\u00b7" if isinstance(a, Node) else ("\u2026" if a is Ellipsis else repr(a))


def _shape_text(node: Node) -> str:
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    if value is None or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return ""
    return f"{dtype_abbreviation(value.dtype)}[{', '.join(map(str, value.shape))}]"


def _short(text: str) -> str:
    return text if len(text) <= 46 else text[:45] + "\u2026"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
