"""What users say about parts of a model that have rules of their own."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from flambeau.ao.quantization.quant_type import QuantType, _get_quant_type_to_str, _quant_type_from_str

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig", "StandaloneModuleConfigEntry"]

STANDALONE_MODULE_NAME_DICT_KEY, STANDALONE_MODULE_CLASS_DICT_KEY = "standalone_module_name", "standalone_module_class"
FLOAT_TO_OBSERVED_DICT_KEY = "float_to_observed_custom_module_class"
OBSERVED_TO_QUANTIZED_DICT_KEY = "observed_to_quantized_custom_module_class"
NON_TRACEABLE_MODULE_NAME_DICT_KEY = "non_traceable_module_name"
NON_TRACEABLE_MODULE_CLASS_DICT_KEY = "non_traceable_module_class"
INPUT_QUANTIZED_INDEXES_DICT_KEY, OUTPUT_QUANTIZED_INDEXES_DICT_KEY = "input_quantized_idxs", "output_quantized_idxs"
PRESERVED_ATTRIBUTES_DICT_KEY = "preserved_attributes"


class StandaloneModuleConfigEntry(NamedTuple):
    """The configuration of a module that is quantized by itself."""

    qconfig_mapping: Any
    example_inputs: tuple[Any, ...]
    prepare_custom_config: Any
    backend_config: Any


def _from_entry(entry: Any) -> Any:
    """An entry of a dict, whose configurations are dicts or objects."""
    from flambeau.ao.quantization.backend_config import BackendConfig
    from flambeau.ao.quantization.qconfig_mapping import QConfigMapping

    key, mapping, inputs, custom, backend = entry
    mapping = QConfigMapping.from_dict(mapping) if isinstance(mapping, dict) else mapping
    custom = PrepareCustomConfig.from_dict(custom) if isinstance(custom, dict) else custom
    backend = BackendConfig.from_dict(backend) if isinstance(backend, dict) else backend
    return key, StandaloneModuleConfigEntry(mapping, inputs, custom, backend)


def _to_entry(key: Any, entry: StandaloneModuleConfigEntry) -> tuple[Any, ...]:
    mapping, inputs, custom, backend = entry
    return key, mapping.to_dict() if mapping else None, inputs, custom.to_dict() if custom else None, backend


class _Custom:
    """Fields with a setter each, to and from a dict."""

    # Keys of the dict: of plain fields, of tables by kind of quantization, and of standalone modules.
    _PLAIN: ClassVar[dict[str, str]] = {PRESERVED_ATTRIBUTES_DICT_KEY: "preserved_attributes"}
    _BY_TYPE: ClassVar[dict[str, str]] = {}
    _STANDALONE: ClassVar[dict[str, str]] = {}

    preserved_attributes: list[str]

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        self.preserved_attributes = attributes
        return self

    def to_dict(self) -> dict[str, Any]:
        table = {
            key: [_to_entry(*item) for item in getattr(self, name).items()] for key, name in self._STANDALONE.items()
        }
        for key, name in self._BY_TYPE.items():
            table[key] = {_get_quant_type_to_str(kind): classes for kind, classes in getattr(self, name).items()}  # type: ignore[assignment]
        table.update({key: getattr(self, name) for key, name in self._PLAIN.items()})
        return {key: value for key, value in table.items() if value}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Any:
        config = cls()
        for key, value in table.items():
            if key in cls._STANDALONE:
                setattr(config, cls._STANDALONE[key], dict(map(_from_entry, value)))
            elif key in cls._BY_TYPE:
                classes = {_quant_type_from_str(kind): dict(of_kind) for kind, of_kind in value.items()}
                setattr(config, cls._BY_TYPE[key], classes)
            elif key in cls._PLAIN:
                setattr(config, cls._PLAIN[key], value)
            else:
                expected = ", ".join([*cls._STANDALONE, *cls._BY_TYPE, *cls._PLAIN])
                raise ValueError(f"[{cls.__name__}] expected one of {expected}, got {key!r}")
        return config


def flat_classes(by_type: dict[QuantType, dict[Any, Any]]) -> dict[Any, Any]:
    """What takes the place of a class, whatever the kind of quantization."""
    return {kind: other for table in by_type.values() for kind, other in table.items()}


class PrepareCustomConfig(_Custom):
    """For `prepare_fx` and `prepare_qat_fx`."""

    _PLAIN: ClassVar = {
        NON_TRACEABLE_MODULE_NAME_DICT_KEY: "non_traceable_module_names",
        NON_TRACEABLE_MODULE_CLASS_DICT_KEY: "non_traceable_module_classes",
        INPUT_QUANTIZED_INDEXES_DICT_KEY: "input_quantized_indexes",
        OUTPUT_QUANTIZED_INDEXES_DICT_KEY: "output_quantized_indexes",
        PRESERVED_ATTRIBUTES_DICT_KEY: "preserved_attributes",
    }
    _BY_TYPE: ClassVar = {FLOAT_TO_OBSERVED_DICT_KEY: "float_to_observed_mapping"}
    _STANDALONE: ClassVar = {
        STANDALONE_MODULE_NAME_DICT_KEY: "standalone_module_names",
        STANDALONE_MODULE_CLASS_DICT_KEY: "standalone_module_classes",
    }

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, StandaloneModuleConfigEntry] = {}
        self.standalone_module_classes: dict[Any, StandaloneModuleConfigEntry] = {}
        self.float_to_observed_mapping: dict[QuantType, dict[Any, Any]] = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[Any] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def set_standalone_module_name(
        self, module_name: str, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None,
        backend_config: Any = None,
    ) -> Any:  # fmt: skip
        self.standalone_module_names[module_name] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_standalone_module_class(
        self, module_class: Any, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None,
        backend_config: Any = None,
    ) -> Any:  # fmt: skip
        self.standalone_module_classes[module_class] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_float_to_observed_mapping(
        self, float_class: Any, observed_class: Any, quant_type: QuantType = QuantType.STATIC
    ) -> Any:
        self.float_to_observed_mapping.setdefault(quant_type, {})[float_class] = observed_class
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


class ConvertCustomConfig(_Custom):
    """For `convert_fx`."""

    _BY_TYPE: ClassVar = {OBSERVED_TO_QUANTIZED_DICT_KEY: "observed_to_quantized_mapping"}

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: dict[QuantType, dict[Any, Any]] = {}
        self.preserved_attributes: list[str] = []

    def set_observed_to_quantized_mapping(
        self, observed_class: Any, quantized_class: Any, quant_type: QuantType = QuantType.STATIC
    ) -> Any:
        self.observed_to_quantized_mapping.setdefault(quant_type, {})[observed_class] = quantized_class
        return self


class FuseCustomConfig(_Custom):
    """For `fuse_fx`."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []
