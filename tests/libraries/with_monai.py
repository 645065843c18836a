"""A segmentation of a volume, with transforms, losses, metrics and sliding windows."""

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import Compose, NormalizeIntensity, RandFlip, Resize

model = UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
volume = Compose([Resize((16, 16, 16)), NormalizeIntensity(), RandFlip(1.0, 0)])(torch.rand(1, 12, 12, 12))
target = (volume > 0).long()[None]
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(5):
    loss = DiceCELoss(to_onehot_y=True, softmax=True)(model(volume[None]), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
out = sliding_window_inference(volume[None], (8, 8, 8), 2, model)
assert 0 <= DiceMetric()(out.argmax(1, keepdim=True), target).mean() <= 1
