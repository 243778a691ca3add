#pragma once

#include "common/base/result.h"
#include "runtime-wrapper/context.h"
#include "runtime-wrapper/next_runtime.h"

namespace vgpu::runtime {

// `start`: puts the limiter in the driver's place in a GPU container, then hands over. A GPU
// container whose state is gone is refused; one that was never ours goes on.
Result<NextRuntime> start(const Context& context);

// `exec`: refused for a GPU container that has not been through `start`, because its driver is
// still the bare one.
Result<NextRuntime> exec_into(const Context& context);

// `delete`: first removes what we made for a container that the low-level runtime does not know
// (any more).
Result<NextRuntime> remove(const Context& context);

// Every other command.
Result<NextRuntime> forward(const Context& context);

}  // namespace vgpu::runtime
