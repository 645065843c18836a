/* Runs a self-contained model on a few sizes: it needs the model's header and library alone. */
#include <stdio.h>
#include <stdlib.h>

#include "classifier.h"

static int run(const classifier_model* model, int64_t rows) {
  float* data = malloc(sizeof(float) * (size_t)rows * 6);
  for (int64_t i = 0; i < rows * 6; ++i) data[i] = (float)(i % 7) / 7 - 0.5f;
  int64_t shape[] = {rows, 6};
  DLManagedTensor input = {{data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, NULL, NULL};
  DLManagedTensor *inputs[] = {&input}, *output = NULL;
  const int status = classifier_run(model, inputs, 1, &output, 1);
  if (status == 0) {
    for (int64_t i = 0; i < rows * 3; ++i) printf("%.9g\n", ((float*)output->dl_tensor.data)[i]);
    output->deleter(output);
  }
  free(data);
  return status;
}

int main(void) {
  classifier_model* model = NULL;
  if (classifier_load(&model) != 0) {
    fprintf(stderr, "%s\n", classifier_error());
    return 1;
  }
  if (classifier_inputs(model) != 1 || classifier_outputs(model) != 1) return 2;
  if (run(model, 1) != 0 || run(model, 5) != 0) return 3;
  if (run(model, 21) == 0) return 4; /* outside of what was promised */
  fprintf(stderr, "%s\n", classifier_error());
  classifier_free(model);
  return 0;
}
