#include "test/fakes/nvidia/cuda/driver.h"

namespace vgpu::sim {

void unload_modules(CUctx_st* context) {
  Driver& me = driver();
  for (CUmod_st* module : me.modules) {
    if (!module->alive || module->context != context)
      continue;
    module->alive = false;
    me.state->uncharge(find_device(context->device)->card, Kind::kModule, module->charged);
  }
}

void destroy_streams(CUctx_st* /*context*/) {}

}  // namespace vgpu::sim
