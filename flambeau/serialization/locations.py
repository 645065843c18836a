"""Where storages go when they are loaded: the meanings of `map_location`, and the devices that take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.serialization.pickler import location_tag as pickled_tag
from flambeau.storage import UntypedStorage

_packages: list[tuple[int, Callable[[Any], str | None], Callable[[Any, str], Any]]] = []


def register_package(priority: int, tagger: Callable[[Any], Any], deserializer: Callable[[Any, str], Any]) -> None:
    """Another kind of place: how it is recorded on saving and how a storage gets there on loading."""
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The place of a storage, as checkpoints record it."""
    for _, tagger, _ in _packages:
        if (tag := tagger(storage)) is not None:
            return tag
    return pickled_tag(storage)


def default_restore_location(storage: UntypedStorage, location: str) -> UntypedStorage:
    """The storage at the place it was saved from."""
    for _, _, deserializer in _packages:
        if (moved := deserializer(storage, location)) is not None:
            return moved
    if location == "cpu":
        return storage
    if location == "meta":
        return UntypedStorage(storage.nbytes(), device="meta")
    kind = location.partition(":")[0]
    if kind == "cuda" and not flambeau.cuda.is_available():
        raise RuntimeError(
            f"[load] expected a CUDA device for a storage saved from {location!r}, got a machine or build without "
            "one; use map_location='cpu' to load it to the CPU"
        )
    try:
        device = flambeau.device(location)
        if device.index == 0 and kind != "cuda":
            device = flambeau.device(kind)  # tensors on the first device of a kind from outside have no index
    except RuntimeError as error:
        raise RuntimeError(
            f"[load] expected a known device for a storage, got {location!r}; use map_location to choose another one"
        ) from error
    return storage.to(device=device)


def _mapped(names: dict[str, str], location: str) -> str:
    """What the name of a kind means for its first device."""
    kind, _, index = location.partition(":")
    return names.get(kind, location) if index == "0" else location


def restorer(map_location: Any) -> Callable[[UntypedStorage, str], UntypedStorage]:
    """What to do with each storage and the place it was saved from."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        names = {str(key): str(value) for key, value in map_location.items()}
        return lambda storage, location: default_restore_location(
            storage, names.get(location, _mapped(names, location))
        )
    if isinstance(map_location, (str, flambeau.device)):
        place = str(map_location)
        return lambda storage, location: default_restore_location(storage, place)
    if callable(map_location):

        def restore(storage: UntypedStorage, location: str) -> UntypedStorage:
            moved = map_location(storage, location)
            return default_restore_location(storage, location) if moved is None else moved.untyped()

        return restore
    raise TypeError(
        f"[load] expected a device, a string, a dict or a function as map_location, got {type(map_location).__name__}"
    )


def goes_to_meta(map_location: Any) -> bool:
    """Whether no bytes need to be read at all."""
    return isinstance(map_location, (str, flambeau.device)) and str(map_location) == "meta"
