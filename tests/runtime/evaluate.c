/* Prints the results of a package for inputs of given shapes: evaluate PACKAGE 2x3x8 ... */
#include <flambeau/flambeau.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 8 };

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, fl_error());
  return 1;
}

/* A tensor of floats between -0.5 and 0.5, and the number of its elements. */
static DLManagedTensor filled(char* shape_text) {
  DLManagedTensor tensor = {{NULL, {kDLCPU, 0}, 0, {kDLFloat, 32, 1}, NULL, NULL, 0}, NULL, NULL};
  tensor.dl_tensor.shape = malloc(kMost * sizeof(int64_t));
  int64_t count = 1;
  for (char* size = strtok(shape_text, "x"); size && tensor.dl_tensor.ndim < kMost; size = strtok(NULL, "x")) {
    tensor.dl_tensor.shape[tensor.dl_tensor.ndim++] = atoll(size);
    count *= atoll(size);
  }
  float* data = malloc(sizeof(float) * (size_t)(count + 1));
  for (int64_t i = 0; i < count; ++i) data[i] = (float)(i * 7 % 23) / 23 - 0.5f;
  tensor.dl_tensor.data = data;
  return tensor;
}

static void print(const DLTensor* result) {
  int64_t count = 1;
  for (int i = 0; i < result->ndim; ++i) count *= result->shape[i];
  for (int64_t i = 0; i < count; ++i) printf("%.9g\n", ((float*)result->data)[i]);
}

int main(int argc, char** argv) {
  fl_model* model = NULL;
  DLManagedTensor tensors[kMost], *inputs[kMost], *outputs[kMost] = {NULL};
  const size_t count = (size_t)argc - 2;
  if (argc < 3 || count > kMost) return 2;
  if (fl_load(argv[1], &model) != FL_OK) return failed("load");
  for (size_t i = 0; i < count; ++i) {
    tensors[i] = filled(argv[2 + i]);
    inputs[i] = &tensors[i];
  }
  const size_t results = fl_model_outputs(model);
  if (fl_run(model, inputs, count, outputs, results) != FL_OK) return failed("run");
  for (size_t i = 0; i < results; ++i) {
    print(&outputs[i]->dl_tensor);
    outputs[i]->deleter(outputs[i]);
  }
  fprintf(stderr, "%s\n", fl_model_instruction_set(model));
  fl_model_free(model);
  return 0;
}
