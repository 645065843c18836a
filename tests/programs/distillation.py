"""A small network taught by a large one, whose weights go through a file."""

import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import initialise, integers, numbers, report


def network(width):
    return nn.Sequential(nn.Linear(20, width), nn.BatchNorm1d(width), nn.Hardswish(), nn.Linear(width, 5))


def train(model, images, labels, steps, teacher=None, temperature=4.0):
    optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
    kl = nn.KLDivLoss(reduction="batchmean")
    for step in range(steps):
        output = model(images)
        loss = F.cross_entropy(output, labels)
        if teacher is not None:
            with torch.no_grad():
                wanted = F.softmax(teacher(images) / temperature, dim=1)
            loss = 0.5 * loss + 0.5 * temperature**2 * kl(F.log_softmax(output / temperature, dim=1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss


def main():
    labels = integers(5, 100, seed=1)
    images = numbers(5, 20, seed=2)[labels] + numbers(100, 20, seed=3)
    teacher = initialise(network(64))
    for _ in train(teacher, images, labels, 15):
        pass
    file = io.BytesIO()
    torch.save({"model": teacher.state_dict(), "width": 64}, file)
    file.seek(0)
    saved = torch.load(file, map_location="cpu", weights_only=True)
    teacher = network(saved["width"])
    print(teacher.load_state_dict(saved["model"]))
    teacher.eval()
    for step, loss in train(initialise(network(8), seed=30), images, labels, 20, teacher):
        report(step, loss)


if __name__ == "__main__":
    main()
