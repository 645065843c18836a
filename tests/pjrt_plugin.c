/* A PJRT plugin for tests. Its programs are words: "double" doubles each float of its one input, "swap" returns its two
   inputs in the other order, anything else is refused. Structures are arrays of words: size, extension, fields. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t Word;
typedef struct { char text[200]; } Error;
typedef struct { void* data; size_t bytes; Word type; int64_t sizes[8]; size_t dims; } Buffer;
typedef struct { int outputs; int swaps; } Executable;

static int live_buffers = 0;
static Word options_seen = 0;
static char device_name[] = "TestDevice(id=0)", platform_name[] = "test", version_text[] = "1";
static void* device = device_name;

int plugin_live_buffers(void) { return live_buffers; }
Word plugin_options_seen(void) { return options_seen; }

static void* refuse(const char* text) {
  Error* error = malloc(sizeof *error);
  snprintf(error->text, sizeof error->text, "%s", text);
  return error;
}
static void* error_destroy(Word* a) { free((void*)a[2]); return NULL; }
static void* error_message(Word* a) {
  a[3] = (Word)((Error*)a[2])->text;
  a[4] = strlen((char*)a[3]);
  return NULL;
}
static void* nothing(Word* a) { (void)a; return NULL; }
static void* attributes(Word* a) {
  static Word row[7];
  row[0] = sizeof row; row[2] = (Word) "answer"; row[3] = 6; row[4] = 1; row[5] = 42; row[6] = 1;
  a[2] = (Word)row;
  a[3] = 1;
  return NULL;
}
static void* client_create(Word* a) { options_seen = a[3]; a[8] = 1; return NULL; }
static void* platform(Word* a) { a[3] = (Word)platform_name; a[4] = 4; return NULL; }
static void* version(Word* a) { a[3] = (Word)version_text; a[4] = 1; return NULL; }
static void* devices(Word* a) { a[3] = (Word)&device; a[4] = 1; return NULL; }
static void* description(Word* a) { a[3] = a[2]; return NULL; }
static void* to_string(Word* a) { a[3] = a[2]; a[4] = strlen((char*)a[2]); return NULL; }

static void* compile(Word* a) {
  Word* program = (Word*)a[3];
  if (program[5] != 4 || memcmp((char*)program[4], "mlir", 4) != 0) return refuse("expected the format mlir");
  if (a[5] != 17) return refuse("expected compile options");
  Executable* executable = calloc(1, sizeof *executable);
  const char* code = (char*)program[2];
  executable->swaps = program[3] == 4 && memcmp(code, "swap", 4) == 0;
  executable->outputs = executable->swaps ? 2 : 1;
  if (!executable->swaps && !(program[3] == 6 && memcmp(code, "double", 6) == 0)) {
    free(executable);
    return refuse("no such program");
  }
  a[6] = (Word)executable;
  return NULL;
}
static void* executable_destroy(Word* a) { free((void*)a[2]); return NULL; }
static void* num_outputs(Word* a) { a[3] = ((Executable*)a[2])->outputs; return NULL; }

static size_t item_size(Word type) { return type == 5 || type == 9 || type == 12 ? 8 : type == 4 || type == 11 ? 4 : 1; }
static Buffer* copy_of(const Buffer* from) {
  Buffer* buffer = malloc(sizeof *buffer);
  *buffer = *from;
  buffer->data = malloc(from->bytes + 1);
  memcpy(buffer->data, from->data, from->bytes);
  ++live_buffers;
  return buffer;
}
static void* from_host(Word* a) {
  Buffer view = {(void*)a[3], item_size(a[4]), a[4], {0}, a[6]};
  for (size_t d = 0; d < view.dims; ++d) view.bytes *= view.sizes[d] = ((int64_t*)a[5])[d];
  a[13] = 0;
  a[14] = (Word)copy_of(&view);
  return NULL;
}
static void* buffer_destroy(Word* a) {
  free(((Buffer*)a[2])->data);
  free((void*)a[2]);
  --live_buffers;
  return NULL;
}
static void* element_type(Word* a) { *(int*)&a[3] = (int)((Buffer*)a[2])->type; return NULL; }
static void* dimensions(Word* a) {
  a[3] = (Word)((Buffer*)a[2])->sizes;
  a[4] = ((Buffer*)a[2])->dims;
  return NULL;
}
static void* to_host(Word* a) {
  const Buffer* buffer = (Buffer*)a[2];
  if (a[5] < buffer->bytes) return refuse("too little room");
  memcpy((void*)a[4], buffer->data, buffer->bytes);
  a[6] = 0;
  return NULL;
}
static void* execute(Word* a) {
  const Executable* executable = (Executable*)a[2];
  Buffer** given = ((Buffer***)a[4])[0];
  Buffer** results = ((Buffer***)a[7])[0];
  if (a[5] != 1 || a[6] != (Word)executable->outputs) return refuse("another number of arguments");
  for (int i = 0; i < executable->outputs; ++i) results[i] = copy_of(given[executable->swaps ? 1 - i : i]);
  if (!executable->swaps)
    for (size_t i = 0; i < results[0]->bytes / 4; ++i) ((float*)results[0]->data)[i] *= 2;
  return NULL;
}

typedef void* (*Entry)(Word*);
static struct { Word size, extension, version_size, version_extension; int32_t major, minor; Entry entries[80]; } api;

void* GetPjrtApi(void) {
  api.size = sizeof api;
  api.version_size = 24;
  api.major = 0;
  api.minor = 50;
  for (int i = 0; i < 80; ++i) api.entries[i] = nothing;
  api.entries[0] = error_destroy;
  api.entries[1] = error_message;
  api.entries[4] = attributes;
  api.entries[10] = client_create;
  api.entries[12] = platform;
  api.entries[14] = version;
  api.entries[16] = devices;
  api.entries[20] = compile;
  api.entries[22] = from_host;
  api.entries[28] = to_string;
  api.entries[29] = description;
  api.entries[44] = num_outputs;
  api.entries[50] = executable_destroy;
  api.entries[51] = description;
  api.entries[55] = execute;
  api.entries[58] = buffer_destroy;
  api.entries[59] = element_type;
  api.entries[60] = dimensions;
  api.entries[70] = to_host;
  return &api;
}
