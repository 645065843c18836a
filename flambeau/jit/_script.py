"""Where programs look for the parts of `jit.script`."""

from flambeau.jit import Attribute, ScriptFunction, script, script_method  # noqa: F401
from flambeau.jit._modules import RecursiveScriptModule, ScriptModule  # noqa: F401
