"""Modules that would spread a batch over devices. There is one device and one process: they call their module."""

from flambeau.nn.parallel.data_parallel import DataParallel, data_parallel
from flambeau.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
