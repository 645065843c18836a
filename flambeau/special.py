"""Special functions. The functions are operators, installed from the op records in `flambeau/ops/special_functions.py`."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flambeau._C.special import *  # noqa: F403
