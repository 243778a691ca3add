#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "test/fakes/nvidia/nvml/nvml.h"
#include "test/fakes/nvidia/state/visible.h"

namespace vgpu::sim {

// Never destroyed: programs call NVML from their own destructors.
Nvml& nvml() {
  static auto* instance = new Nvml;
  return *instance;
}

nvmlReturn_t enter(const char* function) {
  Nvml& me = nvml();
  const std::lock_guard<std::mutex> guard(me.lock);
  if (me.uses == 0)
    return NVML_ERROR_UNINITIALIZED;
  if (me.state->file().rule_count == 0)
    return NVML_SUCCESS;
  return static_cast<nvmlReturn_t>(me.state->apply_rules(function));
}

// What a function without code of its own does.
int enter_stub(const char* function);
int enter_stub(const char* function) {
  nvmlReturn_t entered = enter(function);
  return entered != NVML_SUCCESS ? entered : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t put_text(const char* text, char* out, unsigned length) {
  if (out == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(text) + 1 > length)
    return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text, strlen(text) + 1);
  return NVML_SUCCESS;
}

namespace {

nvmlReturn_t initialize() {
  Nvml& me = nvml();
  const std::lock_guard<std::mutex> guard(me.lock);
  if (me.state == nullptr)
    me.state = State::open(State::default_path());
  if (me.state == nullptr)
    return NVML_ERROR_DRIVER_NOT_LOADED;
  if (int result = me.state->apply_rules("nvmlInitWithFlags"); result != 0)
    return static_cast<nvmlReturn_t>(result);
  if (me.uses == 0) {
    me.devices.clear();
    for (unsigned card : visible_cards(*me.state))
      me.devices.push_back(new nvmlDevice_st{card});
  }
  ++me.uses;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

extern "C" {

nvmlReturn_t nvmlInit(void) {
  return nvmlInit_v2();
}

nvmlReturn_t nvmlInit_v2(void) {
  return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int /*flags*/) {
  return vgpu::sim::initialize();
}

nvmlReturn_t nvmlShutdown(void) {
  SIM_ENTER(nvmlShutdown);
  const std::lock_guard<std::mutex> guard(vgpu::sim::nvml().lock);
  --vgpu::sim::nvml().uses;
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t result) {
  static const struct {
    nvmlReturn_t result;
    const char* text;
  } table[] = {
      {NVML_SUCCESS, "Success"},
      {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
      {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
      {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
      {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
      {NVML_ERROR_NOT_FOUND, "Not Found"},
      {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
      {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
      {NVML_ERROR_TIMEOUT, "Timeout"},
      {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
      {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
      {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
      {NVML_ERROR_NO_DATA, "No data"},
      {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
  };
  for (const auto& row : table)
    if (row.result == result)
      return row.text;
  return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  SIM_ENTER(nvmlSystemGetDriverVersion);
  return vgpu::sim::put_text(vgpu::sim::nvml().state->file().options.driver_version, version,
                             length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  SIM_ENTER(nvmlSystemGetNVMLVersion);
  char text[64] = "13.";
  strncat(text, vgpu::sim::nvml().state->file().options.driver_version, sizeof text - 4);
  return vgpu::sim::put_text(text, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

// The real one loads the CUDA driver to ask it, and so does this.
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  SIM_ENTER(nvmlSystemGetCudaDriverVersion_v2);
  if (version == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cuda == nullptr)
    return NVML_ERROR_LIBRARY_NOT_FOUND;
  auto ask = reinterpret_cast<int (*)(int*)>(dlsym(cuda, "cuDriverGetVersion"));
  nvmlReturn_t result = NVML_ERROR_FUNCTION_NOT_FOUND;
  if (ask != nullptr)
    result = ask(version) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
  dlclose(cuda);
  return result;
}

}  // extern "C"
