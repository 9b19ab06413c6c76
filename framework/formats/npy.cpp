#include "framework/formats/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "framework/formats/content_reader.h"

namespace lockstep::formats {
namespace {

// Little-endian elements are used as they lie in the file.
static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionEnd = 8;       // the magic, then major and minor version
constexpr std::size_t kMostDimensions = 64;  // as NumPy 2 has it
constexpr std::size_t kAlignment = 8;

// What NumPy calls a type behind the byte order: "f4".
std::string code_of(ElementType type) {
  return str(name_of(type)[0], size_of(type));
}

// `bytes` as alternative number `index` of NpyElements.
template <std::size_t I = 0>
NpyElements elements_of(std::size_t index, std::span<const std::uint8_t> bytes) {
  if constexpr (I + 1 < std::variant_size_v<NpyElements>) {
    if (index > I) return elements_of<I + 1>(index, bytes);
  }
  using Elements = std::variant_alternative_t<I, NpyElements>;
  using T = typename Elements::element_type;
  return Elements(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T));
}

struct NpyHeader {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

// The header is a Python dict of three keys, for example
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// then blanks and a line feed. Every function takes its part off the text's front.
class NpyHeaderParser {
 public:
  NpyHeaderParser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  NpyHeader parse() {
    NpyHeader header;
    expect("{");
    while (!take("}")) {
      const std::string key = string();
      expect(":");
      if (key == "descr" && !header.descr) {
        if (!ahead("'") && !ahead("\""))
          refuse("its 'descr' must be a text: records can't be read");
        header.descr = string();
      } else if (key == "fortran_order" && !header.fortran_order) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !header.shape) {
        header.shape = shape();
      } else {
        refuse(
            str("key '", cut(key), "' is none of descr, fortran_order and shape, or occurs twice"));
      }
      if (!take(",") && !ahead("}")) refuse(str("a comma is missing behind '", key, "'"));
    }
    if (!header.descr || !header.fortran_order || !header.shape) {
      refuse("it must have the keys descr, fortran_order and shape");
    }
    skip_blanks();
    if (text_ != "\n") refuse("it must end with blanks and a line feed");
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& rule) const {
    fail_file(path_, str("its header is not as NumPy writes it: ", rule));
  }

  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(' '), text_.size())); }

  [[nodiscard]] bool ahead(std::string_view token) {
    skip_blanks();
    return text_.starts_with(token);
  }
  [[nodiscard]] bool take(std::string_view token) {
    if (!ahead(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) refuse(str("'", token, "' is missing before '", cut(text_, 20), "'"));
  }

  std::string string() {
    const char quote = ahead("\"") ? '"' : '\'';
    expect({&quote, 1});
    const std::size_t size = text_.find(quote);
    if (size == std::string_view::npos) refuse("a text is not closed");
    const std::string value(text_.substr(0, size));
    text_.remove_prefix(size + 1);
    return value;
  }

  bool boolean() {
    if (take("True")) return true;
    if (!take("False")) refuse("fortran_order must be True or False");
    return false;
  }

  // A tuple, with a comma behind each size but maybe the last of several.
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> shape;
    bool has_comma = true;
    for (expect("("); !take(")"); has_comma = take(",")) {
      if (!has_comma) refuse("a comma is missing in its shape");
      if (shape.size() == kMostDimensions) {
        refuse(str("its shape has more than ", kMostDimensions, " sizes"));
      }
      skip_blanks();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) refuse("its shape has what is no size");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      shape.push_back(size);
    }
    if (shape.size() == 1 && !has_comma) refuse("its shape has one size without a comma");
    return shape;
  }

  const std::string& path_;
  std::string_view text_;
};

// The elements' place in kNpyTypes, and whether they are big-endian.
std::pair<std::size_t, bool> type_of(const std::string& path, const std::string& descr) {
  const std::string_view code = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  const auto* const found = std::ranges::find(kNpyTypes, code, code_of);
  const char order = descr.empty() ? '\0' : descr[0];
  if (found != kNpyTypes.end() &&
      (order == '<' || order == '>' || (order == '|' && size_of(*found) == 1))) {
    return {static_cast<std::size_t>(found - kNpyTypes.begin()),
            order == '>' && size_of(*found) > 1};
  }
  fail_file(path, str("its elements are of type '", cut(descr), "', but only those of ",
                      join(kNpyTypes | std::views::transform(code_of)), " can be read"));
}

// Turns the bytes of each element around.
void turn(std::vector<std::uint8_t>& bytes, std::size_t element) {
  for (auto at = bytes.begin(); at != bytes.end(); at += static_cast<std::ptrdiff_t>(element)) {
    std::reverse(at, at + static_cast<std::ptrdiff_t>(element));
  }
}

// Elements whose first index runs fastest, in the order in which the last one does.
std::vector<std::uint8_t> row_major(std::span<const std::uint8_t> from,
                                    const std::vector<std::int64_t>& shape, std::size_t element) {
  std::vector<std::uint8_t> to(from.size());
  std::vector<std::size_t> strides;  // in `from`, in bytes
  std::size_t stride = element;
  for (const std::int64_t size : shape) {
    strides.push_back(stride);
    stride *= static_cast<std::size_t>(size);
  }
  std::vector<std::int64_t> index(shape.size(), 0);
  std::size_t source = 0;
  for (std::size_t target = 0; target < to.size(); target += element) {
    std::memcpy(to.data() + target, from.data() + source, element);
    for (std::size_t d = shape.size(); d-- > 0;) {
      source += strides[d];
      if (++index[d] < shape[d]) break;
      source -= strides[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return to;
}

}  // namespace

NpyFloat16::operator float() const noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0)
    return std::copysign(static_cast<float>(fraction) * 0x1p-24F, sign ? -1.F : 1.F);
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

NpyArray::NpyArray(const std::string& path) : path_(path) {
  owner_ = open_data(path).content();
  const std::span<const std::uint8_t> all = owner_.bytes;
  if (all.size() < kVersionEnd || !has_at(all, 0, kMagic)) {
    if (has_at(all, 0, "PK")) {
      fail(
          "it is an archive, as numpy.savez writes it, of which none can be read: numpy.save "
          "writes each array to a file of its own");
    }
    if (is_gzip(all)) fail("it is packed by gzip: unpack it first, by 'gzip -d'");
    refuse_foreign(path, all);
    fail(all.empty() ? "it is empty" : "it is no .npy file: it does not start as one");
  }
  const int version = all[kMagic.size()];
  if (version < 1 || version > 3 || all[kMagic.size() + 1] != 0) {
    fail(str("its version is ", version, ".", int{all[kMagic.size() + 1]},
             ", but only 1.0, 2.0 and 3.0 can be read"));
  }
  const std::size_t header_begin = kVersionEnd + (version == 1 ? 2 : 4);
  std::size_t header_bytes = 0;
  if (all.size() >= header_begin) {
    std::memcpy(&header_bytes, all.data() + kVersionEnd, header_begin - kVersionEnd);
  }
  if (all.size() < header_begin || all.size() - header_begin < header_bytes) {
    fail(str("it is cut short: it ends after ", all.size(), " bytes, inside its header"));
  }

  const std::string_view text(reinterpret_cast<const char*>(all.data()) + header_begin,
                              header_bytes);
  NpyHeader header = NpyHeaderParser(path, text).parse();
  const auto [type, is_big_endian] = type_of(path, *header.descr);
  const std::size_t element = size_of(kNpyTypes[type]);
  shape_ = std::move(*header.shape);
  std::span<const std::uint8_t> data = all.subspan(header_begin + header_bytes);
  if (product_of(shape_, element) != data.size()) {
    fail(str("its header says (", join(shape_), ") elements of ", element, " bytes, but ",
             data.size(), " bytes follow it"));
  }

  const bool is_aligned = reinterpret_cast<std::uintptr_t>(data.data()) % kAlignment == 0;
  if ((*header.fortran_order && shape_.size() > 1) || !is_aligned || is_big_endian) {
    require_memory(path, data.size(), "its elements have to be moved, and a copy takes",
                   "; numpy.ascontiguousarray() makes an array that is read where it lies");
    std::vector<std::uint8_t> moved = *header.fortran_order ? row_major(data, shape_, element)
                                                            : std::vector(data.begin(), data.end());
    if (is_big_endian) turn(moved, element);
    owner_ = FileBytes::of(std::move(moved));
    data = owner_.bytes;
  }
  elements_ = elements_of(type, data);
  if (kNpyTypes[type] == ElementType::boolean &&
      std::ranges::any_of(data, [](auto byte) { return byte > 1; })) {
    fail("it has booleans that are neither 0 nor 1");
  }
}

}  // namespace lockstep::formats
