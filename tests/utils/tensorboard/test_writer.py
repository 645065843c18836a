"""Event files: read back by a decoder of their own, written from the formats' descriptions."""

import itertools
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest

import flambeau as fl
from flambeau.utils.tensorboard import SummaryWriter


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def decode(message):
    """{field: [values]}; numbers, or bytes."""
    out, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            value = varint()
        elif tag & 7 == 1:
            (value,) = struct.unpack_from("<d", message, at)
            at += 8
        elif tag & 7 == 5:
            (value,) = struct.unpack_from("<f", message, at)
            at += 4
        else:
            assert tag & 7 == 2
            size = varint()
            value = message[at : at + size]
            assert len(value) == size
            at += size
        out.setdefault(tag >> 3, []).append(value)
    return out


def events(folder):
    found = []
    for name in sorted(os.listdir(folder)):
        if "tfevents" not in name:
            continue
        with open(os.path.join(folder, name), "rb") as file:
            raw = file.read()
        at = 0
        while at < len(raw):
            (size,) = struct.unpack_from("<Q", raw, at)
            assert struct.unpack_from("<I", raw, at + 8)[0] == crc32c(raw[at : at + 8])
            body = raw[at + 12 : at + 12 + size]
            assert struct.unpack_from("<I", raw, at + 12 + size)[0] == crc32c(body)
            found.append(decode(body))
            at += 16 + size
    return found


def values(folder):
    """Tag, step and fields of every value."""
    for event in events(folder):
        for summary in event.get(5, []):
            for value in decode(summary)[1]:
                value = decode(value)
                yield value[1][0].decode(), event.get(2, [None])[0], value


@pytest.fixture
def writer(tmp_path):
    with SummaryWriter(tmp_path) as made:
        yield made


def read(writer):
    writer.flush()
    return list(values(writer.log_dir))


def test_scalars(writer):
    writer.add_scalar("loss", 0.5, 3)
    writer.add_scalar("loss", fl.tensor(0.25), 4, walltime=12.5)
    writer.add_scalar("new", np.float64(2), 1, new_style=True)
    first, second, third = read(writer)
    assert (first[0], first[1], first[2][2]) == ("loss", 3, [0.5]) and second[2][2] == [0.25]
    tensor = decode(third[2][8][0])
    assert tensor[1] == [1] and struct.unpack("<f", tensor[5][0]) == (2.0,)
    assert decode(decode(third[2][9][0])[1][0])[1] == [b"scalars"]
    head, *rest = events(writer.log_dir)
    assert head[3] == [b"brain.Event:2"] and rest[1][1] == [12.5]
    with pytest.raises(ValueError, match="one number"):
        writer.add_scalar("x", fl.ones(2))


def test_several_scalars_have_folders_of_their_own(writer):
    writer.add_scalars("run/loss", {"train": 1.0, "test": 2.0}, 5)
    writer.flush()
    for name, number in (("train", 1.0), ("test", 2.0)):
        ((tag, step, value),) = values(os.path.join(writer.log_dir, f"run_loss_{name}"))
        assert (tag, step, value[2]) == ("run/loss", 5, [number])


@pytest.mark.parametrize("bins", ["tensorflow", 10, "auto", [-10.0, 0.0, 1.0, 10.0]])
def test_histograms_count_everything(writer, bins):
    data = fl.randn(1000)
    writer.add_histogram("h", data, 1, bins=bins)
    ((_, _, value),) = read(writer)
    body = decode(value[5][0])
    limits = np.frombuffer(body[6][0])
    counts = np.frombuffer(body[7][0])
    assert len(limits) == len(counts) and counts.sum() == 1000 and counts[0] == 0 and counts[-1] > 0
    assert (np.diff(limits) > 0).all()
    x = data.numpy().astype(float)
    for field, expected in ((1, x.min()), (2, x.max()), (3, 1000), (4, x.sum()), (5, (x * x).sum())):
        assert body[field][0] == pytest.approx(expected, rel=1e-6)
    expected = [((x > low) & (x <= high)).sum() for low, high in itertools.pairwise(limits)]
    assert abs(np.array(expected) - counts[1:]).sum() <= 2  # values at a limit may fall on either side


def test_bad_histograms_are_refused(writer):
    for bad in (fl.empty(0), fl.tensor([float("nan")])):
        with pytest.raises(ValueError):
            writer.add_histogram("h", bad)
    with pytest.raises(ValueError):
        writer.add_histogram_raw("h", 0, 1, 1, 1, 1, [1.0], [1, 2])


def unpng(data):
    """Pixels of a PNG without filters."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, pixels = 8, b""
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack_from(">IIBB", body)
        elif kind == b"IDAT":
            pixels += body
        at += 12 + size
    channels = {0: 1, 2: 3, 6: 4}[color]
    rows = np.frombuffer(zlib.decompress(pixels), np.uint8).reshape(height, width * channels + 1)
    assert depth == 8 and not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


def test_pictures(writer):
    picture = fl.arange(2 * 3 * 3, dtype=fl.uint8).view(3, 2, 3)
    writer.add_image("a", picture, 0)
    writer.add_image("b", fl.ones(4, 5), 0, dataformats="HW")
    writer.add_image("c", np.zeros((4, 5, 3)), 0, dataformats="HWC")
    writer.add_images("d", fl.ones(10, 1, 2, 2), 0)
    writer.add_image_with_boxes("e", fl.zeros(3, 8, 8), fl.tensor([[1, 1, 5, 6]]))
    a, b, c, d, e = (decode(value[4][0]) for _, _, value in read(writer))
    assert (unpng(a[4][0]) == picture.permute(1, 2, 0).numpy()).all()
    assert a[1] == [2] and a[2] == [3] and a[3] == [3]
    assert (unpng(b[4][0]) == 255).all() and b[3] == [1]
    assert unpng(c[4][0]).shape == (4, 5, 3)
    assert unpng(d[4][0]).shape == (4, 16, 3)
    boxed = unpng(e[4][0])
    assert boxed[1, 3].tolist() == [255, 0, 0] and boxed[3, 3].tolist() == [0, 0, 0]
    for bad in (lambda: writer.add_image("x", fl.ones(2, 2)), lambda: writer.add_image("x", fl.ones(2, 2, 2))):
        with pytest.raises(ValueError):
            bad()


def test_sound_text_and_tensors(writer):
    writer.add_audio("s", fl.zeros(100), 1, sample_rate=8000)
    writer.add_text("t", "hello *world*", 2)
    writer.add_tensor("v", fl.arange(4.0).view(2, 2), 3)
    sound, text, tensor = read(writer)
    body = decode(sound[2][6][0])
    assert body[1] == [8000.0] and body[4][0][:4] == b"RIFF" and len(body[4][0]) == 244
    assert text[0] == "t/text_summary" and decode(text[2][8][0])[8] == [b"hello *world*"]
    assert decode(decode(text[2][9][0])[1][0])[1] == [b"text"]
    assert struct.unpack("<4f", decode(tensor[2][8][0])[5][0]) == (0, 1, 2, 3)


def test_curves(writer):
    labels = fl.tensor([0, 1, 1, 0, 1])
    scores = fl.tensor([0.1, 0.9, 0.8, 0.4, 0.3])
    writer.add_pr_curve("pr", labels, scores, 1, num_thresholds=11)
    writer.add_custom_scalars({"all": {"both": ["Multiline", ["a", "b"]], "margin": ["Margin", ["m", "l", "u"]]}})
    curve, layout = read(writer)
    table = np.frombuffer(decode(curve[2][8][0])[5][0], np.float32).reshape(6, 11)
    tp, fp, tn, fn, precision, recall = table
    assert tp[0] == 3 and fp[0] == 2 and (tp + fn == 3).all() and (fp + tn == 2).all()
    assert tp[5] == 2 and fp[5] == 0 and precision[5] == 1 and recall[5] == pytest.approx(2 / 3)
    assert layout[0] == "custom_scalars__config__"


def test_hyperparameters(writer):
    writer.add_hparams({"lr": 0.1, "name": "adam", "on": True}, {"loss": 0.5}, run_name="run")
    found = {tag: value for tag, _, value in values(os.path.join(writer.log_dir, "run"))}
    content = decode(decode(decode(found["_hparams_/session_start_info"][9][0])[1][0])[2][0])
    entries = {}
    for entry in decode(content[3][0])[1]:
        entry = decode(entry)
        entries[entry[1][0].decode()] = decode(entry[2][0])
    assert entries == {"lr": {2: [0.1]}, "name": {3: [b"adam"]}, "on": {4: [1]}}
    assert found["loss"][2] == [0.5] and "_hparams_/session_end_info" in found
    with pytest.raises(ValueError):
        writer.add_hparams({"x": object()}, {})


def test_graph_of_a_model(writer):
    nn = fl.nn
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    writer.add_graph(model, fl.ones(4, 2))
    writer.flush()
    (graph,) = [event[4][0] for event in events(writer.log_dir) if 4 in event]
    nodes = {}
    for node in decode(graph)[1]:
        node = decode(node)
        nodes[node[1][0].decode()] = (node[2][0].decode(), [i.decode() for i in node.get(3, [])])
    assert nodes["Sequential/1"] == ("ReLU", ["Sequential/0"]) and nodes["Sequential/0"] == ("Linear", ["input/0"])
    assert nodes["output/0"][1] == ["Sequential/2"]
    with pytest.raises(ValueError):
        writer.add_graph(model)


def test_embeddings(writer):
    writer.add_embedding(fl.arange(6.0).view(3, 2), metadata=["a", "b", "c"], global_step=2)
    folder = os.path.join(writer.log_dir, "00002", "default")
    with open(os.path.join(folder, "tensors.tsv")) as file:
        assert file.read().splitlines()[1] == "2.0\t3.0"
    with open(os.path.join(writer.log_dir, "projector_config.pbtxt")) as file:
        assert "00002/default/metadata.tsv" in file.read()


def test_closing_and_going_on(tmp_path):
    writer = SummaryWriter(tmp_path, purge_step=3)
    writer.add_scalar("a", 1, 3)
    writer.close()
    writer.add_scalar("a", 2, 4)
    writer.close()
    assert [value[2][0] for _, _, value in values(tmp_path)] == [1.0, 2.0]
    assert any(7 in event for event in events(tmp_path))


def test_events_are_written_when_the_program_ends(tmp_path):
    program = f"""
from flambeau.utils.tensorboard import SummaryWriter
writer = SummaryWriter({str(tmp_path)!r})
writer.add_scalar("a", 1.0, 1)
"""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": root})
    assert [tag for tag, _, _ in values(tmp_path)] == ["a"]
