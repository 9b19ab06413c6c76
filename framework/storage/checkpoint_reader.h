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

/// When the sizes of a checkpoint's files are compared with the manifest's.
enum class CheckSizes {
  at_once,
  when_read,  ///< and in verify(), so that all that is wrong can be found
};

/// A checkpoint to read: a folder with a manifest.json and the files that it lists. Reads only what
/// it is asked for. Nobody may change the folder meanwhile. For one thread.
class CheckpointReader {
 public:
  /// Reads the manifest. `folder` is as CheckpointFolder::resolved() has it; what is in it may be
  /// no link. DataError, naming folder and file, if the manifest is missing, damaged or of another
  /// step than the folder's name says, or if a file is missing, of another size or no regular file.
  /// Error if one can't be read.
  explicit CheckpointReader(const std::filesystem::path& folder,
                            CheckSizes check_sizes = CheckSizes::at_once);

  /// The absolute path, with links resolved: where `latest` has led at first.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  /// nullptr if there is none of this name.
  [[nodiscard]] const ManifestTensor* find(std::string_view name) const noexcept;

  /// Reads all of a file: one of manifest().files, by its index. DataError, naming it, unless its
  /// bytes have the manifest's checksum and its header lists what the manifest says.
  void verify(std::size_t file) const;
  /// All files.
  void verify() const;

  /// Reads elements of a tensor of manifest() from `offset` on, as many as `to` has room for, from
  /// whatever files have them. Does not compare checksums. DataError if a file is not as the
  /// manifest says. ValueError if the tensor ends before, or `to` has room for a part of an
  /// element.
  void read(const ManifestTensor& tensor, std::uint64_t offset, Bytes to) const;

 private:
  [[nodiscard]] std::filesystem::path path_of(std::size_t file) const;
  // Fails unless the file is a regular one of the manifest's size.
  void check_size(std::size_t file) const;
  [[nodiscard]] const SafetensorsFile& opened(std::size_t file) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  // By index in the manifest. They are opened when they are needed.
  mutable std::map<std::size_t, SafetensorsFile> files_;
};

}  // namespace lockstep::storage
