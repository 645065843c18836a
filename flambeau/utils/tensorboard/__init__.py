"""Event files for TensorBoard, written without TensorFlow, TensorBoard or protobuf."""

from flambeau.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
