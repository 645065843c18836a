"""An engine with metrics, an event handler and early stopping."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy, Loss

x = torch.randn(128, 8)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16)
model, loss = torch.nn.Linear(8, 2), torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.5), loss)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(loss)})
evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(3, lambda e: -e.state.metrics["loss"], trainer))
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: evaluator.run(loader))
trainer.run(loader, max_epochs=4)
assert evaluator.state.metrics["accuracy"] > 0.9
