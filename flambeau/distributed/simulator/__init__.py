"""What a training step would cost on machines that are not here: its schedule is played with modelled times.

    layers = profile(model, inputs)                               # operations, parameters and activations of each block
    report = simulate(layers, Cluster(hosts=8, gpus=8), Plan(data=32, tensor=2))
    plans = propose(layers, Cluster(hosts=8, gpus=8))             # the fastest plans that fit into memory

`flambeau plan model.py --gpus 64` does the same from the command line. Times are those of a model with two queues for each process, one that
computes and one that communicates: they rank plans and show what is hidden behind what; they are no promise.
"""

from flambeau.distributed.simulator.cluster import Cluster
from flambeau.distributed.simulator.profile import Layer, profile
from flambeau.distributed.simulator.step import Plan, Report, propose, simulate

__all__ = ["Cluster", "Layer", "Plan", "Report", "profile", "propose", "simulate"]
