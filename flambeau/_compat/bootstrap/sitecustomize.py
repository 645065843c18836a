"""Runs at the start of Python processes under `flambeau run`: installs the alias, then hands on to the next
sitecustomize, which this one hides. Other Python installations that inherit the environment are left alone.
"""

import os
import sys


def _install() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    here = os.path.dirname(os.path.abspath(__file__))
    spec = spec_from_file_location("_flambeau_alias", os.path.join(os.path.dirname(here), "alias.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install(children=False)


def _hand_on() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    own = sys.modules.pop("sitecustomize", None)
    path = sys.path[:]
    sys.path[:] = [part for part in path if os.path.abspath(part) != here]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


if os.environ.get("FLAMBEAU_AS_TORCH") == sys.prefix:
    _install()
_hand_on()
