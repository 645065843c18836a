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
    return WeightsEnum(name, {**files, "DEFAULT": last})


def model(enumeration: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: registers a function that makes a model, and lets it take `weights`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def build(*, weights: Any = None, progress: bool = True, pretrained: bool = False, **options: Any) -> Any:
            chosen = weights if weights is not None else (next(iter(enumeration)) if pretrained else None)
            if isinstance(chosen, str):
                chosen = enumeration[chosen.rpartition(".")[2]]
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


def get_model(name: str, **options: Any) -> Any:
    if name.lower() not in _builders:
        raise ValueError(f"[get_model] expected one of {', '.join(list_models())}, got {name!r}")
    return _builders[name.lower()](**options)


def get_model_weights(name: Any) -> Any:
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

    names = sorted(_builders)
    if include is not None:
        names = [name for name in names if matches(name, include)]
    return [name for name in names if exclude is None or not matches(name, exclude)]
