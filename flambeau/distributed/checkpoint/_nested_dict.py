"""State dicts as flat dicts, with the paths that lead back."""

from __future__ import annotations

from typing import Any

import flambeau

__all__ = ["flatten_state_dict", "set_element", "unflatten_state_dict"]

Path = tuple[Any, ...]


def flatten_state_dict(state_dict: Any) -> tuple[dict[str, Any], dict[str, Path]]:
    """Values by dotted names, and the path of each. Lists without tensors stay values."""
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}

    def has_tensor(value: Any) -> bool:
        if isinstance(value, dict):
            return any(map(has_tensor, value.values()))
        if isinstance(value, (list, tuple)):
            return any(map(has_tensor, value))
        return isinstance(value, flambeau.Tensor)

    def visit(path: Path, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                visit((*path, key), item)
        elif isinstance(value, (list, tuple)) and value and has_tensor(value):
            for index, item in enumerate(value):
                visit((*path, index), item)
        else:
            name = ".".join(map(str, path))
            if name in flat:
                raise ValueError(f"[checkpoint] duplicated flatten key {name}")
            flat[name], paths[name] = value, path

    visit((), state_dict)
    return flat, paths


def set_element(root: Any, path: Path, value: Any) -> None:
    """Puts a value where a path leads, making the dicts on its way."""
    place = root
    for key in path[:-1]:
        if isinstance(place, dict) and key not in place:
            place[key] = {}
        place = place[key]
    if isinstance(place, tuple):
        return
    place[path[-1]] = value


def _with_lists(value: Any) -> Any:
    """Dicts that stand for lists, by their keys 0, 1, …, as lists."""
    if not isinstance(value, dict):
        return value
    entries = {key: _with_lists(one) for key, one in value.items()}
    numbered = (
        bool(entries) and all(isinstance(key, int) for key in entries) and sorted(entries) == [*range(len(entries))]
    )
    return [entries[i] for i in range(len(entries))] if numbered else entries


def unflatten_state_dict(flat: dict[str, Any], paths: dict[str, Path]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        set_element(nested, paths.get(name, (name,)), value)
    return {key: _with_lists(value) for key, value in nested.items()}
