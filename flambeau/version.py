"""The version of the package, as strings programs look at."""

__version__ = "0.1.0"
flambeau = __version__  # stays when `__version__` shows the release of PyTorch whose name is used
debug = False
cuda = None
hip = None
rocm = None
xpu = None
git_version = None
