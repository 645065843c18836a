"""Streams of CUDA devices, under the name programs import them by."""

from flambeau.cuda import Event, ExternalStream, Stream  # noqa: F401
