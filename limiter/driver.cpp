// Finds the driver's own library: the file in our slot, which the loader has loaded as our
// dependency. Compiled once per variant.
#include <dlfcn.h>

#include "limiter/hook.h"

namespace {

void* driver = nullptr;

void* find(const char* name) {
  return dlsym(driver, name);
}

// Here and not at the first call, which may come while the loader's lock is held. Cheap: programs
// that only use NVML load our CUDA library too.
[[gnu::constructor]] void begin() {
  driver = dlopen(VGPU_DRIVER_FILE, RTLD_NOW | RTLD_NOLOAD);
  if (driver != nullptr) {
    vgpu::limiter::bind(find);
  }
}

}  // namespace
