#pragma once

namespace vgpu::runtime {

// Everything vgpu-runtime does. Returns only on failure, with the exit status: 1, or 127 if there
// is no runtime to start.
int run(int argc, char** argv);

}  // namespace vgpu::runtime
