"""Metrics over batches: classification, regression, image and text."""

import torch
import torchmetrics

metrics = torchmetrics.MetricCollection(
    [
        torchmetrics.Accuracy("multiclass", num_classes=3),
        torchmetrics.F1Score("multiclass", num_classes=3),
        torchmetrics.AUROC("multiclass", num_classes=3),
    ]
)
for _ in range(3):
    target = torch.randint(0, 3, (40,))
    metrics.update((torch.nn.functional.one_hot(target, 3) * 2.0 + torch.randn(40, 3) * 0.1).softmax(1), target)
assert metrics.compute()["MulticlassAccuracy"] > 0.95
assert torchmetrics.MeanSquaredError()(torch.ones(4), torch.zeros(4)) == 1
image = torch.rand(1, 1, 32, 32)
assert torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0)(image, image) > 0.999
