#pragma once

#include "common/base/result.h"
#include "runtime-wrapper/context.h"
#include "runtime-wrapper/next_runtime.h"

namespace vgpu::runtime {

// `create` and `run`: looks whether the container wants a GPU; if so, verifies its allocation,
// makes its files and edits its specification. A container without a wish goes on with its
// specification untouched, whatever is broken here.
Result<NextRuntime> create(const Context& context);

}  // namespace vgpu::runtime
