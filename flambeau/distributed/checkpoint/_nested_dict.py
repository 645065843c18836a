"""State dicts as flat dicts, with the paths that lead back."""

from __future__ import annotations

from typing import Any

import flambeau

__all__ = ["flatten_state_dict", "set_element", "unflatten_state_dict"]

Path = tuple[Any, ...]


def flatten_state_dict(state_dict: Any) -> tuple[dict[str, Any], dict[str, Path]]:
    """Values by dotted names, and the path of each. Lists without tensors and dicts in them, and tuples, are values; keys of
    dicts are strings in paths, those of lists integers."""
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}

    def has_parts(value: Any) -> bool:
        return any(map(has_parts, value)) if isinstance(value, list) else isinstance(value, (dict, flambeau.Tensor))

    def visit(path: Path, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                visit((*path, str(key)), item)
        elif isinstance(value, list) and has_parts(value):
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
        key = _own_key(place, key)
        if isinstance(place, dict) and key not in place:
            place[key] = {}
        place = place[key]
    place[_own_key(place, path[-1])] = value


def _own_key(place: Any, key: Any) -> Any:
    """The key of a dict that a path calls by its string."""
    if not isinstance(place, dict) or key in place:
        return key
    return next((own for own in place if str(own) == key), key)


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
