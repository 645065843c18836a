"""U-Net and DeepLab learn a mask."""

import segmentation_models_pytorch as smp
import torch

for make in (smp.Unet, smp.DeepLabV3Plus, smp.FPN):
    model = make("resnet18", encoder_weights=None, classes=1)
    images, masks = torch.randn(2, 3, 64, 64), torch.zeros(2, 1, 64, 64)
    masks[:, :, 16:48, 16:48] = 1
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=1e-3), smp.losses.DiceLoss("binary")
    losses = []
    for _ in range(4):
        value = loss(model(images), masks)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < losses[0]
