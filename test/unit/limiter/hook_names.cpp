// Prints the names in the table of hooks, for the test that compares them with what the libraries
// export.
#include <cstdio>

#include "limiter/hook.h"

int main() {
  for (const vgpu::limiter::HookRow* row = vgpu::limiter::hooks_begin();
       row != vgpu::limiter::hooks_end(); ++row) {
    if (row->hook != nullptr) {
      std::puts(row->name);
    }
  }
  return 0;
}
