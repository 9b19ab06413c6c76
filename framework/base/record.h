#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "framework/base/errors.h"

// The one codec for the small records that processes and hosts tell each other.
//
//   struct Asked {
//     std::int64_t signal = 0;
//     std::string by;
//     LOCKSTEP_FIELDS(signal, by)
//   };
//   const std::string bytes = encode(Asked{15, "host 1"});
//   const auto asked = decode<Asked>(bytes, "a message of host 1");
//
// A record's fields follow each other. Integers, booleans and enums have their own size, the lowest
// byte first. Texts and containers begin with their size in 4 bytes, an optional with a byte that
// is 1 if it has a value, one of several kinds (std::variant) with its index in a byte. A field may
// be another record, a pair, a tuple or an array.

namespace lockstep {

/// Names a struct's fields, for writing and reading alike.
#define LOCKSTEP_FIELDS(...)          \
  [[nodiscard]] auto fields() {       \
    return std::tie(__VA_ARGS__);     \
  }                                   \
  [[nodiscard]] auto fields() const { \
    return std::tie(__VA_ARGS__);     \
  }

/// Appends the lowest `size` bytes of a number, the lowest first.
void put_number(std::string& bytes, std::uint64_t number, std::size_t size);
/// Returns the number that `bytes` begin with.
[[nodiscard]] std::uint64_t number_at(std::string_view bytes, std::size_t size) noexcept;

template <typename T>
void put(std::string& bytes, const T& value) {
  if constexpr (requires { value.fields(); }) {
    put(bytes, value.fields());
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    put_number(bytes, static_cast<std::uint64_t>(value), sizeof(T));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    const std::string_view text = value;
    put_number(bytes, text.size(), 4);
    bytes += text;
  } else if constexpr (requires { value.has_value(); }) {
    put(bytes, value.has_value());
    if (value) put(bytes, *value);
  } else if constexpr (requires { value.valueless_by_exception(); }) {
    put_number(bytes, value.index(), 1);
    std::visit([&](const auto& kind) { put(bytes, kind); }, value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... each) { (put(bytes, each), ...); }, value);
  } else {
    put_number(bytes, value.size(), 4);
    for (const auto& each : value) put(bytes, each);
  }
}

template <typename T>
[[nodiscard]] std::string encode(const T& record) {
  std::string bytes;
  put(bytes, record);
  return bytes;
}

/// Reads records that put() has written, from bytes that anybody may have made: each size and each
/// value is checked before use. Throws DataError that says what is damaged, and where. An enum
/// needs a function last_of(Enum) beside it, which returns the last of its values from 0 on. A
/// record may have rules of its own, is_valid(). A std::string_view that is read lies in the bytes.
class RecordReader {
 public:
  /// Errors call the bytes `what`: "a message of host 1".
  RecordReader(std::string_view bytes, std::string_view what)
      : size_(bytes.size()), rest_(bytes), what_(what) {}

  template <typename T>
  void get(T& value) {
    if constexpr (requires { value.fields(); }) {
      get_all(value.fields());
      if constexpr (requires { value.is_valid(); }) check(value.is_valid(), "it can't be");
    } else if constexpr (std::is_same_v<T, bool>) {
      value = number(1, 1) != 0;
    } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, std::byte>) {
      value = static_cast<T>(number(sizeof(T)));
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(number(sizeof(T), static_cast<std::uint64_t>(last_of(T{}))));
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      value = take(count());
    } else if constexpr (requires { value.has_value(); }) {
      if (number(1, 1) != 0) get(value.emplace());
    } else if constexpr (requires { value.valueless_by_exception(); }) {
      get_kind(value);
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      get_all(value);
    } else if constexpr (requires { typename T::mapped_type; }) {
      for (auto left = count(); left > 0; --left) {
        value.insert(next<std::pair<typename T::key_type, typename T::mapped_type>>());
      }
    } else {
      for (auto left = count(); left > 0; --left) {
        value.insert(value.end(), next<typename T::value_type>());
      }
    }
  }
  template <typename T>
  [[nodiscard]] T next() {
    T value{};
    get(value);
    return value;
  }

  /// Throws DataError, which names the damaged part by `why`, unless a rule of the record `holds`.
  void check(bool holds, std::string_view why) const;
  /// Returns the bytes that are not read yet.
  [[nodiscard]] std::string_view rest() const noexcept { return rest_; }

 private:
  std::uint64_t number(std::size_t size, std::uint64_t largest = ~std::uint64_t{0});
  // Each counted item takes a byte at least.
  std::size_t count() { return number(4, rest_.size() < 4 ? 0 : rest_.size() - 4); }
  std::string_view take(std::size_t size);

  template <typename Tuple>
  void get_all(Tuple&& fields) {
    std::apply([&](auto&... each) { (get(each), ...); }, fields);
  }
  template <typename... Kinds>
  void get_kind(std::variant<Kinds...>& value) {
    const std::uint64_t index = number(1, sizeof...(Kinds) - 1);
    std::uint64_t at = 0;
    ((at++ == index ? get(value.template emplace<Kinds>()) : void()), ...);
  }

  std::size_t size_;
  std::string_view rest_;
  std::string_view what_;
};

constexpr ErrorKind last_of(ErrorKind) noexcept {
  return ErrorKind::aborted;
}

/// Returns the record that all `bytes` make. Throws as RecordReader does, or if more follows.
template <typename T>
[[nodiscard]] T decode(std::string_view bytes, std::string_view what) {
  RecordReader reader(bytes, what);
  T record{};
  reader.get(record);
  reader.check(reader.rest().empty(), "more follows");
  return record;
}

}  // namespace lockstep
