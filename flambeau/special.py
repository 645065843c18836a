"""Special functions. The functions are operators, installed from the op records in `flambeau/ops/special_functions.py`."""
