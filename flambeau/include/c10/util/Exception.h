#pragma once
#include <torch/tensor.h>
