/* A client of the driver, steered by its arguments, for tests inside and outside containers. Needs libc alone.
 *
 * usage: cuda_client OP...
 * Each op runs in order and prints one JSON line {"op":…,"rc":…}; rc is the driver's own code.
 *
 *   open=soname               how to find the driver, first op, "soname" when missing; others: plain (libcuda.so),
 *                             absolute:PATH, global, deepbind, dlmopen, linked (only in cuda_client_linked)
 *   via=getproc               take every later function from cuGetProcAddress_v2 instead of dlsym
 *   init count device=N uuid  cuInit (implied by the first op that needs it), cuDeviceGetCount, choose device N
 *   ctx ctxcreate             retain the primary context, or create one, and make it current
 *   release reset ctxdestroy
 *   alloc=SIZE pitch=WIDTH,ROWS    SIZE: bytes, or with K, M, G (binary)
 *   fill=SIZE                 allocate pieces of SIZE until refused; prints how many and the last rc
 *   free=K freeptr=0xADDRESS  free the K-th allocation (from 0), or any address
 *   meminfo total             cuMemGetInfo_v2 and cuMemGetInfo, cuDeviceTotalMem_v2 and cuDeviceTotalMem
 *   nvml                      NVML's memory info v1 and v2 of the same device, found by UUID
 *   nvmlview                  the same without CUDA: every device by index
 *   getproc=NAME,VERSION,FLAGS     which object and symbol cuGetProcAddress_v2 answers with
 *   dlsym=NAME                which object and symbol dlsym answers with
 *   maps=WORD                 lines of /proc/self/maps that contain WORD
 *   reopen                    dlclose, then open again
 *   closefds                  close every descriptor from 3 up
 *   errno                     is errno as it was before an allocation that is refused?
 *   fork                      the child does the remaining ops, the parent waits for it and ends
 *   spawn                     the child does the remaining ops, the parent waits for it and then does them too
 *   exec                      the remaining ops in a fresh image of this program
 *   race=N,SIZE               N children, each with a context, take pieces of SIZE until refused, all at once; they let go
 *                             when the last has been refused
 *   threads=N,SIZE,ROUNDS     N threads allocate and free SIZE, ROUNDS times each
 *   churn=SIZE                allocate and free for ever
 *   ready=FILE hold=FILE      create FILE; wait until FILE exists
 *   usr1                      wait for SIGUSR1
 *
 * exit status: 0 all ops were done (whatever their rc), 1 no driver, 2 wrong usage.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/limiter/cuda_abi.h"
#include "api/limiter/nvml_abi.h"

/* name, name for cuGetProcAddress, version for cuGetProcAddress */
#define FUNCTIONS(X)                                                  \
  X(cuInit, "cuInit", 2000)                                           \
  X(cuGetErrorName, "cuGetErrorName", 6000)                           \
  X(cuDeviceGet, "cuDeviceGet", 2000)                                 \
  X(cuDeviceGetCount, "cuDeviceGetCount", 2000)                       \
  X(cuDeviceGetUuid, "cuDeviceGetUuid", 9020)                         \
  X(cuDeviceTotalMem, "cuDeviceTotalMem", 2000)                       \
  X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020)                    \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)       \
  X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000) \
  X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000)     \
  X(cuCtxCreate_v2, "cuCtxCreate", 3020)                              \
  X(cuCtxDestroy_v2, "cuCtxDestroy", 4000)                            \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000)                         \
  X(cuMemGetInfo, "cuMemGetInfo", 2000)                               \
  X(cuMemGetInfo_v2, "cuMemGetInfo", 3020)                            \
  X(cuMemAlloc_v2, "cuMemAlloc", 3020)                                \
  X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020)                      \
  X(cuMemFree_v2, "cuMemFree", 3020)                                  \
  X(cuGetProcAddress_v2, "cuGetProcAddress", 12000)

#define MEMBER(name, api, version) __typeof__(&name) name;
static struct { FUNCTIONS(MEMBER) } driver;

#define MAX_ALLOCATIONS 65536
static CUdeviceptr allocations[MAX_ALLOCATIONS];
static int allocation_count;
static void* library;
static const char* open_mode = "soname";
static bool started;
static CUdevice device;
static CUcontext context;

static void die(int status, const char* what, const char* detail) {
  printf("{\"op\":\"error\",\"text\":\"%s: %s\"}\n", what, detail ? detail : "");
  fflush(stdout);
  _exit(status);
}

static const char* name_of(CUresult rc) {
  const char* name = NULL;
  return driver.cuGetErrorName && driver.cuGetErrorName(rc, &name) == CUDA_SUCCESS && name ? name
                                                                                           : "";
}

static void report(const char* op, CUresult rc) {
  printf("{\"op\":\"%s\",\"rc\":%d,\"name\":\"%s\"}\n", op, (int)rc, name_of(rc));
}

static size_t size_of(const char* text) {
  char* end = NULL;
  const unsigned long long value = strtoull(text, &end, 0);
  switch (*end) {
    case 'K':
      return (size_t)value << 10;
    case 'M':
      return (size_t)value << 20;
    case 'G':
      return (size_t)value << 30;
    default:
      return (size_t)value;
  }
}

static const char* after(const char* text, char mark, int count) {
  while (text && count-- > 0) {
    text = strchr(text, mark);
    text = text ? text + 1 : NULL;
  }
  return text;
}

/* Opens library `soname` (also known as `plain`) the way `open_mode` says. */
static void* open_by_mode(const char* soname, const char* plain) {
  const char* path = after(open_mode, ':', 1);
  if (strncmp(open_mode, "absolute", 8) == 0) {
    return dlopen(path ? path : soname, RTLD_NOW);
  }
  if (strcmp(open_mode, "plain") == 0) {
    return dlopen(plain, RTLD_LAZY);
  }
  if (strcmp(open_mode, "global") == 0) {
    return dlopen(soname, RTLD_NOW | RTLD_GLOBAL);
  }
  if (strcmp(open_mode, "deepbind") == 0) {
    return dlopen(soname, RTLD_NOW | RTLD_DEEPBIND);
  }
  if (strcmp(open_mode, "dlmopen") == 0) {
    return dlmopen(LM_ID_NEWLM, soname, RTLD_NOW);
  }
  return dlopen(soname, RTLD_NOW);
}

static void load(void) {
#ifdef CLIENT_LINKED
#define TAKE(name, api, version) driver.name = &name;
  if (strcmp(open_mode, "linked") == 0) {
    FUNCTIONS(TAKE)
    library = dlopen("libcuda.so.1", RTLD_NOW);
    return;
  }
#endif
  library = open_by_mode("libcuda.so.1", "libcuda.so");
  if (!library) {
    die(1, "dlopen", dlerror());
  }
#define FIND(name, api, version) *(void**)&driver.name = dlsym(library, #name);
  FUNCTIONS(FIND)
}

static void use_getproc(void) {
#define ASK(name, api, version)                                                                \
  if (strcmp(#name, "cuGetProcAddress_v2") != 0) {                                             \
    void* found = NULL;                                                                        \
    (void)driver.cuGetProcAddress_v2(api, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL); \
    *(void**)&driver.name = found;                                                             \
  }
  FUNCTIONS(ASK)
}

static void start(void) {
  if (!driver.cuInit && !library) {
    load();
  }
  if (!started) {
    const CUresult rc = driver.cuInit ? driver.cuInit(0) : CUDA_ERROR_NOT_FOUND;
    started = true;
    if (rc != CUDA_SUCCESS) {
      report("init", rc);
    }
  }
}

static CUresult use_primary(void) {
  CUresult rc = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (rc == CUDA_SUCCESS) {
    rc = driver.cuCtxSetCurrent(context);
  }
  return rc;
}

static CUresult take(size_t bytes) {
  CUdeviceptr pointer = 0;
  const CUresult rc = driver.cuMemAlloc_v2(&pointer, bytes);
  if (rc == CUDA_SUCCESS && allocation_count < MAX_ALLOCATIONS) {
    allocations[allocation_count++] = pointer;
  }
  return rc;
}

static CUresult fill(size_t piece, int* count) {
  CUresult rc = CUDA_SUCCESS;
  *count = 0;
  while (allocation_count < MAX_ALLOCATIONS && (rc = take(piece)) == CUDA_SUCCESS) {
    ++*count;
  }
  return rc;
}

static void print_origin(const char* op, const char* name, void* address, int rc, int status) {
  Dl_info info = {0};
  if (address) {
    (void)dladdr(address, &info);
  }
  printf(
      "{\"op\":\"%s\",\"symbol\":\"%s\",\"rc\":%d,\"status\":%d,\"found\":%s,\"object\":\"%s\","
      "\"means\":\"%s\"}\n",
      op, name, rc, status, address ? "true" : "false", info.dli_fname ? info.dli_fname : "",
      info.dli_sname ? info.dli_sname : "");
}

static void get_proc(char* argument) {
  char* version = strchr(argument, ',');
  char* flags = version ? strchr(version + 1, ',') : NULL;
  if (!version || !flags) {
    die(2, "getproc", argument);
  }
  *version++ = '\0';
  *flags++ = '\0';
  void* found = NULL;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult rc = driver.cuGetProcAddress_v2(argument, &found, atoi(version),
                                                 strtoull(flags, NULL, 0), &status);
  print_origin("getproc", argument, found, (int)rc, (int)status);
}

static void show_memory(void) {
  size_t free_bytes = 0;
  size_t total = 0;
  unsigned int old_free = 0;
  unsigned int old_total = 0;
  const CUresult rc = driver.cuMemGetInfo_v2(&free_bytes, &total);
  const CUresult old =
      driver.cuMemGetInfo ? driver.cuMemGetInfo(&old_free, &old_total) : CUDA_ERROR_NOT_FOUND;
  printf(
      "{\"op\":\"meminfo\",\"rc\":%d,\"name\":\"%s\",\"free\":%zu,\"total\":%zu,\"old_rc\":%d,"
      "\"old_free\":%u,\"old_total\":%u}\n",
      (int)rc, name_of(rc), free_bytes, total, (int)old, old_free, old_total);
}

static void show_total(void) {
  size_t total = 0;
  unsigned int old_total = 0;
  const CUresult rc = driver.cuDeviceTotalMem_v2(&total, device);
  const CUresult old =
      driver.cuDeviceTotalMem ? driver.cuDeviceTotalMem(&old_total, device) : CUDA_ERROR_NOT_FOUND;
  printf(
      "{\"op\":\"total\",\"rc\":%d,\"name\":\"%s\",\"total\":%zu,\"old_rc\":%d,\"old_total\":%u}\n",
      (int)rc, name_of(rc), total, (int)old, old_total);
}

static void uuid_text(char* text, size_t size) {
  CUuuid uuid = {{0}};
  (void)driver.cuDeviceGetUuid(&uuid, device);
  const unsigned char* b = (const unsigned char*)uuid.bytes;
  (void)snprintf(text, size,
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                 b[14], b[15]);
}

struct nvml {
  void* library;
  __typeof__(&nvmlInit_v2) init;
  __typeof__(&nvmlDeviceGetCount_v2) count;
  __typeof__(&nvmlDeviceGetHandleByIndex_v2) by_index;
  __typeof__(&nvmlDeviceGetHandleByUUID) by_uuid;
  __typeof__(&nvmlDeviceGetUUID) uuid;
  __typeof__(&nvmlDeviceGetMemoryInfo) memory;
  __typeof__(&nvmlDeviceGetMemoryInfo_v2) memory_v2;
};

static struct nvml* nvml(void) {
  static struct nvml n;
  if (!n.library) {
    n.library = strncmp(open_mode, "absolute", 8) == 0
                    ? dlopen("libnvidia-ml.so.1", RTLD_NOW)
                    : open_by_mode("libnvidia-ml.so.1", "libnvidia-ml.so");
    if (!n.library) {
      die(1, "dlopen", dlerror());
    }
    *(void**)&n.init = dlsym(n.library, "nvmlInit_v2");
    *(void**)&n.count = dlsym(n.library, "nvmlDeviceGetCount_v2");
    *(void**)&n.by_index = dlsym(n.library, "nvmlDeviceGetHandleByIndex_v2");
    *(void**)&n.by_uuid = dlsym(n.library, "nvmlDeviceGetHandleByUUID");
    *(void**)&n.uuid = dlsym(n.library, "nvmlDeviceGetUUID");
    *(void**)&n.memory = dlsym(n.library, "nvmlDeviceGetMemoryInfo");
    *(void**)&n.memory_v2 = dlsym(n.library, "nvmlDeviceGetMemoryInfo_v2");
    (void)n.init();
  }
  return &n;
}

static void show_nvml(struct nvml* n, nvmlDevice_t handle) {
  char uuid[96] = "";
  nvmlMemory_t v1 = {0};
  nvmlMemory_v2_t v2 = {0};
  nvmlMemory_v2_t wrong = {0};
  v2.version = NVML_MEMORY_V2;
  wrong.version = 1;
  (void)n->uuid(handle, uuid, sizeof uuid);
  const nvmlReturn_t rc = n->memory(handle, &v1);
  const nvmlReturn_t rc2 = n->memory_v2 ? n->memory_v2(handle, &v2) : NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t rc3 =
      n->memory_v2 ? n->memory_v2(handle, &wrong) : NVML_ERROR_FUNCTION_NOT_FOUND;
  printf(
      "{\"op\":\"nvml\",\"uuid\":\"%s\",\"rc\":%d,\"total\":%llu,\"free\":%llu,\"used\":%llu,\"rc_"
      "v2\":%d,\"total_v2\":%llu,"
      "\"free_v2\":%llu,\"used_v2\":%llu,\"reserved_v2\":%llu,\"rc_wrong_version\":%d}\n",
      uuid, (int)rc, v1.total, v1.free, v1.used, (int)rc2, v2.total, v2.free, v2.used, v2.reserved,
      (int)rc3);
}

static void nvml_op(bool all) {
  struct nvml* n = nvml();
  nvmlDevice_t handle = NULL;
  if (!all) {
    char uuid[64];
    uuid_text(uuid, sizeof uuid);
    const nvmlReturn_t rc = n->by_uuid(uuid, &handle);
    if (rc != NVML_SUCCESS) {
      printf("{\"op\":\"nvml\",\"rc\":%d}\n", (int)rc);
      return;
    }
    show_nvml(n, handle);
    return;
  }
  unsigned int count = 0;
  (void)n->count(&count);
  for (unsigned int i = 0; i < count; ++i) {
    if (n->by_index(i, &handle) == NVML_SUCCESS) {
      show_nvml(n, handle);
    }
  }
}

static void count_maps(const char* word) {
  FILE* maps = fopen("/proc/self/maps", "re");
  char line[4096];
  int count = 0;
  while (maps && fgets(line, sizeof line, maps)) {
    count += strstr(line, word) != NULL;
  }
  if (maps) {
    (void)fclose(maps);
  }
  printf("{\"op\":\"maps\",\"word\":\"%s\",\"count\":%d}\n", word, count);
}

static void wait_for(const char* file) {
  while (access(file, F_OK) != 0) {
    (void)usleep(2000);
  }
}

/* All children start together and let go together, so that what they hold at the end is held at one
 * moment. */
static void race(int count, size_t piece) {
  struct shared {
    int ready;
    int refused;
    int pieces[256];
    int rc[256];
  }* shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || count < 1 || count > 256) {
    die(2, "race", "children: 1..256");
  }
  (void)fflush(stdout);
  for (int i = 0; i < count; ++i) {
    if (fork() == 0) {
      start();
      CUresult rc = use_primary();
      (void)__atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < count) {
        (void)usleep(100);
      }
      if (rc == CUDA_SUCCESS) {
        rc = fill(piece, &shared->pieces[i]);
      }
      shared->rc[i] = (int)rc;
      (void)__atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(&shared->refused, __ATOMIC_SEQ_CST) < count) {
        (void)usleep(100);
      }
      _exit(0);
    }
  }
  long long pieces = 0;
  int oom = 0;
  int other = 0;
  for (int i = 0; i < count; ++i) {
    (void)wait(NULL);
  }
  for (int i = 0; i < count; ++i) {
    pieces += shared->pieces[i];
    oom += shared->rc[i] == CUDA_ERROR_OUT_OF_MEMORY;
    other += shared->rc[i] != CUDA_ERROR_OUT_OF_MEMORY;
  }
  printf(
      "{\"op\":\"race\",\"children\":%d,\"refused_at_limit\":%d,\"other_ends\":%d,\"pieces\":%lld,"
      "\"bytes\":%lld}\n",
      count, oom, other, pieces, pieces * (long long)piece);
}

struct churn_plan {
  size_t piece;
  int rounds;
  int failures;
};

static void* churn_thread(void* argument) {
  struct churn_plan* plan = argument;
  (void)driver.cuCtxSetCurrent(context);
  for (int i = 0; i < plan->rounds; ++i) {
    CUdeviceptr pointer = 0;
    if (driver.cuMemAlloc_v2(&pointer, plan->piece) != CUDA_SUCCESS ||
        driver.cuMemFree_v2(pointer) != CUDA_SUCCESS) {
      plan->failures++;
    }
  }
  return NULL;
}

static void threads(int count, size_t piece, int rounds) {
  pthread_t ids[64];
  struct churn_plan plans[64];
  int failures = 0;
  count = count > 64 ? 64 : count;
  for (int i = 0; i < count; ++i) {
    plans[i] = (struct churn_plan){piece, rounds, 0};
    (void)pthread_create(&ids[i], NULL, churn_thread, &plans[i]);
  }
  for (int i = 0; i < count; ++i) {
    (void)pthread_join(ids[i], NULL);
    failures += plans[i].failures;
  }
  printf("{\"op\":\"threads\",\"failures\":%d}\n", failures);
}

static void check_errno(void) {
  CUdeviceptr pointer = 0;
  errno = 77;
  const CUresult rc = driver.cuMemAlloc_v2(&pointer, (size_t)1 << 50);
  printf("{\"op\":\"errno\",\"rc\":%d,\"kept\":%s}\n", (int)rc, errno == 77 ? "true" : "false");
}

static void reopen(void) {
  const int closed = dlclose(library);
  memset(&driver, 0, sizeof driver);
  load();
  printf("{\"op\":\"reopen\",\"rc\":%d}\n", closed);
}

static void close_descriptors(void) {
  for (int fd = 3; fd < 1024; ++fd) {
    (void)close(fd);
  }
  printf("{\"op\":\"closefds\",\"rc\":0}\n");
}

static void wait_child(pid_t child) {
  int status = 0;
  (void)waitpid(child, &status, 0);
  printf("{\"op\":\"child\",\"status\":%d}\n", status);
  (void)fflush(stdout);
}

static bool is(const char* op, const char* name) {
  return strcmp(op, name) == 0;
}

/* The ops that look and wait; false when `op` is none of them. */
static bool plain_op(const char* op, char* argument, char** all, int i) {
  if (is(op, "via")) {
    use_getproc();
  } else if (is(op, "rawalloc")) {
    report(op, take(512));
  } else if (is(op, "getproc")) {
    get_proc(argument);
  } else if (is(op, "dlsym")) {
    print_origin("dlsym", argument, dlsym(library, argument), 0, 0);
  } else if (is(op, "maps")) {
    count_maps(argument);
  } else if (is(op, "reopen")) {
    reopen();
  } else if (is(op, "closefds")) {
    close_descriptors();
  } else if (is(op, "ready")) {
    (void)close(open(argument, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
  } else if (is(op, "hold")) {
    wait_for(argument);
  } else if (is(op, "fork") || is(op, "spawn")) {
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child != 0) {
      wait_child(child);
      if (is(op, "fork")) {
        _exit(0);
      }
    }
  } else if (is(op, "exec")) {
    (void)fflush(stdout);
    all[i] = all[0];
    (void)execv("/proc/self/exe", all + i);
    die(1, "exec", strerror(errno));
  } else if (is(op, "usr1")) {
    sigset_t set;
    int number = 0;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)sigwait(&set, &number);
  } else {
    return false;
  }
  return true;
}

/* The ops that ask the driver for something; false when `op` is none of them. */
static bool driver_op(const char* op, const char* argument) {
  start();
  if (is(op, "init")) {
    report(op, CUDA_SUCCESS);
  } else if (is(op, "count")) {
    int count = -1;
    const CUresult rc = driver.cuDeviceGetCount(&count);
    printf("{\"op\":\"count\",\"rc\":%d,\"count\":%d}\n", (int)rc, count);
  } else if (is(op, "device")) {
    report(op, driver.cuDeviceGet(&device, atoi(argument)));
  } else if (is(op, "uuid")) {
    char uuid[64];
    uuid_text(uuid, sizeof uuid);
    printf("{\"op\":\"uuid\",\"uuid\":\"%s\"}\n", uuid);
  } else if (is(op, "ctx")) {
    report(op, use_primary());
  } else if (is(op, "ctxcreate")) {
    report(op, driver.cuCtxCreate_v2(&context, 0, device));
  } else if (is(op, "ctxdestroy")) {
    report(op, driver.cuCtxDestroy_v2(context));
  } else if (is(op, "release")) {
    report(op, driver.cuDevicePrimaryCtxRelease_v2(device));
  } else if (is(op, "reset")) {
    report(op, driver.cuDevicePrimaryCtxReset_v2(device));
  } else if (is(op, "alloc")) {
    const CUresult rc = take(size_of(argument));
    printf("{\"op\":\"alloc\",\"bytes\":%zu,\"rc\":%d,\"name\":\"%s\"}\n", size_of(argument),
           (int)rc, name_of(rc));
  } else if (is(op, "fill")) {
    int count = 0;
    const CUresult rc = fill(size_of(argument), &count);
    printf("{\"op\":\"fill\",\"count\":%d,\"bytes\":%zu,\"rc\":%d}\n", count,
           (size_t)count * size_of(argument), (int)rc);
  } else if (is(op, "pitch")) {
    size_t pitch = 0;
    CUdeviceptr pointer = 0;
    const char* rows = after(argument, ',', 1);
    const CUresult rc = driver.cuMemAllocPitch_v2(&pointer, &pitch, size_of(argument),
                                                  size_of(rows ? rows : "1"), 4);
    if (rc == CUDA_SUCCESS && allocation_count < MAX_ALLOCATIONS) {
      allocations[allocation_count++] = pointer;
    }
    printf("{\"op\":\"pitch\",\"rc\":%d,\"pitch\":%zu}\n", (int)rc, pitch);
  } else if (is(op, "free")) {
    const int index = atoi(argument);
    report(op,
           driver.cuMemFree_v2(index >= 0 && index < allocation_count ? allocations[index] : 0));
  } else if (is(op, "freeptr")) {
    report(op, driver.cuMemFree_v2(strtoull(argument, NULL, 0)));
  } else if (is(op, "meminfo")) {
    show_memory();
  } else if (is(op, "total")) {
    show_total();
  } else if (is(op, "nvml")) {
    nvml_op(false);
  } else if (is(op, "errno")) {
    check_errno();
  } else if (is(op, "threads")) {
    const char* piece = after(argument, ',', 1);
    const char* rounds = after(argument, ',', 2);
    threads(atoi(argument), size_of(piece ? piece : "1M"), atoi(rounds ? rounds : "100"));
  } else if (is(op, "churn")) {
    struct churn_plan plan = {size_of(argument), 1000, 0};
    while (churn_thread(&plan) == NULL) {
    }
  } else {
    return false;
  }
  return true;
}

int main(int argc, char** argv) {
  int i = 1;
  if (argc > 1 && strncmp(argv[1], "open=", 5) == 0) {
    open_mode = argv[1] + 5;
    i = 2;
  }
  for (; i < argc; ++i) {
    char op[64];
    char empty[1] = "";
    char* argument = strchr(argv[i], '=');
    (void)snprintf(op, sizeof op, "%.*s",
                   (int)(argument ? argument - argv[i] : (long)strlen(argv[i])), argv[i]);
    argument = argument ? argument + 1 : empty;
    if (is(op, "nvmlview")) {
      nvml_op(true);
    } else if (is(op, "race")) {
      const char* piece = strchr(argument, ',');
      race(atoi(argument), size_of(piece ? piece + 1 : "64K"));
    } else {
      if (!library && !is(op, "maps") && !is(op, "hold") && !is(op, "ready")) {
        load();
      }
      if (!plain_op(op, argument, argv, i) && !driver_op(op, argument)) {
        die(2, "unknown op", argv[i]);
      }
    }
    (void)fflush(stdout);
  }
  return 0;
}
