#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/base/element_type.h"
#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"

namespace lockstep::formats {

/// A float16 as it lies in a file. Its value is exact in float32.
struct NpyFloat16 {
  std::uint16_t bits = 0;

  operator float() const noexcept;  // NOLINT: it is a number
};

/// Elements as what they are: of the C++ type of the same name (NpyFloat16 for float16).
using NpyElements =
    std::variant<std::span<const bool>, std::span<const std::int8_t>, std::span<const std::int16_t>,
                 std::span<const std::int32_t>, std::span<const std::int64_t>,
                 std::span<const std::uint8_t>, std::span<const std::uint16_t>,
                 std::span<const std::uint32_t>, std::span<const std::uint64_t>,
                 std::span<const NpyFloat16>, std::span<const float>, std::span<const double>>;

/// The types of NpyElements, in their order.
inline constexpr std::array<ElementType, std::variant_size_v<NpyElements>> kNpyTypes{
    ElementType::boolean, ElementType::int8,    ElementType::int16,   ElementType::int32,
    ElementType::int64,   ElementType::uint8,   ElementType::uint16,  ElementType::uint32,
    ElementType::uint64,  ElementType::float16, ElementType::float32, ElementType::float64};

/// An array as numpy.save writes it: one .npy file of version 1, 2 or 3, whose elements are of one
/// of the types above, little-endian or big-endian. Source:
/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
///
/// DataError, naming the file, for anything else: other types (also objects, which would be
/// pickles), a header that is not written as the format has it, a size other than the header says,
/// a boolean that is neither 0 nor 1. The file stays mapped (see File::content()), unless its
/// elements have to be moved or turned, as in Fortran's order and big-endian ones. Any thread.
class NpyArray {
 public:
  explicit NpyArray(const std::string& path);

  [[nodiscard]] ElementType type() const noexcept { return kNpyTypes[elements_.index()]; }
  /// Empty for a scalar.
  [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  /// The elements, as many as the shape makes, row-major whatever the file has.
  [[nodiscard]] const NpyElements& elements() const noexcept { return elements_; }
  /// The same as T. ValueError if they are of another type.
  template <typename T>
  [[nodiscard]] std::span<const T> values() const {
    using Wanted = std::span<const T>;
    require(std::holds_alternative<Wanted>(elements_), "npy: '", path_, "' has elements of type ",
            name_of(type()), ", not ", name_of(kNpyTypes[NpyElements(Wanted()).index()]));
    return std::get<Wanted>(elements_);
  }

  /// Where element number `i` is, for messages: "element [2, 0]".
  [[nodiscard]] std::string place_of(std::size_t i) const {
    return str("element [", join(row_major_index(static_cast<std::int64_t>(i), shape_)), "]");
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Throws the DataError that names the file and says `rule`, which it breaks.
  [[noreturn]] void fail(const std::string& rule) const { fail_file(path_, rule); }

 private:
  std::string path_;
  std::vector<std::int64_t> shape_;
  FileBytes owner_;
  NpyElements elements_;  // in owner_
};

}  // namespace lockstep::formats
