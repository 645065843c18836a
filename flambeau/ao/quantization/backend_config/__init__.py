"""What kernels of a backend can compute with quantized tensors: patterns, dtypes, and how results are observed."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

__all__ = [
    "BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType",
    "get_executorch_backend_config", "get_fbgemm_backend_config", "get_native_backend_config", "get_native_backend_config_dict",
    "get_onednn_backend_config", "get_qnnpack_backend_config", "get_tensorrt_backend_config",
    "get_test_only_legacy_native_backend_config",
]  # fmt: skip


class ObservationType(enum.Enum):
    """How the result of a pattern is observed."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    INPUT_OUTPUT_NOT_OBSERVED = 2


@dataclass
class DTypeWithConstraints:
    """A dtype with the range and the scales that kernels take."""

    dtype: Any = None
    quant_min_lower_bound: int | float | None = None
    quant_max_upper_bound: int | float | None = None
    scale_min_lower_bound: int | float | None = None
    scale_max_upper_bound: int | float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


def _with_constraints(dtype: Any) -> DTypeWithConstraints:
    return dtype if isinstance(dtype, DTypeWithConstraints) else DTypeWithConstraints(dtype=dtype)


def _read(kind: Any, value: Any) -> Any:
    """An object of the kind, which may be written as a dict."""
    return value if isinstance(value, kind) else kind.from_dict(value)


class DTypeConfig:
    """Dtypes of inputs, result, weight and bias of a pattern."""

    def __init__(
        self, input_dtype: Any = None, output_dtype: Any = None, weight_dtype: Any = None, bias_dtype: Any = None,
        is_dynamic: bool | None = None,
    ) -> None:  # fmt: skip
        self.input_dtype_with_constraints = _with_constraints(input_dtype)
        self.output_dtype_with_constraints = _with_constraints(output_dtype)
        self.weight_dtype_with_constraints = _with_constraints(weight_dtype)
        self.bias_dtype, self.is_dynamic = bias_dtype, is_dynamic

    @property
    def input_dtype(self) -> Any:
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self) -> Any:
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self) -> Any:
        return self.weight_dtype_with_constraints.dtype

    @classmethod
    def from_dict(cls, dtype_config_dict: dict[str, Any]) -> DTypeConfig:
        return cls(**dtype_config_dict)

    def to_dict(self) -> dict[str, Any]:
        entries = {
            "input_dtype": self.input_dtype_with_constraints, "output_dtype": self.output_dtype_with_constraints,
            "weight_dtype": self.weight_dtype_with_constraints, "bias_dtype": self.bias_dtype, "is_dynamic": self.is_dynamic,
        }  # fmt: skip
        return {k: v for k, v in entries.items() if v is not None and getattr(v, "dtype", v) is not None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypeConfig) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.input_dtype, self.output_dtype, self.weight_dtype, self.bias_dtype, self.is_dynamic))


_FIELDS = (
    "observation_type", "root_module", "qat_module", "reference_quantized_module", "fused_module", "fuser_method",
    "_root_node_getter", "_extra_inputs_getter", "_num_tensor_args_to_observation_type", "_input_type_to_index",
)  # fmt: skip


def _key_of(field: str) -> str:
    """The name of a field in dicts."""
    return "reference_quantized_module_for_root" if field == "reference_quantized_module" else field.lstrip("_")


class BackendPatternConfig:
    """One pattern: a class, a function, a method's name, or several of them one after the other."""

    def __init__(self, pattern: Any = None) -> None:
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module: Any = None
        self.qat_module: Any = None
        self.reference_quantized_module: Any = None
        self.fused_module: Any = None
        self.fuser_method: Any = None
        self._root_node_getter: Any = None
        self._extra_inputs_getter: Any = None
        self._num_tensor_args_to_observation_type: dict[int, ObservationType] = {}
        self._input_type_to_index: dict[str, int] = {}
        self._pattern_complex_format: Any = None

    def __repr__(self) -> str:
        shown = {k: v for k, v in self.__dict__.items() if v not in (None, [], {})}
        return f"BackendPatternConfig({shown})"

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        if self._pattern_complex_format is not None:
            raise ValueError("[BackendPatternConfig] expected one form of the pattern, got two")
        self.pattern = pattern
        return self

    def _set_pattern_complex_format(self, pattern: Any) -> BackendPatternConfig:
        if self.pattern is not None:
            raise ValueError("[BackendPatternConfig] expected one form of the pattern, got two")
        self._pattern_complex_format = pattern
        return self

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: list[DTypeConfig]) -> BackendPatternConfig:
        self.dtype_configs = dtype_configs
        return self

    def to_dict(self) -> dict[str, Any]:
        fields = {_key_of(name): getattr(self, name) for name in _FIELDS}
        present = {name: value for name, value in fields.items() if value not in (None, {})}
        pattern = {} if self.pattern is None else {"pattern": self.pattern}
        return {**pattern, "dtype_configs": [c.to_dict() for c in self.dtype_configs], **present}

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: dict[str, Any]) -> BackendPatternConfig:
        table = dict(backend_pattern_config_dict)
        config = cls(table.pop("pattern", None))
        config.dtype_configs = [_read(DTypeConfig, d) for d in table.pop("dtype_configs", [])]
        for name in _FIELDS:
            if _key_of(name) in table:
                setattr(config, name, table[_key_of(name)])
        return config


def _setter(name: str) -> Any:
    def set_field(self: BackendPatternConfig, value: Any) -> BackendPatternConfig:
        setattr(self, name, value)
        return self

    return set_field


for _name in _FIELDS:
    setattr(BackendPatternConfig, f"_set{_name}" if _name.startswith("_") else f"set_{_name}", _setter(_name))


class BackendConfig:
    """The patterns of a backend."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._pattern_complex_format_to_config: dict[Any, BackendPatternConfig] = {}

    def set_name(self, name: str) -> BackendConfig:
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        key = config.pattern if config._pattern_complex_format is None else config._pattern_complex_format
        self._pattern_complex_format_to_config[key] = config
        return self

    def set_backend_pattern_configs(self, configs: list[BackendPatternConfig]) -> BackendConfig:
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        return list(self._pattern_complex_format_to_config.values())

    def find(self, kind: Any) -> BackendPatternConfig | None:
        """The configuration of a single class, function or method."""
        return self._pattern_complex_format_to_config.get(kind)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configs": [c.to_dict() for c in self.configs]}

    @classmethod
    def from_dict(cls, backend_config_dict: dict[str, Any]) -> BackendConfig:
        config = cls(backend_config_dict.get("name", ""))
        return config.set_backend_pattern_configs(
            [_read(BackendPatternConfig, d) for d in backend_config_dict["configs"]]
        )

    def __repr__(self) -> str:
        return f"BackendConfig({self.__dict__})"


def get_native_backend_config() -> BackendConfig:
    """What the layers of this package compute."""
    from flambeau.ao.quantization.backend_config.native import native

    return native("native")


def get_native_backend_config_dict() -> dict[str, Any]:
    return get_native_backend_config().to_dict()


def _named(name: str) -> Any:
    def get() -> BackendConfig:
        from flambeau.ao.quantization.backend_config.native import native

        return native(name)

    get.__name__ = get.__qualname__ = f"get_{name}_backend_config"
    get.__doc__ = "The same patterns under another name: all backends compute the same here."
    return get


get_fbgemm_backend_config, get_qnnpack_backend_config = _named("fbgemm"), _named("qnnpack")
get_onednn_backend_config, get_executorch_backend_config = _named("onednn"), _named("executorch")
get_tensorrt_backend_config = _named("tensorrt")
get_test_only_legacy_native_backend_config = _named("_native_and_fp16")
