#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"

namespace vgpu {

// A JSON document that keeps what it was given: order of members, 64-bit integers, the text of
// every other number, the bytes of strings. Copies are deep.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20U;
  static constexpr std::size_t kMaxDepth = 64;

  // kInvalidArgument, with the byte offset, for anything that is not exactly one JSON value in
  // UTF-8 of at most `max_bytes` and kMaxDepth levels, and for a key that appears twice in one
  // object.
  static Result<Json> parse(std::string_view text, std::size_t max_bytes = kMaxBytes);

  Json() = default;  // null
  explicit Json(bool value) : value_(value) {}
  explicit Json(std::int64_t value) : value_(value) {}
  explicit Json(std::uint64_t value) : value_(value) {}
  explicit Json(std::string value) : value_(std::move(value)) {}
  explicit Json(std::string_view value) : value_(std::string(value)) {}
  explicit Json(const char* value) : value_(std::string(value)) {}
  explicit Json(Array value) : value_(std::move(value)) {}
  explicit Json(Object value) : value_(std::move(value)) {}
  static Json object() { return Json(Object{}); }
  static Json array() { return Json(Array{}); }
  static Json strings(std::initializer_list<std::string_view> values);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // Null pointers and empty optionals when it is something else, or out of the type's range.
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* items() const { return std::get_if<Array>(&value_); }
  Array* items() { return std::get_if<Array>(&value_); }
  const Object* members() const { return std::get_if<Object>(&value_); }
  Object* members() { return std::get_if<Object>(&value_); }
  std::optional<bool> boolean() const;
  std::optional<std::int64_t> integer() const;
  std::optional<std::uint64_t> natural() const;

  // The member of that name; null pointer if there is none or this is no object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  // find along nested objects: at({"linux", "cgroupsPath"}).
  const Json* at(std::initializer_list<std::string_view> path) const;
  // Replaces or appends a member. Only on an object; a null becomes one.
  void set(std::string_view key, Json value);
  void remove(std::string_view key);

  // Compact, one spelling per value.
  std::string text() const;

  bool operator==(const Json&) const = default;

 private:
  friend class JsonBuilder;
  friend struct JsonWriter;
  // A number that is neither int64 nor uint64, as it was written.
  struct Number {
    std::string text;
    bool operator==(const Number&) const = default;
  };
  explicit Json(Number value) : value_(std::move(value)) {}

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, Number, std::string, Array,
               Object>
      value_;
};

}  // namespace vgpu
