"""A network for tables learns classes."""

import numpy as np
from pytorch_tabnet.tab_model import TabNetClassifier

generator = np.random.default_rng(0)
x = generator.normal(size=(256, 4)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int64)
model = TabNetClassifier(verbose=0, seed=0, n_steps=2)
model.fit(x, y, max_epochs=15, batch_size=64, virtual_batch_size=32, drop_last=False)
assert (model.predict(x) == y).mean() > 0.8
assert model.feature_importances_.argmax() == 0
