"""Images in memory: what decoders return for unusual files, and what they say of damaged ones."""

import io

import pytest

import flambeau as fl
from flambeau.vision import io as images

Image = pytest.importorskip("PIL.Image")


def encoded(image, **options):
    stream = io.BytesIO()
    image.save(stream, **options)
    return fl.frombuffer(bytearray(stream.getvalue()), dtype=fl.uint8)


def picture(mode="RGB"):
    return Image.linear_gradient("L").resize((8, 6)).convert(mode)


def test_an_unchanged_palette_is_its_indices():
    image = picture().quantize(5)
    data = encoded(image, format="PNG")
    assert images.decode_png(data).flatten().tolist() == list(image.tobytes())
    assert images.decode_image(data, "RGB").shape == (3, 6, 8)


def test_unchanged_cmyk_is_as_the_file_holds_it():
    data = encoded(picture("CMYK"), format="JPEG", quality=95)
    with Image.open(io.BytesIO(data.numpy().tobytes())) as image:
        expected = 255 - fl.frombuffer(bytearray(image.tobytes()), dtype=fl.uint8).reshape(6, 8, 4).permute(2, 0, 1)
    assert images.decode_jpeg(data).equal(expected)


@pytest.mark.parametrize("name", ["png", "jpeg", "webp"])
def test_pixels_are_laid_out_by_rows_of_colours(name):
    pixels = getattr(images, f"decode_{name}")(encoded(picture(), format=name.upper()))
    assert pixels.shape == (3, 6, 8) and pixels[None].is_contiguous(memory_format=fl.channels_last)


def test_frames_of_an_animation_are_one_tensor():
    frames = [picture().rotate(angle) for angle in (0, 90)]
    pixels = images.decode_gif(encoded(frames[0], format="GIF", save_all=True, append_images=frames[1:]))
    assert pixels.shape == (2, 3, 6, 8) and pixels.is_contiguous(memory_format=fl.channels_last)


@pytest.mark.parametrize(
    "name, said",
    [
        ("png", "Content is not png"),
        ("jpeg", "Not a JPEG file"),
        ("gif", "DGifOpenFileName"),
        ("webp", "WebPGetFeatures failed"),
    ],
)
def test_bytes_of_no_image_are_refused(name, said):
    decode = getattr(images, f"decode_{name}")
    for data, why in (
        (fl.zeros(100, dtype=fl.uint8), said),
        (fl.zeros(1, 100, dtype=fl.uint8), "must be 1-dimensional"),
        (fl.zeros(100), "must have uint8 data type"),
        (fl.zeros(100, dtype=fl.uint8)[::2], "must be contiguous"),
    ):
        with pytest.raises(RuntimeError, match=why):
            decode(data)


def test_truncated_images_are_refused():
    with pytest.raises(RuntimeError, match="incomplete or truncated"):
        images.decode_jpeg(encoded(picture().resize((200, 200)), format="JPEG")[:700])


def test_images_that_cannot_be_written_are_refused():
    with pytest.raises(RuntimeError, match="number of channels should be 1 or 3, got: 5"):
        images.encode_png(fl.zeros(5, 6, 8, dtype=fl.uint8))
    with pytest.raises(RuntimeError, match="should be a 3-dimensional tensor"):
        images.encode_jpeg(fl.zeros(6, 8, dtype=fl.uint8))
