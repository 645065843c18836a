"""The release of torchvision whose names are followed."""

from flambeau.vision import __version__  # noqa: F401

git_version = "unknown"
