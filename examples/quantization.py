"""An image classifier in eight bits: after training, and trained with rounding; accuracy, size, and which layers suffer.

python examples/quantization.py [--epochs 6] [--quick]
"""

import argparse
import copy
import math

import flambeau as torch
from flambeau import nn
from flambeau.ao.quantization import get_default_qat_qconfig_mapping, get_default_qconfig_mapping
from flambeau.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx
from flambeau.ao.report import sensitivity
from flambeau.nn import functional as F

CLASSES = 8


def stripes(count, seed):
    """Noisy stripes; the class is their direction."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    angle = (labels / CLASSES * math.pi).view(-1, 1, 1)
    phase = torch.rand(count, 1, 1, generator=generator) * 2 * math.pi
    row, column = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    wave = torch.sin(1.3 * (row * torch.cos(angle) + column * torch.sin(angle)) + phase)
    images = wave + 1.0 * torch.randn(count, 12, 12, generator=generator)
    return images.unsqueeze(1), labels


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.second, self.norm2 = nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(32)
        self.third, self.norm3 = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.relu, self.last = nn.ReLU(), nn.Linear(32 * 9, CLASSES)

    def forward(self, x):
        x = self.relu(self.norm1(self.first(x)))
        x = self.relu(self.norm2(self.second(x)))
        x = self.relu(self.norm3(self.third(x)) + x)
        return self.last(F.max_pool2d(x, 2).flatten(1))


def train(model, images, labels, epochs, rate):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for _ in range(epochs):
        for at in torch.randperm(len(images)).split(64):
            loss = F.cross_entropy(model(images[at]), labels[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model, images, labels):
    """In percent."""
    return 100 * (model(images).argmax(1) == labels).float().mean().item()


def quantized_after_training(model, examples):
    prepared = prepare_fx(model, get_default_qconfig_mapping("x86"), (examples[0],))
    with torch.no_grad():
        for batch in examples:
            prepared(batch)
    return convert_fx(prepared)


def trained_with_rounding(model, images, labels, epochs):
    prepared = prepare_qat_fx(copy.deepcopy(model).train(), get_default_qat_qconfig_mapping("x86"), (images[:1],))
    return convert_fx(train(prepared, images, labels, epochs, 2e-4))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    images, labels = stripes(1024 if options.quick else 4096, 1)
    test = stripes(2000, 2)
    model = train(Classifier(), images, labels, 3 if options.quick else options.epochs, 2e-3)
    examples = list(images[:512].split(64))
    small = quantized_after_training(model, examples)
    trained = trained_with_rounding(model, images, labels, 1)
    for name, kind in (("float", model), ("eight bits after training", small), ("trained with rounding", trained)):
        print(f"{name:28} {accuracy(kind, *test):6.2f} % right")
    print(sensitivity(model, examples[:2], evaluate=lambda m: accuracy(m, *test)))


if __name__ == "__main__":
    main()
