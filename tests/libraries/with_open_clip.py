"""A small CLIP and its loss."""

import open_clip
import torch

model = open_clip.CLIP(
    32,
    open_clip.CLIPVisionCfg(layers=2, width=32, head_width=16, image_size=32, patch_size=8),
    open_clip.CLIPTextCfg(context_length=16, vocab_size=64, width=32, heads=2, layers=2),
)
images, texts, scale = model(torch.randn(3, 3, 32, 32), torch.randint(0, 64, (3, 16)))
loss = open_clip.ClipLoss()(images, texts, scale)
loss.backward()
assert loss > 0 and model.visual.conv1.weight.grad.abs().sum() > 0
