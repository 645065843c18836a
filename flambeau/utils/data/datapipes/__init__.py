"""Datasets that are built by chaining: `pipe.map(f).batch(4)`. The small part of it that programs still use."""

from flambeau.utils.data.datapipes import iter, map
from flambeau.utils.data.datapipes.datapipe import DataChunk, DFIterDataPipe, IterDataPipe, MapDataPipe

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "iter", "map"]
