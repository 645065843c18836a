/* Runs a package by the C interface: package FILE BATCH. Prints the results. */
#include <flambeau/flambeau.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, fl_error());
  return 1;
}

static fl_model* load_copy(const char* path) {
  FILE* file = fopen(path, "rb");
  fl_model* model = NULL;
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  rewind(file);
  char* bytes = malloc((size_t)size);
  if (fread(bytes, 1, (size_t)size, file) == (size_t)size) fl_load_memory(bytes, (size_t)size, &model);
  fclose(file);
  memset(bytes, 0, (size_t)size); /* the model has a copy */
  free(bytes);
  return model;
}

int main(int argc, char** argv) {
  if (argc != 3 || fl_abi_version() < FL_ABI_VERSION) return 2;
  fl_model *model = NULL, *copy = NULL;
  if (fl_load("/nonexistent.pt2", &model) == FL_OK || !strstr(fl_error(), "nonexistent")) return 3;
  if (fl_load_memory("PK", 2, &model) == FL_OK) return 3;
  if (fl_load(argv[1], &model) != FL_OK) return failed("load");
  copy = load_copy(argv[1]);
  if (!copy) return failed("load from memory");

  const int64_t batch = atoll(argv[2]);
  int64_t shape[2] = {batch, 6};
  float* data = malloc(sizeof(float) * (size_t)(batch * 6 + 1));
  for (int64_t i = 0; i < batch * 6; ++i) data[i] = (float)(i % 7) / 7 - 0.5f;
  DLManagedTensor input = {{data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, NULL, NULL};
  DLManagedTensor *inputs[1] = {&input}, *outputs[1] = {NULL}, *again[1] = {NULL};
  if (fl_run(model, inputs, 1, outputs, 1) != FL_OK) return failed("run");
  if (fl_run(copy, inputs, 1, again, 1) != FL_OK) return failed("run");
  const DLTensor* result = &outputs[0]->dl_tensor;
  const size_t count = (size_t)(result->shape[0] * result->shape[1]);
  if (memcmp(result->data, again[0]->dl_tensor.data, count * sizeof(float)) != 0) return 4;
  for (size_t i = 0; i < count; ++i) printf("%.9g\n", ((float*)result->data)[i]);
  outputs[0]->deleter(outputs[0]);
  again[0]->deleter(again[0]);

  shape[1] = 5;
  if (fl_run(model, inputs, 1, outputs, 1) == FL_OK || !strstr(fl_error(), "size(1) == 6")) return 5;
  if (fl_run(model, inputs, 0, outputs, 1) == FL_OK) return 5;
  fprintf(stderr, "%zu inputs (%s), %zu constants, %s\n", fl_model_inputs(model),
          fl_model_input_name(model, 0), fl_model_constants(model), fl_model_instruction_set(model));
  fl_model_free(model);
  fl_model_free(copy);
  free(data);
  return 0;
}
