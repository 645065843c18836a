"""The modes of a thread as the captured program sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flambeau import _C


@dataclass
class Modes:
    grad_at_entry: bool = field(default_factory=_C.is_grad_enabled)
    grad_at_exit: bool = field(default_factory=_C.is_grad_enabled)
    # As the program sees it; graphs run in the mode they began in.
    inference: bool = field(default_factory=_C.is_inference_mode_enabled)
    function_modes: list[Any] = field(default_factory=list)  # __torch_function__ modes that the program entered
    overrides_disabled: str = ""  # or "subclasses", or "all"
    refuse_breaks: list[bool] = field(default_factory=list)  # values of error_on_graph_break(), innermost last
    # Contexts of warnings.catch_warnings that the program is in: the steps of the root at which it entered them.
    caught_warnings: list[int] = field(default_factory=list)
    asked_if_compiling: bool = False
