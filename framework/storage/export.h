#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/storage/checkpoint_reader.h"

namespace lockstep::storage {

struct ExportOptions {
  /// Tensors whose names begin with one of these are exported, under the rest of their names.
  std::vector<std::string> prefixes;
  /// Tensors whose names begin with this take the place of others, by the rest of their names.
  std::string instead = {};
  /// The most bytes of tensors in a file, which has one tensor at least; 0: all in one file.
  std::uint64_t most_bytes = 0;
  std::map<std::string, std::string> metadata = {};  ///< of each file, beside its format
  bool replaces = false;  ///< existing files of these names, once all new ones are whole
};

/// The result of an export.
struct Exported {
  std::vector<std::filesystem::path> files;  ///< the index, if there is one, is the last
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  ///< of the tensors
};

/// Writes tensors of a checkpoint to the safetensors file `to`, in pieces that need little memory.
/// Tensors of more than `most_bytes` go to several files, as Hugging Face names them:
/// model-00001-of-00003.safetensors, …, and model.safetensors.index.json, which says where each
/// tensor is. A file appears once it is whole and on the disk, the index after all others; files
/// that may replace others appear once all are whole. After an error none of them is there, except
/// for those that have replaced others by then. The checkpoint's checksums are compared first.
///
/// Throws ValueError if `to` does not end in .safetensors, a file has one of the names already and
/// is not replaced, or an export of that name is there in several files instead of one, or in one
/// instead. Throws DataError if the checkpoint is damaged, has none of these tensors (or none
/// `instead`) or two of one name, and Error if a file can't be written.
Exported export_tensors(const CheckpointReader& reader, const std::filesystem::path& to,
                        const ExportOptions& options);

}  // namespace lockstep::storage
