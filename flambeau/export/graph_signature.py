"""What the inputs and outputs of an exported graph are."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

__all__ = [
    "ConstantArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind", "OutputSpec", "SymIntArgument",
    "TensorArgument",
]  # fmt: skip


@dataclasses.dataclass
class TensorArgument:
    name: str


@dataclasses.dataclass
class SymIntArgument:
    name: str


class SymFloatArgument(SymIntArgument):
    """A float that varies."""


class SymBoolArgument(SymIntArgument):
    """A condition on what varies."""


class TokenArgument(SymIntArgument):
    """What orders effects; programs have none."""


@dataclasses.dataclass
class CustomObjArgument:
    """An object of a class of the user's; programs have none."""

    name: str
    class_fqn: str
    fake_val: Any = None


@dataclasses.dataclass
class ConstantArgument:
    """A value that is part of the program: calls must give the same one."""

    name: str
    value: Any


InputKind = enum.Enum("InputKind", "USER_INPUT PARAMETER BUFFER CONSTANT_TENSOR CUSTOM_OBJ TOKEN")
OutputKind = enum.Enum(
    "OutputKind",
    "USER_OUTPUT LOSS_OUTPUT BUFFER_MUTATION PARAMETER_MUTATION GRADIENT_TO_PARAMETER GRADIENT_TO_USER_INPUT "
    "USER_INPUT_MUTATION TOKEN",
)


@dataclasses.dataclass
class InputSpec:
    kind: InputKind
    arg: Any
    target: str | None  # where the model has it
    persistent: bool | None = None  # of buffers: whether it is in the state dict

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclasses.dataclass
class OutputSpec:
    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclasses.dataclass
class ExportBackwardSignature:
    """Which outputs of a program with gradients belong to what."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """The inputs of the graph (parameters, buffers and constants first, then what the user gives) and its outputs."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [spec for spec in self.input_specs if spec.kind is kind]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(str(spec.target) for spec in self._inputs(kind))

    def _by_name(self, kind: InputKind) -> dict[str, str]:
        return {spec.arg.name: str(spec.target) for spec in self._inputs(kind)}

    @property
    def parameters(self) -> tuple[str, ...]:
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        return tuple(str(spec.target) for spec in self._inputs(InputKind.BUFFER) if spec.persistent is False)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        return self._by_name(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        return self._by_name(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        return self._by_name(InputKind.CONSTANT_TENSOR)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        return tuple(_shown(spec.arg) for spec in self._inputs(InputKind.USER_INPUT))

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        return tuple(_shown(spec.arg) for spec in self.output_specs if spec.kind is OutputKind.USER_OUTPUT)

    def _mutations(self, kind: OutputKind) -> dict[str, str]:
        return {spec.arg.name: str(spec.target) for spec in self.output_specs if spec.kind is kind}

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        return self._mutations(OutputKind.BUFFER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        return self._mutations(OutputKind.USER_INPUT_MUTATION)

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        return self._mutations(OutputKind.PARAMETER_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        loss = next((spec.arg.name for spec in self.output_specs if spec.kind is OutputKind.LOSS_OUTPUT), None)
        if loss is None:
            return None
        kinds = (OutputKind.GRADIENT_TO_PARAMETER, OutputKind.GRADIENT_TO_USER_INPUT)
        return ExportBackwardSignature(*(self._mutations(kind) for kind in kinds), loss)  # type: ignore[arg-type, call-arg]

    @property
    def assertion_dep_token(self) -> None:
        return None

    @property
    def input_tokens(self) -> tuple[str, ...]:
        return ()

    @property
    def output_tokens(self) -> tuple[str, ...]:
        return ()

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        return ()

    @property
    def inputs_to_lifted_custom_objs(self) -> dict[str, str]:
        return {}

    def replace_all_uses(self, old: str, new: str) -> None:
        """Renames a value of the graph."""
        for spec in (*self.input_specs, *self.output_specs):
            if getattr(spec.arg, "name", None) == old:
                spec.arg.name = new

    def __str__(self) -> str:
        inputs, outputs = "\n".join(map(str, self.input_specs)), "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"


def _shown(argument: Any) -> Any:
    return argument.value if isinstance(argument, ConstantArgument) else argument.name
