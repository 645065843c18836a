"""Mixed precision: products in bfloat16, sums and parameters in float32, and a scaler for gradients.

python examples/mixed_precision.py [--quick]
"""

import sys

import flambeau as torch
from flambeau import nn


def main():
    quick = "--quick" in sys.argv
    torch.manual_seed(0)
    x = torch.randn(256, 32)
    y = torch.sin(x[:, :4].sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # bfloat16 has float32's range and needs no scaling; float16 does.
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    steps = 10 if quick else 200
    prediction = loss = torch.empty(0)
    for step in range(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = model(x)
            loss = nn.functional.mse_loss(prediction.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)  # left out where a gradient overflowed
        scaler.update()
        if step % (steps // 5) == 0:
            print(f"step {step:3}  loss {loss.item():.4f}")
    print("products in", prediction.dtype, "- parameters in", model[0].weight.dtype, "- scale", scaler.get_scale())
    assert prediction.dtype is torch.bfloat16 and model[0].weight.dtype is torch.float32
    assert quick or loss < 0.2


if __name__ == "__main__":
    main()
