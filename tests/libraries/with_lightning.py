"""A module of the package `lightning`, trained and tested with a checkpoint."""

import tempfile

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


L.seed_everything(0)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
data = DataLoader(TensorDataset(x, 3 * x + 1), batch_size=16, shuffle=True)
with tempfile.TemporaryDirectory() as folder:
    trainer = L.Trainer(
        max_epochs=20, accelerator="cpu", default_root_dir=folder, enable_progress_bar=False, logger=False
    )
    trainer.fit(Line(), data)
    model = Line.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
assert abs(model.layer.bias.item() - 1) < 0.2, model.layer.bias
