#include "limiter/host_page.h"

#include <cstring>

#include "limiter/shared_word.h"
#include "limiter/sys.h"

namespace vgpu::limiter {
namespace {

constexpr int kAttempts = 64;
constexpr std::uint64_t kObservationAge = 10 * sys::kSecond;
constexpr std::uint64_t kLargest = (std::uint64_t{1} << 62);  // bytes; no sum of two overflows

// Word by word, as the writer may be at work on it.
void copy_words(void* target, const void* source, std::size_t size) {
  const auto* words = static_cast<const std::uint64_t*>(source);
  for (std::size_t i = 0; i < size / sizeof *words; ++i) {
    const std::uint64_t word = load(words[i]);
    std::memcpy(static_cast<unsigned char*>(target) + i * sizeof word, &word, sizeof word);
  }
}

bool same_card(const vgpu_host_device& device, const char* uuid) {
  char text[VGPU_UUID_SIZE];
  copy_words(text, device.uuid, sizeof text);
  return std::memcmp(text + 4, uuid, kUuidTextSize - 1) == 0;
}

}  // namespace

HostPage::Opening HostPage::open(const char* path) {
  const int fd = sys::open_file(path, false);
  if (fd < 0) {
    return Opening::kMissing;
  }
  sys::FileId id;
  const bool large_enough = sys::identify(fd, &id) && id.size >= sizeof(vgpu_host_page);
  const auto* page =
      large_enough
          ? static_cast<const vgpu_host_page*>(sys::map_file(fd, sizeof(vgpu_host_page), false))
          : nullptr;
  sys::close_file(fd);
  if (page == nullptr || std::memcmp(page->magic, VGPU_HOST_MAGIC, sizeof page->magic) != 0 ||
      page->version < VGPU_HOST_VERSION || page->size < sizeof(vgpu_host_page)) {
    return Opening::kInvalid;
  }
  page_ = page;
  return Opening::kOk;
}

// Copied first: what the checksum was of is then what is judged.
bool HostPage::is_whole(std::uint64_t current) const {
  static_assert(sizeof(vgpu_host_copy) % sizeof(std::uint64_t) == 0);
  vgpu_host_copy copy;
  copy_words(&copy, &page_->copies[current & 1], sizeof copy);
  return copy.generation == current >> 1 && copy.device_count <= VGPU_MAX_DEVICES &&
         copy.checksum == vgpu_checksum(&copy, offsetof(vgpu_host_copy, checksum));
}

HostPage::Finding HostPage::find(const char* uuid, std::uint64_t now, DeviceTerms* terms) {
  for (int attempt = 0; page_ != nullptr && attempt < kAttempts; ++attempt) {
    const std::uint64_t current = load(page_->current);
    if (current != checked_.load(std::memory_order_acquire)) {
      if (!is_whole(current)) {
        sys::yield();
        continue;
      }
      checked_.store(current, std::memory_order_release);
    }
    const vgpu_host_copy& copy = page_->copies[current & 1];
    const std::uint64_t heartbeat = load(page_->heartbeat);
    const bool observed = heartbeat != 0 && (now < heartbeat || now - heartbeat < kObservationAge);
    Finding finding = Finding::kUnknownDevice;
    for (std::uint32_t i = 0; i < VGPU_MAX_DEVICES && i < load(copy.device_count); ++i) {
      const vgpu_host_device& device = copy.devices[i];
      if (!same_card(device, uuid)) {
        continue;
      }
      const std::uint64_t limit = load(device.memory_limit);
      *terms = {.index = i,
                .limit = limit < kLargest ? limit : kLargest,
                .context_bytes = load(device.context_bytes),
                .observed_bytes = observed ? load(device.observed_bytes) : 0,
                .hold = (load(device.flags) & VGPU_DEVICE_HOLD) != 0};
      finding = Finding::kFound;
      break;
    }
    // The writer never touches the copy that `current` names, so the same word means that nothing
    // was half written.
    if (load(page_->current) == current) {
      return finding;
    }
  }
  return Finding::kTorn;
}

}  // namespace vgpu::limiter
