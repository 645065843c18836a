"""PyTorch's place of the error of checkpoints."""

from flambeau.distributed.checkpoint.state_dict_saver import CheckpointException

__all__ = ["CheckpointException"]
