"""The fast path of transformer layers in inference."""

_enabled = True


def get_fastpath_enabled() -> bool:
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    global _enabled
    _enabled = value
