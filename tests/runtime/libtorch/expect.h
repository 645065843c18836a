#include <torch/torch.h>
#include <iostream>
#define EXPECT(condition)                                                                   \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::cerr << __FILE__ << ":" << __LINE__ << ": expected " << #condition << std::endl; \
      std::exit(1);                                                                         \
    }                                                                                       \
  } while (false)
