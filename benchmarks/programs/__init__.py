"""Programs that nobody tuned: models as people write them, for any library with PyTorch's API.

`make(torch, name, device, small)` gives a `Program`; `NAMES` lists them. `small=True` gives the same architectures in sizes
that run on a CPU in a moment, for the comparison of the libraries' results.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["NAMES", "Program", "make", "step_of"]


class Program(NamedTuple):
    model: Any
    function: Callable[..., Any]  # of the inputs: the loss of a training step, or the result of inference
    inputs: tuple[Any, ...]
    optimizer: Any = None  # None: inference, whose model and inputs are in bfloat16


# The first eight were measured before anything was tuned for them, and so were the second eight.
NAMES = {
    "llama train": "transformers",
    "llama inference": "transformers",
    "llama decode": "transformers",
    "vit": "vision",
    "bert": "transformers",
    "resnet50": "vision",
    "unet": "diffusion",
    "lstm": "recurrent",
    "gpt2 medium": "transformers",
    "t5": "transformers",
    "mixtral": "recommendation",
    "convnext": "vision",
    "swin": "vision",
    "dlrm": "recommendation",
    "mamba": "recurrent",
    "dit": "diffusion",
}


def make(torch: Any, name: str, device: str = "cuda", small: bool = False) -> Program:
    """The program of that name, with parameters that depend on the name alone."""
    torch.manual_seed(0)
    module = importlib.import_module(f"programs.{NAMES[name]}")
    program: Program = module.PROGRAMS[name](torch, device, small)
    return program


def step_of(torch: Any, program: Program, mode: str, device: str = "cuda") -> Callable[[], Any]:
    """One step of a program, in mode "eager" or a mode of `compile`: forward, and in training backward and the update."""
    function = program.function
    if mode != "eager":
        function = torch.compile(function, mode=None if mode == "default" else mode)
    if program.optimizer is None:

        def infer() -> Any:
            with torch.no_grad():
                return function(*program.inputs)

        return infer

    def train() -> Any:
        program.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = function(*program.inputs)
        loss.backward()
        program.optimizer.step()
        return loss

    return train
