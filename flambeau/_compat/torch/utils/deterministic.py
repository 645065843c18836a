"""Settings for reproducible runs. `fill_uninitialized_memory` is remembered; memory is filled by nobody."""

fill_uninitialized_memory = True
