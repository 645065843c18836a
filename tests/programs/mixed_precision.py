"""Training in bfloat16 where it is safe, with an average of the weights."""

import torch
from common import initialise, integers, numbers, report
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def main():
    labels = integers(4, 128, seed=1)
    inputs = numbers(4, 24, seed=2)[labels] + numbers(128, 24, seed=3)
    model = initialise(nn.Sequential(nn.Linear(24, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 4)))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for step in range(20):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(inputs)
            loss = nn.functional.cross_entropy(output.float(), labels)
        assert output.dtype == torch.bfloat16 and loss.dtype == torch.float32
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)
        report(step, loss)
    with torch.no_grad():
        print(f"average {nn.functional.cross_entropy(average(inputs), labels).item():.2f}")


if __name__ == "__main__":
    main()
