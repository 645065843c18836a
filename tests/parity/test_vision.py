"""Vision beside torchvision: names in state dicts, outputs and gradients of models, results of transforms."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.ops.torchvision, "nms"):  # a torchvision without its native library still has its Python part
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
torchvision = pytest.importorskip("torchvision")

import flambeau as fl  # noqa: E402
from flambeau import vision  # noqa: E402


def copy_weights(ours, theirs):
    """Weights that keep activations in range, given to both; returns the names."""
    rng = np.random.default_rng(0)
    state = {}
    for name, value in theirs.state_dict().items():
        shape = tuple(value.shape)
        if name.endswith("num_batches_tracked"):
            state[name] = np.zeros(shape, np.int64)
        elif name.endswith("running_var"):
            state[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            fan = max(1, int(np.prod(shape[1:])))
            state[name] = (rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
    theirs.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    ours.load_state_dict({name: fl.from_numpy(np.array(value)) for name, value in state.items()})
    return list(state)


@pytest.mark.parametrize(
    "name, options, size, training",
    [
        ("resnet18", {"num_classes": 7}, 64, True),
        ("resnet50", {"num_classes": 7, "replace_stride_with_dilation": [False, True, True]}, 64, False),
        ("resnext50_32x4d", {"num_classes": 7}, 64, False),
        ("mobilenet_v3_small", {"num_classes": 7}, 64, False),
        ("mobilenet_v3_large", {"num_classes": 7, "reduced_tail": True, "width_mult": 0.5}, 64, False),
        ("mobilenet_v2", {"num_classes": 7, "width_mult": 0.5}, 64, False),
        ("squeezenet1_1", {"num_classes": 7}, 64, False),
        ("densenet121", {"num_classes": 7}, 64, False),
        ("vit_b_32", {"num_classes": 7, "image_size": 64}, 64, False),
    ],
)
def test_models_have_the_names_outputs_and_gradients(name, options, size, training):
    theirs = getattr(torchvision.models, name)(**options).train(training)
    ours = getattr(vision.models, name)(**options).train(training)
    names = copy_weights(ours, theirs)
    assert list(ours.state_dict()) == names
    x = np.random.default_rng(1).standard_normal((2, 3, size, size)).astype(np.float32)
    want, got = theirs(torch.from_numpy(x)), ours(fl.from_numpy(x))
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=2e-3, atol=2e-4)
    want.square().sum().backward()
    got.square().sum().backward()
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        scale = float(b.grad.abs().max()) + 1e-6
        np.testing.assert_allclose(a.grad.numpy() / scale, b.grad.numpy() / scale, atol=5e-3, err_msg=name)


@pytest.mark.parametrize(
    "name",
    [name for name in torchvision.models.list_models(module=torchvision.models) if name in vision.models.list_models()],
)
def test_every_model_has_the_names_and_shapes(name):
    options = {} if not name.startswith("vit_h") else {"image_size": 28}
    with torch.device("meta"):
        theirs = getattr(torchvision.models, name)(**options)
    with fl.device("meta"):
        ours = getattr(vision.models, name)(**options)
    assert [(k, tuple(v.shape)) for k, v in ours.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in theirs.state_dict().items()
    ]


T = torchvision.transforms.functional
V = vision.transforms.functional
IMAGE = np.random.default_rng(2).integers(0, 256, (3, 37, 50)).astype(np.uint8)


@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: f.resize(x, 20),
        lambda f, x: f.resize(x, [24, 61]),
        lambda f, x: f.resize(x, 20, max_size=25),
        lambda f, x: f.resize(x, [20, 20], f.InterpolationMode.NEAREST),
        lambda f, x: f.resize(x, [20, 70], f.InterpolationMode.BICUBIC),
        lambda f, x: f.resize(x, [20, 20], antialias=False),
        lambda f, x: f.center_crop(x, [30, 31]),
        lambda f, x: f.center_crop(x, [60, 31]),
        lambda f, x: f.crop(x, -3, 5, 50, 20),
        lambda f, x: f.crop(x, 30, 45, 10, 10),
        lambda f, x: f.pad(x, [1, 2, 3, 4], fill=7),
        lambda f, x: f.pad(x, [1, 2], padding_mode="edge"),
        lambda f, x: f.pad(x, 3, padding_mode="reflect"),
        lambda f, x: f.pad(x, [5, 2, 1, 3], padding_mode="symmetric"),
        lambda f, x: f.hflip(x),
        lambda f, x: f.vflip(x),
        lambda f, x: f.rotate(x, 33.0),
        lambda f, x: f.rotate(x, 33.0, f.InterpolationMode.BILINEAR, expand=True, fill=[5.0]),
        lambda f, x: f.rotate(x, -120.0, center=[3, 4]),
        lambda f, x: f.affine(x, 20.0, [3, 4], 1.3, [10.0, 5.0], f.InterpolationMode.BILINEAR),
        lambda f, x: f.adjust_brightness(x, 1.4),
        lambda f, x: f.adjust_contrast(x, 0.6),
        lambda f, x: f.adjust_saturation(x, 1.7),
        lambda f, x: f.adjust_hue(x, 0.2),
        lambda f, x: f.rgb_to_grayscale(x, 3),
        lambda f, x: f.gaussian_blur(x, [5, 3], [1.1, 0.8]),
        lambda f, x: f.invert(x),
        lambda f, x: f.autocontrast(x),
    ],
)
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_transforms_give_the_same_images(call, kind):
    array = IMAGE if kind == "uint8" else IMAGE.astype(np.float32) / 255
    want, got = call(T, torch.from_numpy(array.copy())), call(V, fl.from_numpy(array.copy()))
    assert got.shape == want.shape and str(got.dtype) == str(want.dtype)
    difference = np.abs(got.numpy().astype(np.float64) - want.numpy().astype(np.float64))
    if kind == "uint8":
        # Rounding may fall to either side of a half.
        assert (difference <= 1).mean() > 0.999 and (difference == 0).mean() > 0.95, (
            difference.max(),
            (difference == 0).mean(),
        )
    else:
        assert (difference < 1e-4).mean() > 0.999, difference.max()


def test_conversions_give_the_same_values():
    for f, library in ((T, torch), (V, fl)):
        f.results = [
            f.convert_image_dtype(library.tensor([0, 100, 255], dtype=library.uint8), dtype).tolist()
            for dtype in (library.float32, library.int32, library.int16)
        ] + [f.convert_image_dtype(library.tensor([0.0, 0.5, 1.0]), library.uint8).tolist()]
    for ours, theirs in zip(V.results, T.results):
        assert ours == pytest.approx(theirs)


def test_pillow_images_give_the_same_tensors():
    image = pytest.importorskip("PIL.Image").fromarray(IMAGE.transpose(1, 2, 0))
    for call in (lambda f: f.to_tensor(f.resize(image, 20)), lambda f: f.to_tensor(f.rotate(image, 20))):
        np.testing.assert_array_equal(call(V).numpy(), call(T).numpy())


def test_boxes_give_the_same_numbers():
    corners = np.random.default_rng(4).uniform(0, 10, (6, 4)).astype(np.float32)
    corners[:, 2:] += corners[:, :2]
    for name in ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"):
        want = getattr(torchvision.ops, name)(torch.from_numpy(corners), torch.from_numpy(corners[:4]))
        got = getattr(vision.ops, name)(fl.from_numpy(corners), fl.from_numpy(corners[:4]))
        np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-5)


def test_grids_are_the_same():
    x = np.random.default_rng(3).standard_normal((5, 1, 4, 6)).astype(np.float32)
    for options in (
        {},
        {"nrow": 3, "normalize": True},
        {"padding": 1, "pad_value": 0.5, "scale_each": True, "normalize": True},
    ):
        want = torchvision.utils.make_grid(torch.from_numpy(x), **options)
        got = vision.utils.make_grid(fl.from_numpy(x), **options)
        np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-6)
