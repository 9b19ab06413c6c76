#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/storage/file.h"

namespace lockstep::storage {

/// One tensor of a safetensors file. Its elements lie there in row-major order, little-endian.
struct StoredTensor {
  std::string name = {};
  /// As the format has it: "F32", "BF16", "I64", "BOOL", …; also one that can't be read, "C64".
  std::string dtype = {};
  std::vector<std::uint64_t> shape = {};
  std::uint64_t begin = 0;  ///< of its bytes, counted from the end of the header
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return end - begin; }
  bool operator==(const StoredTensor&) const = default;
};

/// The header at the beginning of a safetensors file: an 8-byte length, then JSON about the rest.
/// Source: https://huggingface.co/docs/safetensors.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  /// In the order of their bytes, which fill the file without gaps.
  std::vector<StoredTensor> tensors;

  bool operator==(const SafetensorsHeader&) const = default;
};

/// Returns the bytes of an element; 0 for a `dtype` that the format does not have.
[[nodiscard]] std::size_t element_bytes(std::string_view dtype);

/// Returns the bytes that a tensor takes; nothing if they need more than 63 bits.
[[nodiscard]] std::optional<std::uint64_t> tensor_bytes(std::string_view dtype,
                                                        std::span<const std::uint64_t> shape);

/// Returns the beginning of a file with this header; data follow at once. Sets each tensor's begin
/// and end: tensors lie end to end in the order given. Throws ValueError for a name that occurs
/// twice, is no UTF-8 or is the metadata's, an unknown dtype, and sizes of more than 63 bits.
[[nodiscard]] std::string write_header(SafetensorsHeader& header);

/// A tensor for a file, and the function that writes its bytes there.
struct TensorSource {
  StoredTensor tensor;  ///< without its place
  std::function<void(const NewFile& file)> write;
};

/// Writes these tensors to an empty file, wider elements first: then each begins at a multiple of
/// its element's size. The metadata also say "format": "pt", without which some of Hugging Face's
/// readers refuse the file. Throws as write_header() does.
void write_tensors(const NewFile& file, std::vector<TensorSource> tensors,
                   std::map<std::string, std::string> metadata = {});

/// Returns the header whose JSON is `text`, for `data_bytes` of data. Throws DataError, naming the
/// rule, for anything that the format does not allow. Takes no more memory than a small multiple of
/// the text.
[[nodiscard]] SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes);

/// A safetensors file to read. Any thread.
class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws Error if the file can't be read, and DataError if it
  /// breaks a rule of the format. Both name the file.
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const SafetensorsHeader& header() const noexcept { return header_; }
  /// Returns nullptr if no tensor has this name.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const noexcept;

  /// Reads the part of a tensor that begins `offset` bytes into it and is as long as `to`.
  void read(const StoredTensor& tensor, std::uint64_t offset, Bytes to) const;

 private:
  File file_;
  std::uint64_t data_ = 0;  // where the data begin
  SafetensorsHeader header_;
  std::map<std::string_view, const StoredTensor*> by_name_;  // of header_
};

}  // namespace lockstep::storage
