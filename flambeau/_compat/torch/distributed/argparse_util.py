"""Options of launchers whose defaults are variables of the environment named `PET_...`."""

from __future__ import annotations

import os
from argparse import Action
from typing import Any

__all__ = ["check_env", "env"]


class _FromEnvironment(Action):
    """An option whose default is in the environment, when it is there."""

    def __init__(self, dest: str, default: Any = None, required: bool = False, **options: Any) -> None:
        default = os.environ.get(f"PET_{dest.upper()}", default)
        super().__init__(dest=dest, default=default, required=required and default is None, **options)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)


class env(_FromEnvironment):
    """For options with a value."""


class check_env(_FromEnvironment):
    """For options without one: 1 in the environment means that it is given."""

    def __init__(self, dest: str, default: bool = False, **options: Any) -> None:
        is_set = bool(int(os.environ.get(f"PET_{dest.upper()}", default)))
        Action.__init__(self, dest=dest, const=True, default=is_set, nargs=0, **options)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, self.const)
