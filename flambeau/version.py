"""The version of the package, as strings programs look at."""

__version__ = "0.1.0"
debug = False
cuda = None
hip = None
git_version = None
