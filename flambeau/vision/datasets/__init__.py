"""Datasets in their usual local formats. Nothing is downloaded unless `download=True`."""

from flambeau.vision.datasets.cifar import CIFAR10, CIFAR100  # noqa: F401
from flambeau.vision.datasets.detection import CocoCaptions, CocoDetection, VOCDetection, VOCSegmentation  # noqa: F401
from flambeau.vision.datasets.folder import DatasetFolder, ImageFolder, default_loader  # noqa: F401
from flambeau.vision.datasets.mnist import KMNIST, MNIST, FashionMNIST  # noqa: F401
from flambeau.vision.datasets.vision import FakeData, VisionDataset  # noqa: F401
