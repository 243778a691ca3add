#include "common/gpu/host_page.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace vgpu::gpu {
namespace {

constexpr std::uint32_t kEqualDilation = 0x10000;

std::uint32_t policy_value(Policy policy) {
  switch (policy) {
    case Policy::kOff:
      return VGPU_POLICY_OFF;
    case Policy::kForce:
      return VGPU_POLICY_FORCE;
    case Policy::kDefault:
      break;
  }
  return VGPU_POLICY_DEFAULT;
}

std::uint64_t checksum(const vgpu_host_copy& copy) {
  return vgpu_checksum(&copy, offsetof(vgpu_host_copy, checksum));
}

Status write_at(int fd, const void* bytes, std::size_t size, std::size_t offset) {
  if (::pwrite(fd, bytes, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size)) {
    return fail(system_error("write host page", errno));
  }
  return {};
}

}  // namespace

vgpu_host_copy host_copy(const ContainerAllocation& share, std::uint64_t allocation_generation,
                         const NodeFacts& node) {
  vgpu_host_copy copy{};
  copy.allocation_generation = allocation_generation;
  copy.policy = policy_value(share.policy);
  copy.priority = share.priority;
  copy.on_limit = share.on_limit == OnLimit::kKill ? VGPU_ON_LIMIT_KILL : VGPU_ON_LIMIT_ERROR;
  copy.oversubscribe = share.oversubscribe ? 1 : 0;
  for (const CardShare& card : share.cards) {
    if (copy.device_count == VGPU_MAX_DEVICES)
      break;  // parse_allocation lets no more through
    vgpu_host_device& device = copy.devices[copy.device_count++];
    card.uuid.copy(device.uuid, VGPU_UUID_SIZE - 1);
    device.memory_limit = card.memory.count;
    device.cores = card.cores.count;
    device.dilation = kEqualDilation;
    if (const NodeCard* facts = node.find(card.uuid))
      device.context_bytes = facts->context.count;
  }
  return copy;
}

vgpu_host_page first_host_page(const vgpu_host_copy& copy) {
  vgpu_host_page page{};
  std::memcpy(page.magic, VGPU_HOST_MAGIC, sizeof page.magic);
  page.version = VGPU_HOST_VERSION;
  page.size = sizeof page;
  page.copies[0] = copy;
  page.copies[0].generation = 1;
  page.copies[0].checksum = checksum(page.copies[0]);
  page.current = 1U << 1U;
  return page;
}

Status update_host_page(int fd, const std::function<void(vgpu_host_copy&)>& change) {
  vgpu_host_page page{};
  const ssize_t n = ::pread(fd, &page, sizeof page, 0);
  if (n < 0)
    return fail(system_error("read host page", errno));
  const std::uint64_t index = page.current & 1U;
  const vgpu_host_copy& now = page.copies[index];
  if (n != sizeof page || std::memcmp(page.magic, VGPU_HOST_MAGIC, sizeof page.magic) != 0 ||
      now.checksum != checksum(now) || now.generation != page.current >> 1U) {
    return fail(Code::kInvalidArgument, "host page is damaged or of another version");
  }
  vgpu_host_copy next = now;
  change(next);
  next.generation = now.generation + 1;
  next.checksum = checksum(next);
  const std::uint64_t other = 1 - index;
  const std::size_t place = offsetof(vgpu_host_page, copies) + other * sizeof(vgpu_host_copy);
  if (auto written = write_at(fd, &next, sizeof next, place); !written)
    return written;
  // The copy must be whole before it is named: pwrite of one aligned word is what readers see as
  // the switch.
  const std::uint64_t current = next.generation << 1U | other;
  return write_at(fd, &current, sizeof current, offsetof(vgpu_host_page, current));
}

std::string usage_header() {
  // Not the whole structure: it is 200 KiB of zeros.
  std::string bytes(offsetof(vgpu_usage_file, reserved), '\0');
  const std::uint32_t words[] = {VGPU_USAGE_VERSION, VGPU_USAGE_SIZE, VGPU_USAGE_SLOTS,
                                 static_cast<std::uint32_t>(sizeof(vgpu_usage_slot))};
  std::memcpy(bytes.data(), VGPU_USAGE_MAGIC, offsetof(vgpu_usage_file, version));
  std::memcpy(bytes.data() + offsetof(vgpu_usage_file, version), words, sizeof words);
  return bytes;
}

}  // namespace vgpu::gpu
