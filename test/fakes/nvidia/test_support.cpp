#include "test/fakes/nvidia/test_support.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "test/fakes/nvidia/tool/ledger.h"
#include "test/fakes/nvidia/tool/scenario.h"

namespace vgpu::sim::test {
namespace {

constexpr char kCards[] = R"(
[[gpu]]
name = "Simulated 0"
uuid = "GPU-00000000-1111-2222-3333-444444444444"
pci_bus_id = "00000000:3B:00.0"
memory_mib = 1024
[[gpu]]
name = "Simulated 1"
uuid = "GPU-55555555-6666-7777-8888-999999999999"
pci_bus_id = "00000000:AF:00.0"
memory_mib = 1024
)";

std::string make_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "nvidia-sim-XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

}  // namespace

Node::Node(const std::string& extra) : directory_(make_directory()) {
  std::string scenario = directory_ + "/scenario.toml";
  std::ofstream(scenario) << "device_nodes = \"ignore\"\n" << extra << "\n" << kCards;
  auto file = std::make_unique<StateFile>();
  Status loaded = load_scenario(scenario, *file);
  EXPECT_TRUE(loaded.has_value()) << (loaded ? "" : loaded.error().message);
  State::initialize(*file);
  std::string path = directory_ + "/state";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.get()), sizeof *file);
  set_environment("NVIDIA_SIM_STATE", path.c_str());
  state_ = State::open(path.c_str());
  EXPECT_NE(state_, nullptr);
}

Node::~Node() {
  set_environment("NVIDIA_SIM_STATE", "");
  delete state_;
  std::filesystem::remove_all(directory_);
}

void set_environment(const char* name, const char* value) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a test has one thread
  setenv(name, value, 1);
}

nlohmann::json Node::ledger() {
  return nlohmann::json::parse(print_ledger(*state_, true));
}

bool Node::eventually(const std::function<bool(const nlohmann::json&)>& claim) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    if (claim(ledger()))
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

Library::Library(const std::string& flavour, const std::string& file)
    : handle_(dlopen((std::string(SIM_DIRECTORY) + "/" + flavour + "/" + file).c_str(),
                     RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr)
    return;
  ADD_FAILURE() << dlerror();  // NOLINT(concurrency-mt-unsafe): one thread
  _exit(1);
}

void in_child(const std::function<void()>& body) {
  pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    body();
    fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child ended with status " << status;
}

Child::Child(const std::function<void(const std::function<void()>&)>& body) {
  int channel[2];
  EXPECT_EQ(pipe2(channel, O_CLOEXEC), 0);
  pid_ = fork();
  if (pid_ == 0) {
    body([&] {
      if (!testing::Test::HasFailure() && write(channel[1], "r", 1) == 1)
        return;
      fflush(stdout);
      _exit(1);
    });
    fflush(stdout);
    for (;;)
      pause();
  }
  close(channel[1]);
  char byte = 0;
  EXPECT_EQ(read(channel[0], &byte, 1), 1) << "the child ended early";
  close(channel[0]);
}

void Child::kill() {
  if (pid_ <= 0)
    return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

Child::~Child() {
  kill();
}

CUcontext start(const Library& cuda, CUdevice device) {
  CUcontext context = nullptr;
  EXPECT_EQ(CALL(cuda, cuInit)(0), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuda, cuCtxCreate_v2)(&context, 0, device), CUDA_SUCCESS);
  return context;
}

bool missing(const char* need, bool is_met) {
  if (is_met)
    return false;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a test has one thread
  const char* required = getenv("VGPU_REQUIRE");
  std::string list = "," + std::string(required == nullptr ? "" : required) + ",";
  EXPECT_EQ(list.find("," + std::string(need) + ","), std::string::npos)
      << "needs '" << need << "', which is required here";
  return true;
}

}  // namespace vgpu::sim::test
