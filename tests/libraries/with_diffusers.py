"""A small U-Net learns to remove noise, and a scheduler samples with it."""

import diffusers
import torch

model = diffusers.UNet2DModel(
    sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
scheduler = diffusers.DDPMScheduler(num_train_timesteps=20)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
clean, losses = torch.randn(4, 1, 16, 16), []
for _ in range(6):
    noise, steps = torch.randn_like(clean), torch.randint(0, 20, (4,))
    loss = torch.nn.functional.mse_loss(model(scheduler.add_noise(clean, noise, steps), steps).sample, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0]
sample = diffusers.DDPMPipeline(model, scheduler)
sample.set_progress_bar_config(disable=True)
assert sample(batch_size=2, num_inference_steps=4, output_type="np").images.shape == (2, 16, 16, 1)
