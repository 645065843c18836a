"""Small helpers of launchers."""

from __future__ import annotations

import os
import string
from typing import Any

from flambeau.distributed.elastic.utils.distributed import get_socket_with_port

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]


def get_env_variable_or_raise(env_name: str) -> str:
    """A variable of the environment, which has to be set."""
    value = os.environ.get(env_name)
    if value is None:
        raise ValueError(f"[get_env_variable_or_raise] Environment variable {env_name} expected, but not set")
    return value


class macros:
    """Placeholders in the arguments of a program, which the launcher fills in for each worker."""

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: list[Any], local_rank: str) -> list[Any]:
        filled = [
            string.Template(one).safe_substitute(local_rank=local_rank) if isinstance(one, str) else one for one in args
        ]
        return filled
