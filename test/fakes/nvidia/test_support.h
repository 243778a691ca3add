#pragma once

#include <dlfcn.h>
#include <sys/types.h>

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "api/limiter/cuda_abi.h"
#include "api/limiter/nvml_abi.h"
#include "test/fakes/nvidia/state/state.h"

// What the tests of the simulated driver share. A driver library keeps its state for the life of a
// process, so every test uses it in child processes, on a state file of its own.
namespace vgpu::sim::test {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// One node: a temporary directory with a state file, made from a scenario. `NVIDIA_SIM_STATE` names
// it for the test's children.
class Node {
 public:
  // Two cards of 1024 MiB, nothing reserved, device nodes ignored, then `extra` in front of the
  // cards.
  explicit Node(const std::string& extra = "");
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  State& state() { return *state_; }
  nlohmann::json ledger();
  uint64_t used(unsigned card) { return ledger()["cards"][card]["used"]; }
  // Looks at the ledger until `claim` holds; false when it did not within ten seconds.
  bool eventually(const std::function<bool(const nlohmann::json&)>& claim);

 private:
  std::string directory_;
  State* state_;
};

// A driver library, opened in a child. `flavour` is a directory of the build tree.
class Library {
 public:
  explicit Library(const std::string& flavour = "driver", const std::string& file = "libcuda.so.1");
  void* symbol(const char* name) const { return dlsym(handle_, name); }

 private:
  void* handle_;
};
#define CALL(library, function) reinterpret_cast<decltype(&function)>((library).symbol(#function))

// Runs `body` in a child process and waits; expectations that fail there fail the test.
void in_child(const std::function<void()>& body);

// A child that lives until it is ended. The constructor returns once `body` has called its
// argument, `ready`.
class Child {
 public:
  explicit Child(const std::function<void(const std::function<void()>& ready)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void kill();

 private:
  pid_t pid_ = -1;
};

// For this process and its children; an empty value is as good as none.
void set_environment(const char* name, const char* value);

// The usual start: cuInit and a context on a card.
CUcontext start(const Library& cuda, CUdevice device = 0);

// True when a need is not met and the test must skip; a failure instead where VGPU_REQUIRE names
// the need.
bool missing(const char* need, bool is_met);

}  // namespace vgpu::sim::test
