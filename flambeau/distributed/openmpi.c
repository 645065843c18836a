// The functions of MPI that groups use (`_mpi.py`), with the handles and numbers of MPI's standard ABI, over Open MPI's own. Built with
// Open MPI's `mpicc` where the ranks run, because Open MPI 5 does not have that ABI.
#include <mpi.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#define EXPORT __attribute__((visibility("default")))

enum { ABI_WORLD = 0x101, ABI_RETURN = 0x143, ABI_THREAD_MULTIPLE = 4096, ABI_IN_PLACE = 1 };

static MPI_Comm comm_of(void* handle) { return (uintptr_t)handle == ABI_WORLD ? MPI_COMM_WORLD : (MPI_Comm)handle; }

static MPI_Datatype type_of(void* handle) {
  switch ((uintptr_t)handle) {
    case 0x247: return MPI_BYTE;
    case 0x210: return MPI_FLOAT;
    case 0x214: return MPI_DOUBLE;
    case 0x212: return MPI_C_FLOAT_COMPLEX;
    case 0x216: return MPI_C_DOUBLE_COMPLEX;
    case 0x240: return MPI_INT8_T;
    case 0x241: return MPI_UINT8_T;
    case 0x248: return MPI_INT16_T;
    case 0x249: return MPI_UINT16_T;
    case 0x250: return MPI_INT32_T;
    case 0x251: return MPI_UINT32_T;
    case 0x258: return MPI_INT64_T;
    case 0x259: return MPI_UINT64_T;
  }
  return MPI_DATATYPE_NULL;
}

static MPI_Op op_of(void* handle) {
  switch ((uintptr_t)handle) {
    case 0x21: return MPI_SUM;
    case 0x22: return MPI_MIN;
    case 0x23: return MPI_MAX;
    case 0x24: return MPI_PROD;
    case 0x28: return MPI_BAND;
    case 0x29: return MPI_BOR;
    case 0x2A: return MPI_BXOR;
  }
  return MPI_OP_NULL;
}

static const void* source_of(const void* buffer) { return (uintptr_t)buffer == ABI_IN_PLACE ? MPI_IN_PLACE : buffer; }

// Open MPI 5 counts in ints.
#define CHECK_COUNT(count) \
  if ((count) < 0 || (count) > INT_MAX) return MPI_ERR_COUNT

typedef struct {
  int source, tag, error, rest[5];
} AbiStatus;

// Counts and offsets of an exchange under way, which Open MPI may read until it is through.
typedef struct Layout {
  MPI_Request request;
  struct Layout* next;
  int values[];
} Layout;

static Layout* layouts;
static pthread_mutex_t layouts_lock = PTHREAD_MUTEX_INITIALIZER;

static void forget_layout(MPI_Request request) {
  pthread_mutex_lock(&layouts_lock);
  Layout** at = &layouts;
  while (*at && (*at)->request != request) at = &(*at)->next;
  Layout* done = *at;
  if (done) *at = done->next;
  pthread_mutex_unlock(&layouts_lock);
  free(done);
}

EXPORT int abi_MPI_Initialized(int* flag) { return MPI_Initialized(flag); }
EXPORT int abi_MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  int got = 0, status = MPI_Init_thread(argc, argv, required == ABI_THREAD_MULTIPLE ? MPI_THREAD_MULTIPLE : required, &got);
  *provided = got == MPI_THREAD_MULTIPLE ? ABI_THREAD_MULTIPLE : 0;
  return status;
}
EXPORT int abi_MPI_Finalize(void) { return MPI_Finalize(); }
EXPORT int abi_MPI_Abort(void* comm, int code) { return MPI_Abort(comm_of(comm), code); }
EXPORT int abi_MPI_Error_string(int code, char* text, int* length) { return MPI_Error_string(code, text, length); }
EXPORT int abi_MPI_Comm_set_errhandler(void* comm, void* handler) {
  return MPI_Comm_set_errhandler(comm_of(comm), (uintptr_t)handler == ABI_RETURN ? MPI_ERRORS_RETURN : MPI_ERRORS_ARE_FATAL);
}
EXPORT int abi_MPI_Comm_rank(void* comm, int* rank) { return MPI_Comm_rank(comm_of(comm), rank); }
EXPORT int abi_MPI_Comm_size(void* comm, int* size) { return MPI_Comm_size(comm_of(comm), size); }
EXPORT int abi_MPI_Comm_group(void* comm, void** group) { return MPI_Comm_group(comm_of(comm), (MPI_Group*)group); }
EXPORT int abi_MPI_Group_incl(void* group, int count, const int* ranks, void** made) {
  return MPI_Group_incl((MPI_Group)group, count, ranks, (MPI_Group*)made);
}
EXPORT int abi_MPI_Comm_create_group(void* comm, void* group, int tag, void** made) {
  return MPI_Comm_create_group(comm_of(comm), (MPI_Group)group, tag, (MPI_Comm*)made);
}

EXPORT int abi_MPI_Group_translate_ranks(void* group, int count, const int* ranks, void* other, int* found) {
  return MPI_Group_translate_ranks((MPI_Group)group, count, ranks, (MPI_Group)other, found);
}

#ifdef OMPI_HAVE_MPI_EXT_FTMPI  // going on after a process is lost
EXPORT int abi_MPIX_Comm_revoke(void* comm) { return MPIX_Comm_revoke(comm_of(comm)); }
EXPORT int abi_MPIX_Comm_shrink(void* comm, void** made) { return MPIX_Comm_shrink(comm_of(comm), (MPI_Comm*)made); }
#endif

EXPORT int abi_MPI_Bcast(void* buffer, int count, void* type, int root, void* comm) {
  return MPI_Bcast(buffer, count, type_of(type), root, comm_of(comm));
}
EXPORT int abi_MPI_Test(void** request, int* done, AbiStatus* status) {
  MPI_Request before = (MPI_Request)*request;
  MPI_Status own;
  int code = MPI_Test((MPI_Request*)request, done, &own);
  if (*done) {
    *status = (AbiStatus){own.MPI_SOURCE, own.MPI_TAG, own.MPI_ERROR, {0}};
    forget_layout(before);
  }
  return code;
}

EXPORT int abi_MPI_Ibarrier(void* comm, void** request) { return MPI_Ibarrier(comm_of(comm), (MPI_Request*)request); }
EXPORT int abi_MPI_Ibcast_c(void* buffer, int64_t count, void* type, int root, void* comm, void** request) {
  CHECK_COUNT(count);
  return MPI_Ibcast(buffer, (int)count, type_of(type), root, comm_of(comm), (MPI_Request*)request);
}
EXPORT int abi_MPI_Iallgather_c(const void* sent, int64_t count, void* type, void* received, int64_t received_count,
                                void* received_type, void* comm, void** request) {
  CHECK_COUNT(count);
  CHECK_COUNT(received_count);
  return MPI_Iallgather(source_of(sent), (int)count, type_of(type), received, (int)received_count, type_of(received_type),
                        comm_of(comm), (MPI_Request*)request);
}
EXPORT int abi_MPI_Iallreduce_c(const void* sent, void* received, int64_t count, void* type, void* op, void* comm,
                                void** request) {
  CHECK_COUNT(count);
  return MPI_Iallreduce(source_of(sent), received, (int)count, type_of(type), op_of(op), comm_of(comm), (MPI_Request*)request);
}
EXPORT int abi_MPI_Ialltoallv_c(const void* sent, const int64_t* counts, const int64_t* starts, void* type, void* received,
                                const int64_t* received_counts, const int64_t* received_starts, void* received_type,
                                void* comm, void** request) {
  int size = 0, code = MPI_Comm_size(comm_of(comm), &size);
  if (code) return code;
  const int64_t* wide[] = {counts, starts, received_counts, received_starts};
  for (int which = 0; which < 4; ++which)
    for (int rank = 0; rank < size; ++rank) CHECK_COUNT(wide[which][rank]);
  Layout* layout = malloc(sizeof(Layout) + 4 * (size_t)size * sizeof(int));
  if (!layout) return MPI_ERR_NO_MEM;
  for (int which = 0; which < 4; ++which)
    for (int rank = 0; rank < size; ++rank) layout->values[which * size + rank] = (int)wide[which][rank];
  int* narrow = layout->values;
  code = MPI_Ialltoallv(source_of(sent), narrow, narrow + size, type_of(type), received, narrow + 2 * size, narrow + 3 * size,
                        type_of(received_type), comm_of(comm), &layout->request);
  if (code) {
    free(layout);
    return code;
  }
  pthread_mutex_lock(&layouts_lock);
  layout->next = layouts;
  layouts = layout;
  pthread_mutex_unlock(&layouts_lock);
  *request = layout->request;
  return code;
}

EXPORT int abi_MPI_Isend_c(const void* buffer, int64_t count, void* type, int to, int tag, void* comm, void** request) {
  CHECK_COUNT(count);
  return MPI_Isend(buffer, (int)count, type_of(type), to, tag, comm_of(comm), (MPI_Request*)request);
}
EXPORT int abi_MPI_Irecv_c(void* buffer, int64_t count, void* type, int source, int tag, void* comm, void** request) {
  CHECK_COUNT(count);
  return MPI_Irecv(buffer, (int)count, type_of(type), source < 0 ? MPI_ANY_SOURCE : source, tag, comm_of(comm),
                   (MPI_Request*)request);
}
