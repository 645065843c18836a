"""The timer."""

from flambeau.utils.benchmark import Timer, timer  # noqa: F401
