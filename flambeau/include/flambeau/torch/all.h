// All of the C++ interface in PyTorch's shape, for programs without Python.
#pragma once

#include <flambeau/torch/attention.h>
#include <flambeau/torch/autograd.h>
#include <flambeau/torch/cuda.h>
#include <flambeau/torch/data.h>
#include <flambeau/torch/functions.h>
#include <flambeau/torch/inductor.h>
#include <flambeau/torch/jit.h>
#include <flambeau/torch/layers.h>
#include <flambeau/torch/nn.h>
#include <flambeau/torch/optim.h>
#include <flambeau/torch/recurrent.h>
#include <flambeau/torch/serialize.h>
#include <flambeau/torch/spatial.h>
