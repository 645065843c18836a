"""Settings of symbolic sizes, for programs that set them. Sizes here are symbols from the first call on, and 0 and 1 are
sizes like others, so that there is nothing to choose."""

from __future__ import annotations

from flambeau._compat.settings import fix
from flambeau.utils._options import settings

__all__ = ["patch"]

use_duck_shape = True
backed_size_oblivious = no_data_dependent_graph_break = False
translation_validation = check_shape_env_recorded_events = print_specializations = False
meta_nonzero_assume_all_nonzero = skip_dtype_check_in_meta_registrations = unify_view_symbols_bso_meta = False
symbol_guard_limit_before_specialize = None
extended_debug_guard_added = extended_debug_create_symbol = None
extended_debug_cpp = extended_debug_current_loc = False

patch, _options = settings(__name__)
fix(
    __name__,
    "use_duck_shape backed_size_oblivious no_data_dependent_graph_break translation_validation "
    "check_shape_env_recorded_events print_specializations meta_nonzero_assume_all_nonzero "
    "skip_dtype_check_in_meta_registrations unify_view_symbols_bso_meta symbol_guard_limit_before_specialize "
    "extended_debug_guard_added extended_debug_create_symbol extended_debug_cpp extended_debug_current_loc",
    "sizes are symbols without it",
    refuse=False,
)
