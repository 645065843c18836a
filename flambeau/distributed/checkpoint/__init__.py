"""Checkpoints of many processes: sharded, atomic, loadable into another division or number of processes."""

from flambeau._compat import absent
from flambeau.distributed.checkpoint import state_dict, state_dict_loader, state_dict_saver
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from flambeau.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from flambeau.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from flambeau.distributed.checkpoint.state_dict_loader import load, load_state_dict
from flambeau.distributed.checkpoint.state_dict_saver import CheckpointException, async_save, save, save_state_dict
from flambeau.distributed.checkpoint.storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata", "CheckpointException", "ChunkStorageMetadata", "DefaultLoadPlanner", "DefaultSavePlanner",
    "FileSystemReader", "FileSystemWriter", "HuggingFaceStorageReader", "HuggingFaceStorageWriter", "LoadPlan",
    "LoadPlanner", "Metadata", "ReadItem", "SavePlan", "SavePlanner", "StorageReader", "StorageWriter",
    "TensorStorageMetadata", "WriteItem", "async_save", "load", "load_state_dict", "save", "save_state_dict",
    "state_dict", "state_dict_loader", "state_dict_saver",
]  # fmt: skip

__getattr__ = absent.names_of(__name__)
