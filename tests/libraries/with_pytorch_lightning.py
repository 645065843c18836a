"""A module with logging, a schedule and a checkpoint; the test metrics survive loading."""

import tempfile

import pytorch_lightning as lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss

    def test_step(self, batch, index):
        self.log("accuracy", (self.layers(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)]


x = torch.randn(128, 8)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16)
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_epochs=5, default_root_dir=folder, accelerator="cpu", logger=False, enable_progress_bar=False
    )
    trainer.fit(model := Model(), loader)
    accuracy = trainer.test(model, loader, verbose=False)[0]["accuracy"]
    assert accuracy > 0.8
    again = Model.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
    assert trainer.test(again, loader, verbose=False)[0]["accuracy"] == accuracy
