"""Trained weights by name, and the list of models.

A model's weights are an enumeration whose members are addresses; they are downloaded when a model is made with one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

_ADDRESS = "https://download.pytorch.org/models/"
_builders: dict[str, Callable[..., Any]] = {}
_enumerations: dict[str, type[WeightsEnum]] = {}


class WeightsEnum(enum.Enum):
    """Members are file names at PyTorch's address for models."""

    @property
    def url(self) -> str:
        return _ADDRESS + self.value

    @property
    def meta(self) -> dict[str, Any]:
        return {}

    def get_state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        from flambeau import hub

        return hub.load_state_dict_from_url(self.url, *args, **kwargs)

    def transforms(self, **options: Any) -> Any:
        """What an image goes through before the model."""
        import flambeau
        from flambeau.vision.transforms import CenterCrop, Compose, ConvertImageDtype, Normalize, PILToTensor, Resize

        second = self.name.endswith("V2")
        return Compose(
            [
                Resize(options.get("resize_size", 232 if second else 256)),
                CenterCrop(options.get("crop_size", 224)),
                lambda image: image if isinstance(image, flambeau.Tensor) else PILToTensor()(image),
                ConvertImageDtype(flambeau.float32),
                Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )


def weights(name: str, **files: str) -> Any:
    """The enumeration of a model's weights; the last one is the default."""
    last = list(files.values())[-1]
    return WeightsEnum(name, {**files, "DEFAULT": last})  # type: ignore[call-arg]


def model(enumeration: Any, tells: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: registers a function that makes a model, and lets it take `weights`.

    tells: the function is told whether there are any, as `trained`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def build(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> Any:
            chosen = weights if weights is not None else (next(iter(enumeration)) if pretrained else None)
            if isinstance(chosen, str):
                chosen = enumeration[chosen.rpartition(".")[2]]
            if tells:
                options["trained"] = chosen is not None
            network = function(**options)
            if chosen is not None:
                network.load_state_dict(chosen.get_state_dict(progress=progress, check_hash=True, weights_only=True))
            return network

        build.__name__ = build.__qualname__ = function.__name__
        build.__doc__, build.__module__ = function.__doc__, function.__module__
        _builders[function.__name__] = build
        _enumerations[function.__name__] = enumeration
        return build

    return register


def variants(namespace: dict[str, Any], make: Callable[..., Any], tells: bool = False, **rows: Any) -> list[str]:
    """Puts a function `name(weights=, progress=, **options)` and an enumeration of weights for each row into the namespace of
    a module. A model is `make(row, **options)`; `tells` as for `model`. Returns the new names, for `__all__`."""
    from flambeau.vision.models._weight_files import FILES

    files = {line.split()[0]: line.split()[1:] for line in FILES.strip().splitlines()}
    names = []
    for name, row in rows.items():
        enumeration_name, *members = files[name]
        enumeration = weights(enumeration_name, **dict(member.split("=") for member in members))

        def function(row: Any = row, **options: Any) -> Any:
            return make(row, **options)

        function.__name__ = function.__qualname__ = name
        function.__module__ = namespace["__name__"]
        function.__doc__ = f"{name}, with random weights unless members of {enumeration_name} are given."
        namespace[name] = model(enumeration, tells)(function)
        namespace[enumeration_name] = enumeration
        names += [name, enumeration_name]
    return names


def _load_all() -> None:
    """Import every module that registers models."""
    from importlib import import_module

    for package in ("detection", "segmentation", "video"):
        import_module(f"flambeau.vision.models.{package}")


def get_model_builder(name: str) -> Callable[..., Any]:
    """The function that makes a model."""
    if name.lower() not in _builders:
        _load_all()
    if name.lower() not in _builders:
        raise ValueError(f"[get_model] expected one of {', '.join(list_models())}, got {name!r}")
    return _builders[name.lower()]


def get_model(name: str, **options: Any) -> Any:
    return get_model_builder(name)(**options)


def get_model_weights(name: Any) -> Any:
    _load_all()
    return _enumerations[name if isinstance(name, str) else name.__name__]


def get_weight(name: str) -> Any:
    """A member by "Enumeration.MEMBER"."""
    group, _, member = name.partition(".")
    for enumeration in _enumerations.values():
        if enumeration.__name__ == group:
            return enumeration[member]
    raise ValueError(f"[get_weight] expected the name of weights, got {name!r}")


def list_models(module: Any = None, include: Any = None, exclude: Any = None) -> list[str]:
    import fnmatch

    def matches(name: str, patterns: Any) -> bool:
        return any(fnmatch.fnmatch(name, p) for p in ([patterns] if isinstance(patterns, str) else patterns))

    _load_all()
    names = sorted(_builders)
    if module is not None:
        names = [name for name in names if _builders[name].__module__.startswith(module.__name__)]
    if include is not None:
        names = [name for name in names if matches(name, include)]
    return [name for name in names if exclude is None or not matches(name, exclude)]
