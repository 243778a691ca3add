#include "common/gpu/allocation.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "api/allocation.h"
#include "api/limiter/host.h"
#include "common/base/json.h"
#include "common/base/text.h"

namespace vgpu::gpu {
namespace {

constexpr std::uint64_t kMaxMemoryMebibytes = std::uint64_t{1} << 24U;  // 16 TiB
constexpr std::size_t kMaxNodeName = 253;
constexpr std::size_t kMaxContainerName = 63;

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_name(std::string_view text, std::size_t max_bytes, std::string_view inner) {
  if (text.empty() || text.size() > max_bytes)
    return false;
  if (!is_lower_or_digit(text.front()) || !is_lower_or_digit(text.back()))
    return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_lower_or_digit(c) || inner.find(c) != std::string_view::npos;
  });
}

tl::unexpected<Error> wrong(std::string_view key, std::string_view accepted) {
  return fail(Code::kInvalidArgument,
              "'" + std::string(key) + "' is missing or not " + std::string(accepted));
}

// Every member is one of `known`.
Status check_members(const Json& object, std::string_view what,
                     std::initializer_list<std::string_view> known) {
  const Json::Object* members = object.members();
  if (members == nullptr) {
    return fail(Code::kInvalidArgument, "'" + std::string(what) + "' is not an object");
  }
  for (const auto& member : *members) {
    if (std::find(known.begin(), known.end(), member.first) == known.end()) {
      return fail(Code::kInvalidArgument, "'" + std::string(what) + "' has a member '" +
                                              member.first.substr(0, 64) +
                                              "' that this version does not know");
    }
  }
  return {};
}

Result<std::string> text_member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  const std::string* text = value != nullptr ? value->string() : nullptr;
  if (text == nullptr)
    return wrong(key, "a text");
  return *text;
}

Result<std::uint64_t> number_member(const Json& object, std::string_view key, std::uint64_t least,
                                    std::uint64_t most) {
  const Json* value = object.find(key);
  const auto number = value != nullptr ? value->natural() : std::nullopt;
  if (!number || *number < least || *number > most) {
    return wrong(key, "a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *number;
}

Result<CardShare> parse_card(const Json& json) {
  if (auto known = check_members(json, "gpus", {"uuid", "memory", "cores"}); !known) {
    return fail(known.error());
  }
  TRY(const std::string uuid, text_member(json, "uuid"), "card");
  if (!is_card_uuid(uuid))
    return wrong("uuid", "'GPU-' or 'MIG-' and a UUID");
  TRY(const std::uint64_t memory, number_member(json, "memory", 1, kMaxMemoryMebibytes), uuid);
  TRY(const std::uint64_t cores, number_member(json, "cores", 0, 100), uuid);
  return CardShare{uuid, mebibytes(memory), Percent{static_cast<std::uint32_t>(cores)}};
}

Result<std::vector<CardShare>> parse_cards(const Json& json) {
  const Json* list = json.find("gpus");
  const Json::Array* items = list != nullptr ? list->items() : nullptr;
  if (items == nullptr || items->empty() || items->size() > VGPU_MAX_DEVICES) {
    return wrong("gpus", "a list of 1 to " + std::to_string(VGPU_MAX_DEVICES) + " cards");
  }
  std::vector<CardShare> cards;
  for (const Json& item : *items) {
    auto card = parse_card(item);
    if (!card)
      return fail(card.error());
    for (const CardShare& other : cards) {
      if (other.uuid == card->uuid) {
        return fail(Code::kInvalidArgument, "card '" + card->uuid + "' is named twice");
      }
    }
    cards.push_back(std::move(*card));
  }
  return cards;
}

Result<std::vector<std::string>> parse_capabilities(const std::string& text) {
  static constexpr std::string_view kKnown[] = {"compute", "compat32", "graphics", "utility",
                                                "video",   "display",  "ngx"};
  std::vector<std::string> capabilities;
  for (const std::string_view name : split(text, ',')) {
    if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown)) {
      return fail(Code::kInvalidArgument,
                  "driver capability '" + std::string(name.substr(0, 64)) + "' is not known");
    }
    capabilities.emplace_back(name);
  }
  if (capabilities.empty())
    return wrong("caps", "a list of driver capabilities");
  return capabilities;
}

Status parse_treatment(const Json& json, ContainerAllocation& container) {
  if (json.find("policy") != nullptr) {
    TRY(const std::string policy, text_member(json, "policy"), "treatment");
    if (policy != "force" && policy != "default" && policy != "off") {
      return wrong("policy", "force, default or off");
    }
    container.policy = policy == "force" ? Policy::kForce
                       : policy == "off" ? Policy::kOff
                                         : Policy::kDefault;
  }
  if (json.find("priority") != nullptr) {
    TRY(const std::uint64_t priority, number_member(json, "priority", 0, 1), "treatment");
    container.priority = static_cast<std::uint32_t>(priority);
  }
  if (json.find("onLimit") != nullptr) {
    TRY(const std::string action, text_member(json, "onLimit"), "treatment");
    if (action != "error" && action != "kill")
      return wrong("onLimit", "error or kill");
    container.on_limit = action == "kill" ? OnLimit::kKill : OnLimit::kError;
  }
  if (const Json* value = json.find("oversubscribe")) {
    const auto flag = value->boolean();
    if (!flag)
      return wrong("oversubscribe", "true or false");
    container.oversubscribe = *flag;
  }
  if (json.find("caps") != nullptr) {
    TRY(const std::string text, text_member(json, "caps"), "treatment");
    TRY(container.capabilities, parse_capabilities(text), "treatment");
  }
  return {};
}

Result<ContainerAllocation> parse_container(const Json& json) {
  if (auto known = check_members(
          json, "container", {"gpus", "policy", "priority", "onLimit", "oversubscribe", "caps"});
      !known) {
    return fail(known.error());
  }
  ContainerAllocation container;
  auto cards = parse_cards(json);
  if (!cards)
    return fail(cards.error());
  container.cards = std::move(*cards);
  if (auto treatment = parse_treatment(json, container); !treatment) {
    return fail(treatment.error());
  }
  return container;
}

Result<Allocation> parse_document(const Json& json) {
  if (auto known = check_members(json, "allocation", {"v", "gen", "pod", "node", "containers"});
      !known) {
    return fail(known.error());
  }
  const Json* version = json.find("v");
  const auto number = version != nullptr ? version->natural() : std::nullopt;
  if (!number)
    return wrong("v", "a number");
  if (*number != 1) {
    return fail(Code::kInvalidArgument, "version " + std::to_string(*number) +
                                            " is not known to this node, which knows version 1; "
                                            "upgrading the node's package helps");
  }
  Allocation allocation;
  TRY(allocation.generation, number_member(json, "gen", 1, INT64_MAX), "allocation");
  TRY(allocation.pod, text_member(json, "pod"), "allocation");
  if (!is_pod_uid(allocation.pod))
    return wrong("pod", "a pod UID");
  TRY(allocation.node, text_member(json, "node"), "allocation");
  if (!is_name(allocation.node, kMaxNodeName, "-."))
    return wrong("node", "a node name");
  const Json* containers = json.find("containers");
  if (containers == nullptr || containers->members() == nullptr) {
    return wrong("containers", "an object");
  }
  for (const auto& [name, value] : *containers->members()) {
    if (!is_name(name, kMaxContainerName, "-"))
      return wrong("containers", "named by container");
    TRY(ContainerAllocation container, parse_container(value), "container '" + name + "'");
    allocation.containers.emplace_back(name, std::move(container));
  }
  return allocation;
}

}  // namespace

const ContainerAllocation* Allocation::find(std::string_view container) const {
  for (const auto& [name, share] : containers) {
    if (name == container)
      return &share;
  }
  return nullptr;
}

bool is_card_uuid(std::string_view text) {
  if (!text.starts_with("GPU-") && !text.starts_with("MIG-"))
    return false;
  text.remove_prefix(4);
  if (text.size() != 36)
    return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const char c = text[i];
    const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (dash ? c != '-' : !digit)
      return false;
  }
  return true;
}

bool is_pod_uid(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '-';
  });
}

Result<Allocation> parse_allocation(std::string_view text) {
  TRY(const Json json, Json::parse(text, api::kMaxAllocationBytes), "read allocation");
  TRY(Allocation allocation, parse_document(json), "read allocation");
  return allocation;
}

}  // namespace vgpu::gpu
