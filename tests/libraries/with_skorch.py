"""A classifier in a grid search of scikit-learn."""

import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier


class Network(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(10, width), torch.nn.ReLU(), torch.nn.Linear(width, 2), torch.nn.Softmax(-1)
        )

    def forward(self, x):
        return self.layers(x)


x, y = make_classification(200, 10, random_state=0)
network = NeuralNetClassifier(Network, max_epochs=20, lr=0.3, verbose=0)
search = GridSearchCV(network, {"module__width": [4, 16]}, cv=2, scoring="accuracy").fit(x.astype("float32"), y)
assert search.best_score_ > 0.7
