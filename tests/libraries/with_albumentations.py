"""Augmented images and masks become tensors."""

import albumentations as A
import numpy as np
import torch
from albumentations.pytorch import ToTensorV2

transform = A.Compose([A.HorizontalFlip(p=1.0), A.Normalize(), ToTensorV2()])
image, mask = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3), np.eye(4, 6, dtype=np.uint8)
done = transform(image=image, mask=mask)
assert (
    isinstance(done["image"], torch.Tensor)
    and done["image"].shape == (3, 4, 6)
    and done["image"].dtype == torch.float32
)
assert done["mask"].tolist() == mask[:, ::-1].tolist()
