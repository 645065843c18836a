/* Mistakes of callers of the C interface are errors with a message: mistakes PACKAGE. */
#include <flambeau/flambeau.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int line, fl_status status, fl_status wanted, const char* said) {
  if (status == wanted && strstr(fl_error(), said)) return;
  fprintf(stderr, "line %d: expected error %d with '%s', got %d with '%s'\n", line, wanted, said, status,
          fl_error());
  ++failures;
}
#define EXPECT(call, wanted, said) expect(__LINE__, (call), (wanted), (said))

static int refuse(void* context, const void* data, size_t size) {
  (void)context, (void)data, (void)size;
  return 1;
}

static void run_mistakes(fl_model* model) {
  float data[12] = {0};
  int64_t shape[3] = {2, 6, 1}, huge[2] = {INT64_MAX / 2, 6}, negative[2] = {-2, 6};
  int64_t strides[2] = {INT64_MAX / 2, 1};
  DLManagedTensor input = {{data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, NULL, NULL};
  DLManagedTensor *inputs[2] = {&input, &input}, *nothing[1] = {NULL}, *outputs[2] = {NULL, NULL};
  EXPECT(fl_run(NULL, inputs, 1, outputs, 1), FL_TYPE_ERROR, "a model");
  EXPECT(fl_run(model, NULL, 1, outputs, 1), FL_TYPE_ERROR, "an input");
  EXPECT(fl_run(model, nothing, 1, outputs, 1), FL_TYPE_ERROR, "an input");
  EXPECT(fl_run(model, inputs, 1, NULL, 1), FL_TYPE_ERROR, "room for outputs");
  EXPECT(fl_run(model, inputs, 1, outputs, 2), FL_TYPE_ERROR, "1 outputs");
  EXPECT(fl_run(model, inputs, 2, outputs, 1), FL_TYPE_ERROR, "1 tensors");
  EXPECT(fl_run(model, inputs, 0, outputs, 1), FL_TYPE_ERROR, "1 tensors");
  input.dl_tensor.dtype.bits = 64;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_RUNTIME_ERROR, "dtype");
  input.dl_tensor.dtype.bits = 7;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_TYPE_ERROR, "7 bits");
  input.dl_tensor.dtype.bits = 32;
  input.dl_tensor.dtype.lanes = 4;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_TYPE_ERROR, "lane");
  input.dl_tensor.dtype.lanes = 1;
  input.dl_tensor.device.device_type = 77;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_RUNTIME_ERROR, "device 77");
  input.dl_tensor.device.device_type = kDLCPU;
  input.dl_tensor.ndim = 3;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_RUNTIME_ERROR, "2 dimensions");
  input.dl_tensor.ndim = -1;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_VALUE_ERROR, "dimensions");
  input.dl_tensor.ndim = 1000;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_VALUE_ERROR, "64 sizes");
  input.dl_tensor.ndim = 2;
  input.dl_tensor.shape = NULL;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_VALUE_ERROR, "sizes");
  input.dl_tensor.shape = huge;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_RUNTIME_ERROR, "expected");
  input.dl_tensor.shape = negative;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_RUNTIME_ERROR, "negative");
  input.dl_tensor.shape = shape;
  input.dl_tensor.strides = strides;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_VALUE_ERROR, "strides");
  input.dl_tensor.strides = NULL;
  input.dl_tensor.data = NULL;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_VALUE_ERROR, "memory");
  input.dl_tensor.data = data;
  shape[0] = 21; /* the package promises up to 20 */
  input.dl_tensor.ndim = 2;
  strides[0] = 0;
  input.dl_tensor.strides = strides;
  EXPECT(fl_run(model, inputs, 1, outputs, 1), FL_RUNTIME_ERROR, "between 1 and 20");
  const char* names[1] = {"no.such.weight"};
  fl_tensor *tensor = NULL, *no_tensors[1] = {NULL};
  EXPECT(fl_tensor_from_blob(data, FL_FLOAT32, shape, NULL, 0, NULL, NULL, &tensor), FL_OK, "");
  EXPECT(fl_model_update(model, names, &tensor, 1, 0), FL_RUNTIME_ERROR, "no.such.weight");
  EXPECT(fl_model_update(model, names, no_tensors, 1, 0), FL_TYPE_ERROR, "a tensor");
  EXPECT(fl_model_update(model, NULL, &tensor, 1, 0), FL_TYPE_ERROR, "a name");
  EXPECT(fl_run_tensors(model, no_tensors, 1, &tensor, 1), FL_TYPE_ERROR, "an input");
  fl_tensor_release(tensor);
}

static void value_mistakes(void) {
  float data[4] = {1, 2, 3, 4};
  const int64_t sizes[1] = {4};
  fl_tensor* tensor = NULL;
  fl_value argument, result;
  size_t count = 0;
  memset(&argument, 0, sizeof argument);
  EXPECT(fl_tensor_from_blob(data, (fl_dtype)99, sizes, NULL, 1, NULL, NULL, &tensor), FL_TYPE_ERROR, "99");
  EXPECT(fl_tensor_from_blob(data, FL_FLOAT32, sizes, NULL, 1, NULL, NULL, NULL), FL_TYPE_ERROR, "room");
  EXPECT(fl_tensor_from_blob(data, FL_FLOAT32, sizes, NULL, 1, NULL, NULL, &tensor), FL_OK, "");
  EXPECT(fl_tensor_to_dlpack(NULL, NULL), FL_TYPE_ERROR, "null");
  EXPECT(fl_tensor_item(NULL, NULL, NULL), FL_TYPE_ERROR, "a tensor");
  EXPECT(fl_backward(NULL, NULL, 1, NULL, 0, 0, 0, NULL), FL_TYPE_ERROR, "a tensor");
  EXPECT(fl_backward(&tensor, NULL, 1, NULL, 0, 0, 0, NULL), FL_RUNTIME_ERROR, "requires grad");
  EXPECT(fl_tensor_set_requires_grad(NULL, 1), FL_TYPE_ERROR, "a tensor");
  EXPECT(fl_call(NULL, NULL, 0, NULL, 0, &count), FL_TYPE_ERROR, "a name");
  EXPECT(fl_call("relu", NULL, 1, &result, 1, &count), FL_TYPE_ERROR, "arguments");
  EXPECT(fl_call("no_such_operator", NULL, 0, &result, 1, &count), FL_NOT_IMPLEMENTED, "no_such_operator");
  argument.kind = FL_VALUE_TENSOR;
  argument.as.tensor = tensor;
  EXPECT(fl_call("relu", &argument, 1, &result, 1, NULL), FL_TYPE_ERROR, "room");
  EXPECT(fl_call("relu", &argument, 1, NULL, 1, &count), FL_RUNTIME_ERROR, "room");
  EXPECT(fl_call("relu", &argument, 1, &result, 0, &count), FL_RUNTIME_ERROR, "room");
  argument.kind = FL_VALUE_STRING;
  argument.as.string = NULL;
  EXPECT(fl_call("relu", &argument, 1, &result, 1, &count), FL_TYPE_ERROR, "a string");
  argument.kind = FL_VALUE_INTS;
  argument.as.ints = NULL;
  argument.length = 3;
  EXPECT(fl_call("zeros", &argument, 1, &result, 1, &count), FL_TYPE_ERROR, "list");
  argument.kind = (fl_kind)77;
  EXPECT(fl_call("relu", &argument, 1, &result, 1, &count), FL_TYPE_ERROR, "77");
  fl_tensor_release(tensor);
}

static void object_mistakes(void) {
  fl_object *object = NULL, *list = NULL;
  fl_value value;
  memset(&value, 0, sizeof value);
  EXPECT(fl_script_load(NULL, &object), FL_RUNTIME_ERROR, "file");
  EXPECT(fl_script_load_memory(NULL, 10, &object), FL_RUNTIME_ERROR, "none");
  EXPECT(fl_pickle_load("PK", 2, &object), FL_RUNTIME_ERROR, "archive");
  EXPECT(fl_object_from_value(NULL, &object), FL_TYPE_ERROR, "a value");
  value.kind = FL_VALUE_INT;
  EXPECT(fl_object_from_value(&value, &object), FL_OK, "");
  EXPECT(fl_object_attribute(object, "x", &list), FL_RUNTIME_ERROR, "attribute");
  EXPECT(fl_object_attribute(NULL, "x", &list), FL_TYPE_ERROR, "an object");
  EXPECT(fl_object_call(object, "forward", NULL, NULL, 0, &list), FL_TYPE_ERROR, "a module");
  EXPECT(fl_object_from_items(FL_OBJECT_LIST, NULL, 2, &list), FL_TYPE_ERROR, "an object");
  EXPECT(fl_object_from_items(FL_OBJECT_MODULE, NULL, 0, &list), FL_TYPE_ERROR, "kind");
  EXPECT(fl_object_from_attributes(NULL, NULL, NULL, 1, &list), FL_TYPE_ERROR, "names");
  EXPECT(fl_script_save(object, NULL, refuse, NULL), FL_TYPE_ERROR, "a module");
  EXPECT(fl_pickle_save(object, refuse, NULL), FL_RUNTIME_ERROR, "takes the bytes");
  EXPECT(fl_pickle_save(object, NULL, NULL), FL_TYPE_ERROR, "writes");
  if (fl_object_length(NULL) != 0 || fl_object_name(NULL, FL_NAMES_METHODS, 0) != NULL) ++failures;
  fl_object_release(object);
}

int main(int argc, char** argv) {
  fl_model* model = NULL;
  if (argc != 2) return 2;
  EXPECT(fl_load(argv[1], NULL), FL_TYPE_ERROR, "room for a model");
  EXPECT(fl_load(NULL, &model), FL_RUNTIME_ERROR, "file");
  EXPECT(fl_load_memory(NULL, 10, &model), FL_RUNTIME_ERROR, "none");
  EXPECT(fl_load(argv[1], &model), FL_OK, "");
  run_mistakes(model);
  value_mistakes();
  object_mistakes();
  fl_model_free(model);
  fl_model_free(NULL);
  return failures;
}
