#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/record.h"

namespace lockstep::storage {

/// The manifest's name in a checkpoint's folder.
inline constexpr const char* kManifestName = "manifest.json";
/// The longest text of a manifest, in bytes.
inline constexpr std::uint64_t kLongestManifest = std::uint64_t{1} << 30;

/// Elements `offset` to `offset` + `size` of a tensor in row-major order, and the file that has
/// them. In the file they are a tensor of the same name, with one dimension.
struct ManifestPiece {
  std::size_t file = 0;  ///< index in Manifest::files
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  bool operator==(const ManifestPiece&) const = default;
  LOCKSTEP_FIELDS(file, offset, size)
};

/// A tensor of a checkpoint. Its pieces cover it once, in the order of their offsets, each in a
/// file of its own. A tensor without elements has no pieces.
struct ManifestTensor {
  std::string name = {};
  std::string dtype = {};  ///< as safetensors has it
  std::vector<std::uint64_t> shape = {};
  std::vector<ManifestPiece> pieces = {};

  bool operator==(const ManifestTensor&) const = default;
  LOCKSTEP_FIELDS(name, dtype, shape, pieces)
};

/// A file beside the manifest.
struct ManifestFile {
  std::string name = {};  ///< one component of a path, unique, and not the manifest's
  std::uint64_t bytes = 0;
  std::string checksum = {};  ///< as Checksum::text()

  bool operator==(const ManifestFile&) const = default;
  LOCKSTEP_FIELDS(name, bytes, checksum)
};

/// The contents of a checkpoint, as its manifest.json lists them.
struct Manifest {
  std::int64_t step = 0;                         ///< steps done
  std::int64_t replicas = 1;                     ///< that have saved it
  std::map<std::string, std::int64_t> counts{};  ///< such as the samples consumed
  std::map<std::string, double> figures{};       ///< finite ones, such as a loss, kept bit by bit
  std::map<std::string, std::string> texts{};    ///< of any bytes, such as the config and versions
  std::vector<ManifestFile> files{};
  std::vector<ManifestTensor> tensors{};  ///< in the order of their names, each once

  bool operator==(const Manifest&) const = default;
};

/// Returns the text of manifest.json: JSON with a line for each value, file and tensor. A piece is
/// a list of its three numbers, and a text that is no UTF-8 the list of its bytes. The last field
/// is a Checksum of all bytes before it, in every version of the format. Throws ValueError, naming
/// the rule, if parse_manifest() would refuse the text.
[[nodiscard]] std::string write_manifest(const Manifest& manifest);

/// Returns the manifest with this text. Throws DataError, naming the line and the rule, unless it
/// has the fields that write_manifest() gives, in that order and no others, the checksum, and lines
/// of files and tensors of at most 1 MiB. Takes no more memory than a small multiple of the text.
[[nodiscard]] Manifest parse_manifest(std::string_view text);

/// The file that a replica has written, and its tensors. Their pieces are in file 0: this one.
using ManifestPart = std::pair<ManifestFile, std::vector<ManifestTensor>>;
/// Adds the encode()d ManifestPart of each replica. Throws DataError if one is none.
void add_parts(Manifest& manifest, const std::vector<std::string>& parts);

}  // namespace lockstep::storage
