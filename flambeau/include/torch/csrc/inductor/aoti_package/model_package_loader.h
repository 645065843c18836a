#pragma once
#include <flambeau/torch/inductor.h>
