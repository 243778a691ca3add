#include "runtime-wrapper/run.h"

int main(int argc, char** argv) {
  return vgpu::runtime::run(argc, argv);
}
