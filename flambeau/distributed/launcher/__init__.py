"""Launching of functions and programs from Python."""

from flambeau.distributed.launcher.api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
