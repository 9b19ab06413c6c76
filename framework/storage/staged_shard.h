#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/non_copyable.h"
#include "framework/storage/manifest.h"

namespace lockstep::storage {

/// Memory that grows without being copied, and stays.
class GrowingMemory : private NonCopyable {
 public:
  ~GrowingMemory();

  /// Appends a copy. Throws Error if there is not enough memory.
  void append(ConstBytes bytes);
  /// Forgets what it holds, but keeps the memory.
  void clear() noexcept { size_ = 0; }
  [[nodiscard]] ConstBytes bytes() const noexcept { return {memory_, size_}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// A copy of one replica's part of a checkpoint, on its way to a file. The memory is kept from one
/// checkpoint to the next: fresh pages cost more than the copy.
class StagedShard {
 public:
  /// Forgets all tensors, but keeps the memory.
  void clear() noexcept;
  /// Copies the part of tensor `name` that begins at element `offset`. Throws ValueError for an
  /// unknown dtype, and for bytes that are no whole elements.
  void add(const std::string& name, const std::string& dtype,
           const std::vector<std::uint64_t>& shape, std::uint64_t offset, ConstBytes values);

  /// Returns the tensors added, each with one piece, or with none if the piece would be empty.
  [[nodiscard]] const std::vector<ManifestTensor>& tensors() const noexcept { return tensors_; }
  /// Returns the number of bytes that are staged.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size(); }

  /// Writes all pieces that are not empty to the file `path`, and waits until it is on the disk.
  /// Replaces an existing file. Returns name, size and checksum. Throws Error if the file can't be
  /// written, or soon after `stop` is requested. May run beside threads that only read this object.
  [[nodiscard]] ManifestFile write(const std::filesystem::path& path,
                                   const std::stop_token& stop = {}) const;

 private:
  GrowingMemory memory_;
  std::vector<ManifestTensor> tensors_;  // their bytes lie behind each other in memory_
};

}  // namespace lockstep::storage
