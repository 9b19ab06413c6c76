#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"

namespace lockstep::formats {

/// Types of the elements that NpyArray reads, by NumPy's names.
enum class NpyType {
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  float32,
  float64
};

/// A float16 as it lies in a file. Its value is exact in float32.
struct NpyFloat16 {
  std::uint16_t bits = 0;

  operator float() const noexcept;  // NOLINT: it is a number
};

/// NumPy's name of a type: "bool", "int8", …
[[nodiscard]] const char* name_of(NpyType type);
[[nodiscard]] std::size_t bytes_of(NpyType type);

/// An array as numpy.save writes it: one .npy file of version 1, 2 or 3, whose elements are of one
/// of the types above, little-endian or big-endian. Source:
/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
///
/// DataError, naming the file, for anything else: other types (also objects, which would be
/// pickles), a header that is not written as the format has it, a size other than the header says,
/// a boolean that is neither 0 nor 1. The file stays mapped (see DataFile::bytes()), unless its
/// elements have to be moved or turned, as those in Fortran's order and big-endian ones. Any
/// thread.
class NpyArray {
 public:
  explicit NpyArray(const std::string& path);

  [[nodiscard]] NpyType type() const noexcept { return type_; }
  /// Empty for a scalar.
  [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  /// How many elements the shape makes.
  [[nodiscard]] std::size_t count() const noexcept { return data_.size() / bytes_of(type_); }
  /// The elements, row-major whatever the file has, aligned as their type needs it.
  [[nodiscard]] std::span<const std::uint8_t> bytes() const noexcept { return data_; }

  /// The elements as T, which is the type of the same name (bool for boolean, NpyFloat16).
  /// ValueError if the array's is another one.
  template <typename T>
  [[nodiscard]] std::span<const T> values() const;

  /// Where element number `i` is, for messages: "element [2, 0]".
  [[nodiscard]] std::string place_of(std::size_t i) const;

 private:
  template <typename T>
  static constexpr NpyType type_for();

  std::string path_;
  NpyType type_ = NpyType::uint8;
  std::vector<std::int64_t> shape_;
  FileBytes owner_;
  std::span<const std::uint8_t> data_;  // in owner_
};

template <typename T>
constexpr NpyType NpyArray::type_for() {
  if constexpr (std::is_same_v<T, bool>) return NpyType::boolean;
  if constexpr (std::is_same_v<T, std::int8_t>) return NpyType::int8;
  if constexpr (std::is_same_v<T, std::int16_t>) return NpyType::int16;
  if constexpr (std::is_same_v<T, std::int32_t>) return NpyType::int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return NpyType::int64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return NpyType::uint8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return NpyType::uint16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return NpyType::uint32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return NpyType::uint64;
  if constexpr (std::is_same_v<T, NpyFloat16>) return NpyType::float16;
  if constexpr (std::is_same_v<T, float>) return NpyType::float32;
  if constexpr (std::is_same_v<T, double>) return NpyType::float64;
}

template <typename T>
std::span<const T> NpyArray::values() const {
  constexpr NpyType wanted = type_for<T>();
  require(type_ == wanted, "npy: '", path_, "' has elements of type ", name_of(type_), ", not ",
          name_of(wanted));
  return {reinterpret_cast<const T*>(data_.data()), count()};
}

}  // namespace lockstep::formats
