/* The C interface of flambeau: models that were compiled ahead of time, scripts, tensors and operators.
 *
 * Handles are opaque and counted. A function that can fail returns 0, or the kind of the error, also where a
 * pointer that it needs is null; fl_error() then says what went wrong, for the last such call of the thread. Functions may be called from several
 * threads; a model may be run by many at the same time.
 *
 * The interface only grows: what a program was compiled against stays. fl_abi_version() tells the library's
 * version, which must not be below the FL_ABI_VERSION of the header.
 */
#ifndef FLAMBEAU_FLAMBEAU_H
#define FLAMBEAU_FLAMBEAU_H

#include <flambeau/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_ABI_VERSION 6
#define FL_API __attribute__((visibility("default")))

typedef enum {
  FL_OK = 0,
  FL_RUNTIME_ERROR = 1,
  FL_TYPE_ERROR = 2,
  FL_VALUE_ERROR = 3,
  FL_INDEX_ERROR = 4,
  FL_NOT_IMPLEMENTED = 5,
  FL_OUT_OF_MEMORY = 6
} fl_status;

typedef struct fl_tensor fl_tensor;
typedef struct fl_model fl_model;

/* Numbers of dtypes, as PyTorch numbers them. */
typedef enum {
  FL_UINT8 = 0,
  FL_INT8 = 1,
  FL_INT16 = 2,
  FL_INT32 = 3,
  FL_INT64 = 4,
  FL_FLOAT16 = 5,
  FL_FLOAT32 = 6,
  FL_FLOAT64 = 7,
  FL_COMPLEX64 = 9,
  FL_COMPLEX128 = 10,
  FL_BOOL = 11,
  FL_BFLOAT16 = 15
} fl_dtype;

FL_API int fl_abi_version(void);
FL_API const char* fl_version(void);
/* The message of the last error of this thread; valid until the next one. */
FL_API const char* fl_error(void);
FL_API int fl_num_threads(void);
FL_API void fl_set_num_threads(int threads);

/* ---- models
 * ----------------------------------------------------------------------------------------------------------
 */

/* Loads a package (.pt2) that flambeau compiled. Its kernels are native code: load only packages that you
 * trust. */
FL_API fl_status fl_load(const char* path, fl_model** model);
/* The same from memory, which is copied. */
FL_API fl_status fl_load_memory(const void* data, size_t size, fl_model** model);
/* The same from memory that is there for good, and begins at a multiple of 64 bytes: nothing is copied. */
FL_API fl_status fl_load_static(const void* data, size_t size, fl_model** model);
/* The same from a file, for the CUDA device of an index, which must be the current one; negative: whichever
 * is. Packages for the CPU do not look at it. */
FL_API fl_status fl_load_on(const char* path, int device_index, fl_model** model);
FL_API void fl_model_free(fl_model* model);

/* Numbers and names of the tensors that a run takes and returns; names are valid while the model is. */
FL_API size_t fl_model_inputs(const fl_model* model);
FL_API size_t fl_model_outputs(const fl_model* model);
FL_API const char* fl_model_input_name(const fl_model* model, size_t index);
FL_API const char* fl_model_output_name(const fl_model* model, size_t index);
/* Other facts, as JSON. */
FL_API const char* fl_model_metadata(const fl_model* model);
/* The instruction set of the kernels in use. */
FL_API const char* fl_model_instruction_set(const fl_model* model);

/* Runs a model. Inputs are borrowed. Each output is a new tensor; free it with its deleter. */
FL_API fl_status fl_run(const fl_model* model, DLManagedTensor* const* inputs, size_t input_count,
                        DLManagedTensor** outputs, size_t output_count);
/* The same on handles; outputs are owned by the caller. */
FL_API fl_status fl_run_tensors(const fl_model* model, fl_tensor* const* inputs, size_t input_count,
                                fl_tensor** outputs, size_t output_count);

/* Parameters and buffers. An update takes effect as a whole: runs that began before it finish with the old
 * ones. */
FL_API size_t fl_model_constants(const fl_model* model);
FL_API const char* fl_model_constant_name(const fl_model* model, size_t index);
FL_API fl_status fl_model_update(fl_model* model, const char* const* names, fl_tensor* const* tensors,
                                 size_t count, int share);

/* ---- tensors
 * ---------------------------------------------------------------------------------------------------------
 */

FL_API fl_tensor* fl_tensor_retain(fl_tensor* tensor);
FL_API void fl_tensor_release(fl_tensor* tensor);

/* A tensor on memory of the caller, which must outlive it, or is given to `deleter` when it ends. */
FL_API fl_status fl_tensor_from_blob(void* data, fl_dtype dtype, const int64_t* sizes, const int64_t* strides,
                                     size_t dim, void (*deleter)(void* data, void* context), void* context,
                                     fl_tensor** tensor);
/* Takes over a DLPack tensor. */
FL_API fl_status fl_tensor_from_dlpack(DLManagedTensor* managed, fl_tensor** tensor);
FL_API fl_status fl_tensor_to_dlpack(fl_tensor* tensor, DLManagedTensor** managed);

FL_API int64_t fl_tensor_dim(const fl_tensor* tensor);
FL_API int64_t fl_tensor_numel(const fl_tensor* tensor);
FL_API const int64_t* fl_tensor_sizes(const fl_tensor* tensor);
FL_API const int64_t* fl_tensor_strides(const fl_tensor* tensor);
FL_API int64_t fl_tensor_offset(const fl_tensor* tensor);
/* -1 for a dtype without a number. */
FL_API fl_dtype fl_tensor_dtype(const fl_tensor* tensor);
FL_API int fl_tensor_is_contiguous(const fl_tensor* tensor);
FL_API void* fl_tensor_data(const fl_tensor* tensor);
/* The device as a DLDeviceType, 0 where a tensor has no memory (meta); its index, -1 for the CPU. */
FL_API int fl_tensor_device(const fl_tensor* tensor, int* index);
/* How many CUDA devices there are. */
FL_API int fl_cuda_devices(void);
/* The only element, as a double pair (real and imaginary part), or as an integer. */
FL_API fl_status fl_tensor_item(const fl_tensor* tensor, double value[2], int64_t* integer);

/* ---- gradients
 * ------------------------------------------------------------------------------------------------------- */

FL_API int fl_tensor_requires_grad(const fl_tensor* tensor);
FL_API fl_status fl_tensor_set_requires_grad(fl_tensor* tensor, int requires_grad);
FL_API int fl_tensor_is_leaf(const fl_tensor* tensor);
/* The gradient, owned by the caller; null where there is none. */
FL_API fl_tensor* fl_tensor_grad(const fl_tensor* tensor);
FL_API fl_status fl_tensor_set_grad(fl_tensor* tensor, fl_tensor* grad);
FL_API fl_status fl_tensor_retain_grad(fl_tensor* tensor);
FL_API fl_tensor* fl_tensor_detach(const fl_tensor* tensor);
/* Gives a tensor the memory, sizes and dtype of another one; handles and optimizers that know it see the
 * change. */
FL_API fl_status fl_tensor_set_data(fl_tensor* tensor, const fl_tensor* data);
/* What a hook gets: the gradient of its tensor. It may leave another one in `result`, owned by the caller.
   Where it fails it returns what fl_fail returned. */
typedef fl_status (*fl_hook_function)(void* context, fl_tensor* gradient, fl_tensor** result);
/* Calls a function with the gradient of a tensor in each backward. `release` gets the context at the end. The
   hook's number is for fl_tensor_remove_hook. */
FL_API fl_status fl_tensor_register_hook(fl_tensor* tensor, fl_hook_function hook, void (*release)(void*),
                                         void* context, size_t* number);
FL_API fl_status fl_tensor_remove_hook(fl_tensor* tensor, size_t number);
/* Backward from some tensors. With `inputs`, their gradients are returned instead of being accumulated; owned
   by the caller, null where there is none. */
FL_API fl_status fl_backward(fl_tensor* const* roots, fl_tensor* const* gradients, size_t root_count,
                             fl_tensor* const* inputs, size_t input_count, int retain_graph, int create_graph,
                             fl_tensor** input_gradients);
/* What a backward function gets: the gradients of the outputs, null where there is none. It leaves those of
   the inputs, owned by the caller, null where there is none. Where it fails it returns what fl_fail returned.
 */
typedef fl_status (*fl_backward_function)(void* context, fl_tensor* const* gradients, size_t output_count,
                                          fl_tensor** input_gradients, size_t input_count);
/* Gives outputs a history: they were computed from inputs, and `backward` computes the gradients. The outputs
   are replaced by new handles, owned by the caller. `release` gets the context when nobody needs it any more.
 */
FL_API fl_status fl_set_backward(fl_tensor* const* inputs, size_t input_count, fl_tensor** outputs,
                                 size_t output_count, const char* name, fl_backward_function backward,
                                 void (*release)(void* context), void* context);
/* The name of the node that a tensor comes from, such as MulBackward0; null for one without history. Valid
   until the next call of the thread. */
FL_API const char* fl_tensor_grad_fn(const fl_tensor* tensor);
/* Keeps a message for fl_error(), from a callback. */
FL_API fl_status fl_fail(const char* message);
FL_API int fl_grad_enabled(void);
FL_API void fl_set_grad_enabled(int enabled);
FL_API void fl_manual_seed(uint64_t seed);
/* The dtype of tensors that are made from floating-point numbers. */
FL_API fl_dtype fl_default_dtype(void);
FL_API fl_status fl_set_default_dtype(fl_dtype dtype);

/* ---- operators
 * ------------------------------------------------------------------------------------------------------- */

typedef enum {
  FL_NONE = 0,
  FL_VALUE_TENSOR = 1,
  FL_VALUE_BOOL = 2,
  FL_VALUE_INT = 3,
  FL_VALUE_FLOAT = 4,
  FL_VALUE_COMPLEX = 5,
  FL_VALUE_STRING = 6,
  FL_VALUE_DTYPE = 7,
  FL_VALUE_DEVICE = 8, /* a string such as "cpu" */
  FL_VALUE_INTS = 9,
  FL_VALUE_FLOATS = 10,
  FL_VALUE_TENSORS = 11,
  FL_VALUE_BOOLS = 12,
  FL_VALUE_MEMORY_FORMAT = 13, /* 0 contiguous, 1 preserve, 2 channels last, 3 channels last in 3-d */
  FL_VALUE_INDEX = 14          /* a slice: length of ints is three, INT64_MIN for an absent end */
} fl_kind;

/* An argument or a result. Arguments borrow what they point to. */
typedef struct {
  fl_kind kind;
  const char* name; /* of a keyword argument; null by position */
  union {
    int64_t integer;
    double number;
    double complex_number[2];
    fl_tensor* tensor;
    const char* string;
    const int64_t* ints;
    const double* floats;
    fl_tensor** tensors;
    const uint8_t* bools;
  } as;
  size_t length; /* of lists */
} fl_value;

/* Calls an operator by its name ("add", "linalg.det", "nn.functional.pad"); the overload is chosen by the
   arguments. Tensors among the results are owned by the caller; fl_values_clear frees them. */
FL_API fl_status fl_call(const char* name, const fl_value* arguments, size_t argument_count,
                         fl_value* results, size_t capacity, size_t* result_count);
/* The same for a method of its first argument. */
FL_API fl_status fl_call_method(const char* name, const fl_value* arguments, size_t argument_count,
                                fl_value* results, size_t capacity, size_t* result_count);
FL_API void fl_values_clear(fl_value* values, size_t count);

/* ---- scripts
 * ---------------------------------------------------------------------------------------------------------
 */

/* A value of TorchScript: a plain one, a container, or an object with attributes and methods. Counted. */
typedef struct fl_object fl_object;

typedef enum {
  FL_OBJECT_PLAIN = 0, /* what fl_value holds */
  FL_OBJECT_LIST = 1,
  FL_OBJECT_TUPLE = 2,
  FL_OBJECT_DICT = 3,
  FL_OBJECT_MODULE = 4,
  FL_OBJECT_CLASS = 5, /* an object of a scripted class */
  FL_OBJECT_ENUM = 6,
  FL_OBJECT_OTHER = 7
} fl_object_kind;

typedef enum {
  FL_NAMES_ATTRIBUTES = 0,
  FL_NAMES_PARAMETERS = 1,
  FL_NAMES_BUFFERS = 2,
  FL_NAMES_MODULES = 3,
  FL_NAMES_METHODS = 4,
  FL_NAMES_FIELDS = 5 /* of a named tuple */
} fl_names;

/* Loads an archive that jit.save wrote, here or in PyTorch. Its code is data of an interpreter: nothing of it
   runs natively. */
FL_API fl_status fl_script_load(const char* path, fl_object** module);
FL_API fl_status fl_script_load_memory(const void* data, size_t size, fl_object** module);
/* A file that was saved beside the module; a string, or none. */
FL_API fl_status fl_script_extra_file(const char* path, const char* name, fl_object** content);

/* Takes the next bytes of a file; not 0 where they cannot be kept. */
typedef int (*fl_write_function)(void* context, const void* data, size_t size);
/* Writes the archive of a module, which PyTorch reads as well, and the files of a dict of strings beside it,
   or null. */
FL_API fl_status fl_script_save(const fl_object* module, const fl_object* extra_files,
                                fl_write_function write, void* context);
/* Plain values, tensors, and lists, tuples and dicts of them, as torch.save writes them in Python. */
FL_API fl_status fl_pickle_save(const fl_object* value, fl_write_function write, void* context);
FL_API fl_status fl_pickle_load(const void* data, size_t size, fl_object** value);

FL_API fl_object* fl_object_retain(fl_object* object);
FL_API void fl_object_release(fl_object* object);
FL_API fl_status fl_object_from_value(const fl_value* value, fl_object** object);
/* Items of a dict are keys and values in turn. */
FL_API fl_status fl_object_from_items(fl_object_kind kind, fl_object* const* items, size_t count,
                                      fl_object** object);
/* A module without code. A kind is FL_NAMES_PARAMETERS, FL_NAMES_BUFFERS or FL_NAMES_ATTRIBUTES. */
FL_API fl_status fl_object_from_attributes(const char* const* names, fl_object* const* values,
                                           const fl_names* kinds, size_t count, fl_object** module);
FL_API fl_object_kind fl_object_kind_of(const fl_object* object);
/* The value of a plain object. Tensors are owned by the caller; strings are valid while the object is. */
FL_API fl_status fl_object_value(const fl_object* object, fl_value* value);
FL_API size_t fl_object_length(const fl_object* object);
FL_API fl_status fl_object_item(const fl_object* object, size_t index, fl_object** item);
FL_API fl_status fl_object_attribute(const fl_object* object, const char* name, fl_object** value);
FL_API fl_status fl_object_set_attribute(fl_object* object, const char* name, const fl_object* value);
/* The name at a place of a list; null behind its end. Valid while the object is. */
FL_API const char* fl_object_name(const fl_object* object, fl_names which, size_t index);
/* Calls a method. Names of arguments may be null: by position. */
FL_API fl_status fl_object_call(const fl_object* object, const char* method, fl_object* const* arguments,
                                const char* const* names, size_t count, fl_object** result);
/* Moves the parameters and buffers of a module; a negative dtype and a null device leave them. */
FL_API fl_status fl_object_convert(fl_object* module, int dtype, const char* device);

#ifdef __cplusplus
}
#endif
#endif
