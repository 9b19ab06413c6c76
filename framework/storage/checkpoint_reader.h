#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/storage/manifest.h"
#include "framework/storage/safetensors.h"

namespace lockstep::storage {

/// A checkpoint to read: a folder with a manifest.json and the files that this lists. Reads only
/// what it is asked for. For one thread.
class CheckpointReader {
 public:
  /// Reads the manifest. DataError, naming folder and file, if it is missing or damaged, or if a
  /// file is missing or of another size.
  explicit CheckpointReader(std::filesystem::path folder);

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  /// nullptr if there is none of this name.
  [[nodiscard]] const ManifestTensor* find(std::string_view name) const noexcept;

  /// Reads all of a file. DataError, naming it, unless its bytes have the manifest's checksum and
  /// its header lists what the manifest says.
  void verify(std::size_t file) const;
  /// All files.
  void verify() const;

  /// Reads a tensor's elements from `offset` on, as many as `to` has room for, from whatever files
  /// have them. DataError if a file is not as the manifest says; ValueError outside of the tensor.
  void read(const ManifestTensor& tensor, std::uint64_t offset, Bytes to) const;

 private:
  [[nodiscard]] const SafetensorsFile& opened(std::size_t file) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  mutable std::vector<std::unique_ptr<SafetensorsFile>> files_;  // opened when they are needed
};

}  // namespace lockstep::storage
