"""SummaryWriter: a folder of event files that TensorBoard shows."""

from __future__ import annotations

import os
import socket
import time
import weakref
from typing import Any

from flambeau.utils.tensorboard import _media, _wire, summary

_count = 0


def event(step: int | None = None, wall_time: float | None = None, **parts: bytes) -> bytes:
    """The bytes of an Event."""
    out = _wire.double(1, time.time() if wall_time is None else wall_time)
    if step is not None:
        out += _wire.integer(2, int(step))
    for name, field in (("file_version", 3), ("graph_def", 4), ("summary", 5)):
        if name in parts:
            out += _wire.data(field, parts[name])
    return out


class FileWriter:
    """Appends events to one file. There is no thread behind it: an event is in the buffer when the call returns, and
    on disk after `flush`, `close`, or `flush_secs` later at the next event."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        global _count
        self._folder = str(log_dir)
        os.makedirs(self._folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{_count}"
        _count += 1
        self.path = os.path.join(self._folder, name + filename_suffix)
        self._file = open(self.path, "ab", buffering=1 << 20)  # noqa: SIM115
        self._finish = weakref.finalize(self, self._file.close)
        self._flush_secs, self._flushed = flush_secs, time.monotonic()
        self._owner = os.getpid()
        self.add_event(event(file_version=b"brain.Event:2"))
        self.flush()

    def get_logdir(self) -> str:
        return self._folder

    def add_event(self, event: bytes, step: int | None = None, walltime: float | None = None) -> None:
        if self._owner != os.getpid():
            raise RuntimeError("[SummaryWriter] expected the process that opened the file, got a forked one")
        if self._file.closed:
            self.reopen()
        self._file.write(_wire.record(event))
        if time.monotonic() - self._flushed > self._flush_secs:
            self.flush()

    def add_summary(self, value: bytes, global_step: int | None = None, walltime: float | None = None) -> None:
        self.add_event(event(global_step, walltime, summary=value))

    def add_graph(self, graph: bytes, walltime: float | None = None) -> None:
        self.add_event(event(None, walltime, graph_def=graph))

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()

    def reopen(self) -> None:
        if self._file.closed:
            self._file = open(self.path, "ab", buffering=1 << 20)  # noqa: SIM115
            self._finish = weakref.finalize(self, self._file.close)


class SummaryWriter:
    """Writes what a program wants to see of its run."""

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            log_dir = os.path.join("runs", f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step, self.max_queue = purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()
        self.default_bins = summary.default_bins()

    def _get_file_writer(self) -> FileWriter:
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                # What an earlier run wrote from this step on is to be forgotten.
                start = _wire.data(7, _wire.integer(1, 1))
                self.file_writer.add_event(event(self.purge_step) + start)
                self.purge_step = None
        return self.file_writer

    def get_logdir(self) -> str:
        return self.log_dir

    def _add(self, value: bytes, step: Any, walltime: Any) -> None:
        self._get_file_writer().add_summary(value, None if step is None else int(step), walltime)

    # -- numbers

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        self._add(summary.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several scalars for one chart, each in a folder of its own."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            place = os.path.join(folder, f"{main_tag.replace('/', '_')}_{tag}")
            if place not in self.all_writers:
                self.all_writers[place] = FileWriter(place, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers[place].add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: float,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError(
                f"[add_histogram_raw] expected as many limits as counts, got {len(bucket_limits)} and {len(bucket_counts)}"
            )
        value = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(value, global_step, walltime)

    # -- media

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        self._add(summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        picture = _media.figure_to_picture(figure, close)
        self.add_image(tag, picture, global_step, walltime, "NCHW" if isinstance(figure, (list, tuple)) else "CHW")

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        raise NotImplementedError("[add_video] expected pictures, got a video, which is not written; use add_images")

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        self._add(summary.text(tag, text_string), global_step, walltime)

    # -- models and tables

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The modules of a model as they run for an input."""
        from flambeau.utils.tensorboard._graph import graph

        if input_to_model is None:
            raise ValueError("[add_graph] expected an input for the model, got none")
        definition = graph(model, input_to_model)
        self._get_file_writer().add_graph(definition)
        if verbose:
            for field, node in _wire.fields(definition):
                if field == 1:
                    parts = dict(_wire.fields(node))
                    print(parts[1].decode(), parts[2].decode())

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        value = summary.pr_curve_raw(
            tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision,
            recall, num_thresholds,
        )  # fmt: skip
        self._add(value, global_step, walltime)

    def add_custom_scalars(self, layout: dict[str, dict[str, list[Any]]]) -> None:
        self._add(summary.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """A row of the table of runs: hyperparameters and what came of them."""
        parts = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as writer:
            for part in parts:
                writer._get_file_writer().add_summary(part, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Points for the projector, as tables beside the event file."""
        name = f"{0 if global_step is None else global_step:05d}"
        folder = os.path.join(self._get_file_writer().get_logdir(), name, tag)
        os.makedirs(folder, exist_ok=True)
        points = _media.as_tensor(mat)
        if points.dim() != 2:
            raise AssertionError(f"[add_embedding] expected a matrix, got shape {tuple(points.shape)}")
        with open(os.path.join(folder, "tensors.tsv"), "w") as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in points.tolist())
        config = [f'tensor_name: "{tag}:{name}"', f'tensor_path: "{name}/{tag}/tensors.tsv"']
        if metadata is not None:
            if len(metadata) != len(points):
                raise AssertionError(f"[add_embedding] expected {len(points)} labels, got {len(metadata)}")
            with open(os.path.join(folder, "metadata.tsv"), "w") as file:
                if metadata_header:
                    file.write("\t".join(map(str, metadata_header)) + "\n")
                rows = (row if isinstance(row, (list, tuple)) else [row] for row in metadata)
                file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
            config.append(f'metadata_path: "{name}/{tag}/metadata.tsv"')
        if label_img is not None:
            pictures = _media.as_picture(label_img, "NCHW")
            with open(os.path.join(folder, "sprite.png"), "wb") as file:  # type: Any
                file.write(_media.png(pictures))
            height, width = label_img.shape[2], label_img.shape[3]
            config.append(
                f'sprite {{ image_path: "{name}/{tag}/sprite.png" single_image_dim: {width} single_image_dim: {height} }}'
            )
        with open(os.path.join(self.log_dir, "projector_config.pbtxt"), "a") as file:
            file.write("embeddings {\n" + "\n".join(config) + "\n}\n")

    # -- the end

    def flush(self) -> None:
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
