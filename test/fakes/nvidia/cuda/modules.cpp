#include <cstring>

#include "test/fakes/nvidia/cuda/timeline.h"

// Any image is accepted, and holds a function of every name. "sleep_us" takes one uint64_t, the
// microseconds it runs; "wait_word" takes a host pointer to a 32-bit word and runs until that is
// not zero; all others take no time.
namespace vgpu::sim {
namespace {

std::set<CUfunc_st*>& functions() {
  static auto* instance = new std::set<CUfunc_st*>;
  return *instance;
}

CUresult load(CUmodule* module, const void* image) {
  if (module == nullptr || image == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  CUctx_st* context = nullptr;
  CUresult result = current_context(&context);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t bytes = driver().state->file().options.module_bytes;
  if (!driver().state->charge(find_device(context->device)->card, Kind::kModule, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *module = new CUmod_st{.context = context, .alive = true, .charged = bytes};
  driver().modules.insert(*module);
  return CUDA_SUCCESS;
}

void unload(CUmod_st* module) {
  module->alive = false;
  driver().state->uncharge(find_device(module->context->device)->card, Kind::kModule,
                           module->charged);
}

void spin(uint64_t ns) {
  uint64_t end = now_ns() + ns;
  while (ns != 0 && now_ns() < end) {
  }
}

// The kernel's only parameter, 64 bits.
bool parameter(void** parameters, uint64_t* value) {
  if (parameters == nullptr || parameters[0] == nullptr)
    return false;
  memcpy(value, parameters[0], sizeof *value);
  return true;
}

struct Shape {
  unsigned grid[3];
  unsigned block[3];

  bool is_possible() const {
    uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
    return grid[0] != 0 && grid[1] != 0 && grid[2] != 0 && threads != 0 && threads <= 1024;
  }
};

CUresult launch(CUfunction function, const Shape& shape, CUstream handle, void** parameters,
                void** extra, bool per_thread) {
  std::unique_lock<std::mutex> lock(driver().lock);
  const Options& options = driver().state->file().options;
  if (!functions().contains(function) || !function->module->alive)
    return CUDA_ERROR_INVALID_HANDLE;
  uint64_t value = 0;
  if (!shape.is_possible() || (parameters != nullptr && extra != nullptr) ||
      (function->work != CUfunc_st::Work::kNone && !parameter(parameters, &value)))
    return CUDA_ERROR_INVALID_VALUE;
  CUstream_st* stream = nullptr;
  CUresult result = find_stream(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  spin(options.launch_cost_ns);
  advance(*stream, now_ns());
  while (options.queue_depth != 0 && stream->queue.size() >= options.queue_depth) {
    uint64_t next = next_look(*stream, now_ns());
    lock.unlock();
    sleep_until(next);
    lock.lock();
    if (!stream->alive)
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    advance(*stream, now_ns());
  }
  if (function->work == CUfunc_st::Work::kWaitWord)
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel's parameter is the address
    enqueue_wait(*stream, reinterpret_cast<const volatile uint32_t*>(value));
  else
    enqueue_kernel(*stream, value * 1000);
  return CUDA_SUCCESS;
}

}  // namespace

void unload_modules(CUctx_st* context) {
  for (CUmod_st* module : driver().modules)
    if (module->alive && module->context == context)
      unload(module);
}

}  // namespace vgpu::sim

using vgpu::sim::driver;

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  SIM_ENTER(cuModuleLoadData);
  return vgpu::sim::load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int /*optionCount*/,
                            int* /*options*/, void** /*values*/) {
  SIM_ENTER(cuModuleLoadDataEx);
  return vgpu::sim::load(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  SIM_ENTER(cuModuleUnload);
  SIM_LOCK();
  if (!driver().modules.contains(module) || !module->alive)
    return CUDA_ERROR_INVALID_HANDLE;
  vgpu::sim::unload(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  SIM_ENTER(cuModuleGetFunction);
  if (function == nullptr || name == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  if (!driver().modules.contains(module) || !module->alive)
    return CUDA_ERROR_INVALID_HANDLE;
  if (*name == '\0')
    return CUDA_ERROR_NOT_FOUND;
  auto work = CUfunc_st::Work::kNone;
  if (strcmp(name, "sleep_us") == 0)
    work = CUfunc_st::Work::kSleep;
  else if (strcmp(name, "wait_word") == 0)
    work = CUfunc_st::Work::kWaitWord;
  *function = new CUfunc_st{.work = work, .module = module};
  vgpu::sim::functions().insert(*function);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gridX, unsigned int gridY,
                        unsigned int gridZ, unsigned int blockX, unsigned int blockY,
                        unsigned int blockZ, unsigned int /*sharedBytes*/, CUstream stream,
                        void** parameters, void** extra) {
  SIM_ENTER(cuLaunchKernel);
  return vgpu::sim::launch(function, {{gridX, gridY, gridZ}, {blockX, blockY, blockZ}}, stream,
                           parameters, extra, false);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int gridX, unsigned int gridY,
                             unsigned int gridZ, unsigned int blockX, unsigned int blockY,
                             unsigned int blockZ, unsigned int /*sharedBytes*/, CUstream stream,
                             void** parameters, void** extra) {
  SIM_ENTER(cuLaunchKernel_ptsz);
  return vgpu::sim::launch(function, {{gridX, gridY, gridZ}, {blockX, blockY, blockZ}}, stream,
                           parameters, extra, true);
}

}  // extern "C"
