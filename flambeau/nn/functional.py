"""Functions of networks. The operators among them are put here when the package is imported; the rest is found on use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau._C.nn_functional import *  # noqa: F403
    from flambeau.nn._functional_helpers import *  # noqa: F403


def __getattr__(name: str) -> Any:
    from flambeau._compat import absent
    from flambeau.nn import _functional_helpers

    try:
        function = vars(_functional_helpers)[name]
    except KeyError:
        return absent.attribute(__name__, name)
    globals()[name] = function  # where compiled code finds it, too
    return function
