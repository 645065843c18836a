"""Results of timing."""

from flambeau.utils.benchmark import Measurement, TaskSpec  # noqa: F401
