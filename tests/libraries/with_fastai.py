"""A learner of tables, in one cycle."""

import numpy as np
import pandas
from fastai.tabular.all import Categorify, Normalize, TabularDataLoaders, accuracy, tabular_learner

table = pandas.DataFrame({"a": np.random.randn(200), "b": np.random.choice(list("xyz"), 200)})
table["y"] = (table.a > 0).astype(int).astype(str)
loaders = TabularDataLoaders.from_df(
    table, y_names="y", cat_names=["b"], cont_names=["a"], procs=[Categorify, Normalize], bs=32
)
learner = tabular_learner(loaders, layers=[16], metrics=accuracy)
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(3, 1e-2)
    assert learner.validate()[1] > 0.8
