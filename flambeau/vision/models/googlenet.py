"""GoogLeNet, under the name that programs import it by."""

from flambeau.vision.models.inception import GoogLeNet, GoogLeNet_Weights, GoogLeNetOutputs, googlenet  # noqa: F401
