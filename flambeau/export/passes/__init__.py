"""Passes over exported programs."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fl
from flambeau.export.exported_program import ExportedProgram

__all__ = ["move_to_device_pass"]


def move_to_device_pass(ep: ExportedProgram, location: Any) -> ExportedProgram:
    """The program on another device: its state, its constants and devices that its nodes name. `location` is a device, or a
    table from devices to others."""
    table = {str(key): fl.device(value) for key, value in location.items()} if isinstance(location, dict) else None

    def moved(device: Any) -> Any:
        return fl.device(location) if table is None else table.get(str(device), fl.device(device))

    def tensor(value: Any) -> Any:
        if not isinstance(value, fl.Tensor):
            return value
        with fl.no_grad():
            moved_tensor = value.detach().to(moved(value.device))
        return (
            fl.nn.Parameter(moved_tensor, value.requires_grad) if isinstance(value, fl.nn.Parameter) else moved_tensor
        )

    program = copy.copy(ep)
    program.state_dict = {name: tensor(value) for name, value in ep.state_dict.items()}
    program.constants = {name: tensor(value) for name, value in ep.constants.items()}
    if ep.example_inputs is not None:
        program.example_inputs = fl.utils._pytree.tree_map(tensor, ep.example_inputs)
    program.graph_module = copy.deepcopy(ep.graph_module)
    for node in program.graph.nodes:
        node.args = fl.utils._pytree.tree_map(lambda x: moved(x) if isinstance(x, fl.device) else x, node.args)
        node.kwargs = {key: moved(x) if isinstance(x, fl.device) else x for key, x in node.kwargs.items()}
        value = node.meta.get("val")
        if hasattr(value, "fake_device"):
            value.fake_device = moved(value.fake_device)
    program.graph_module.recompile()
    return program
