"""Random calls that PyTorch gets wrong or leaves undefined: where they differ, nothing is reported."""

from typing import Any


def known(program: Any, k: int, theirs: Any, ours: Any) -> str | None:
    return None
