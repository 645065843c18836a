"""What users say about parts of a model that have rules of their own."""

from __future__ import annotations

from typing import Any

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig", "StandaloneModuleConfigEntry"]


class _Custom:
    """Fields with a setter each, to and from a dict."""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if value}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Any:
        config = cls()
        for name, value in table.items():
            if name not in config.__dict__:
                raise ValueError(f"[{cls.__name__}] expected one of {', '.join(config.__dict__)}, got {name!r}")
            setattr(config, name, value)
        return config


class StandaloneModuleConfigEntry(tuple):
    """The configuration of a module that is quantized by itself."""


class PrepareCustomConfig(_Custom):
    """For `prepare_fx` and `prepare_qat_fx`."""

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, Any] = {}
        self.standalone_module_classes: dict[Any, Any] = {}
        self.float_to_observed_mapping: dict[Any, Any] = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[Any] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def set_standalone_module_name(
        self,
        module_name: str,
        qconfig_mapping: Any,
        example_inputs: Any,
        prepare_custom_config: Any = None,
        backend_config: Any = None,
    ) -> Any:
        raise NotImplementedError(
            "[PrepareCustomConfig] expected one model, got a standalone module: prepare it by itself"
        )

    set_standalone_module_class = set_standalone_module_name

    def set_float_to_observed_mapping(self, float_class: Any, observed_class: Any, quant_type: Any = None) -> Any:
        self.float_to_observed_mapping[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names: list[str]) -> Any:
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[Any]) -> Any:
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> Any:
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> Any:
        self.output_quantized_indexes = indexes
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        self.preserved_attributes = attributes
        return self


class ConvertCustomConfig(_Custom):
    """For `convert_fx`."""

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: dict[Any, Any] = {}
        self.preserved_attributes: list[str] = []

    def set_observed_to_quantized_mapping(
        self, observed_class: Any, quantized_class: Any, quant_type: Any = None
    ) -> Any:
        self.observed_to_quantized_mapping[observed_class] = quantized_class
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        self.preserved_attributes = attributes
        return self


class FuseCustomConfig(_Custom):
    """For `fuse_fx`."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        self.preserved_attributes = attributes
        return self
