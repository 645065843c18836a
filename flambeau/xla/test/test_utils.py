"""The helpers of torch_xla.test.test_utils, with which example programs report how training goes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from flambeau.xla.core import xla_model

__all__ = [
    "close_summary_writer", "get_summary_writer", "now", "print_test_update", "print_training_update",
    "write_to_summary",
]  # fmt: skip


def now(format: str = "%H:%M:%S") -> str:
    return datetime.datetime.now().strftime(format)


def print_training_update(
    device: Any, step: int, loss: Any, rate: float, global_rate: float, epoch: int | None = None, summary_writer: Any = None
) -> None:  # fmt: skip
    """One line of a training loop."""
    value = loss.item() if hasattr(loss, "item") else loss
    parts = [
        f"Training Device={device}",
        f"Epoch={epoch}" if epoch is not None else "",
        f"Step={step}",
        f"Loss={value:.5f}",
    ]
    parts += [f"Rate={rate:.2f}", f"GlobalRate={global_rate:.2f}", f"Time={now()}"]
    print("| " + " ".join(p for p in parts if p), flush=True)
    if summary_writer is not None:
        write_to_summary(summary_writer, step, {"Loss": value, "Rate": rate, "GlobalRate": global_rate})


def print_test_update(device: Any, accuracy: float | None, epoch: int | None = None, step: int | None = None) -> None:
    """One line of a test loop."""
    numbers = {"Epoch": epoch, "Step": step, "Accuracy": None if accuracy is None else f"{accuracy:.2f}"}
    print(f"| Test Device={device} " + " ".join(f"{k}={v}" for k, v in numbers.items() if v is not None), flush=True)


def get_summary_writer(logdir: str | None) -> Any:
    """A writer of TensorBoard's files on the first process; None without a folder."""
    if not logdir or not xla_model.is_master_ordinal():
        return None
    from flambeau.utils.tensorboard import SummaryWriter

    return SummaryWriter(log_dir=logdir)


def write_to_summary(
    summary_writer: Any, global_step: int | None = None, dict_to_write: Mapping[str, Any] | None = None,
    write_xla_metrics: bool = False,
) -> None:  # fmt: skip
    """Scalars by name, and with `write_xla_metrics` the counters of the device."""
    if summary_writer is None:
        return
    from flambeau.xla.debug import metrics

    scalars = dict(dict_to_write or {})
    if write_xla_metrics:
        scalars |= {name: metrics.counter_value(name) for name in metrics.counter_names()}
    for name, value in scalars.items():
        if value is not None:
            summary_writer.add_scalar(name, value, global_step)


def close_summary_writer(summary_writer: Any) -> None:
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()
