// torch::data: datasets, transforms of their batches, samplers, and loaders with worker threads.
#pragma once

#include <flambeau/torch/data/datasets.h>
#include <flambeau/torch/data/loader.h>
#include <flambeau/torch/data/samplers.h>
#include <flambeau/torch/data/transforms.h>
