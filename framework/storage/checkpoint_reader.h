#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>

#include "framework/base/bytes.h"
#include "framework/storage/manifest.h"
#include "framework/storage/safetensors.h"

namespace lockstep::storage {

/// The time when the sizes of a checkpoint's files are compared with the manifest's.
enum class CheckSizes {
  at_once,
  when_read,  ///< and in verify(), which can then find every fault
};

/// A checkpoint to read: a folder with a manifest.json and the files that it lists. Reads only what
/// it is asked for. Nobody may change the folder meanwhile. For one thread.
class CheckpointReader {
 public:
  /// Reads the manifest. `folder` is any path that CheckpointFolder::resolved() takes; the files in
  /// it may be no links. Throws DataError, naming folder and file, if the manifest is missing,
  /// damaged or of another step than the folder's name says, or if a file is missing, of another
  /// size or no regular file. Throws Error if a file can't be read.
  explicit CheckpointReader(const std::filesystem::path& folder,
                            CheckSizes check_sizes = CheckSizes::at_once);

  /// Returns the absolute path, with links resolved: where `latest` led when this was made.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  /// Returns nullptr if no tensor has this name.
  [[nodiscard]] const ManifestTensor* find(std::string_view name) const noexcept;

  /// Reads all of the file manifest().files[file]. Throws DataError, naming it, unless its bytes
  /// have the manifest's checksum and its header lists the manifest's tensors.
  void verify(std::size_t file) const;
  /// Verifies all files.
  void verify() const;

  /// Reads elements of a tensor of manifest() from `offset` on, as many as `to` has room for, from
  /// all files that have them. Does not compare checksums. Throws DataError if a file is not as the
  /// manifest says, and ValueError if the tensor ends before, or if `to` has room for a part of an
  /// element.
  void read(const ManifestTensor& tensor, std::uint64_t offset, Bytes to) const;

 private:
  [[nodiscard]] std::filesystem::path path_of(std::size_t file) const;
  // Throws DataError unless the file is a regular one of the manifest's size.
  void check_size(std::size_t file) const;
  [[nodiscard]] const SafetensorsFile& opened(std::size_t file) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  // By index in the manifest. A file is opened when it is needed.
  mutable std::map<std::size_t, SafetensorsFile> files_;
};

}  // namespace lockstep::storage
