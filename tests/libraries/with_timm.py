"""A vision transformer and a ResNet of timm learn four random images by heart."""

import timm
import timm.optim
import torch

for name in ("resnet18", "vit_tiny_patch16_224", "convnext_atto", "mobilenetv3_small_050"):
    model = timm.create_model(name, num_classes=4)
    images, labels = torch.randn(4, 3, 224, 224), torch.arange(4)
    optimizer = timm.optim.create_optimizer_v2(model, "adamw", lr=1e-3)
    losses = []
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], (name, losses)
