"""Checkpoints of programs for several processes. State dicts by full names work; writing them in parts is not written."""

from __future__ import annotations

from flambeau._compat import absent

__getattr__ = absent.names_of(__name__)
