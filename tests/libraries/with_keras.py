"""Keras over its backend torch: fit, evaluate and save; convolutions and an LSTM."""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

inputs = np.random.randn(256, 8).astype("float32")
labels = (inputs.sum(1) > 0).astype("int64")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
model.fit(inputs, labels, epochs=8, batch_size=16, verbose=0)
assert model.evaluate(inputs, labels, verbose=0)[1] > 0.9
with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/model.keras")
    again = keras.models.load_model(f"{folder}/model.keras")
np.testing.assert_allclose(again.predict(inputs, verbose=0), model.predict(inputs, verbose=0), rtol=1e-5, atol=1e-6)
layers = [
    keras.layers.Conv2D(4, 3),
    keras.layers.BatchNormalization(),
    keras.layers.MaxPooling2D(),
    keras.layers.GlobalAveragePooling2D(),
]
assert keras.Sequential([keras.layers.Input((16, 16, 3)), *layers])(np.ones((2, 16, 16, 3), "float32")).shape == (2, 4)
recurrent = keras.Sequential([keras.layers.Input((5, 3)), keras.layers.LSTM(4), keras.layers.Dense(1)])
assert recurrent.predict(np.random.rand(2, 5, 3), verbose=0).shape == (2, 1)
