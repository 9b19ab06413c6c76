#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::storage {

/// Elements `offset` to `offset` + `size` of a tensor in row-major order, and the file that has
/// them. There they are a tensor of the same name, with one dimension.
struct ManifestPiece {
  std::size_t file = 0;  ///< index in Manifest::files
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  bool operator==(const ManifestPiece&) const = default;
};

/// A tensor of a checkpoint. Its pieces cover it once, in the order of their offsets.
struct ManifestTensor {
  std::string name = {};
  std::string dtype = {};  ///< as safetensors has it
  std::vector<std::uint64_t> shape = {};
  std::vector<ManifestPiece> pieces = {};

  bool operator==(const ManifestTensor&) const = default;
};

/// A file beside the manifest.
struct ManifestFile {
  std::string name = {};  ///< one component of a path
  std::uint64_t bytes = 0;
  std::string checksum = {};  ///< as Checksum::text()

  bool operator==(const ManifestFile&) const = default;
};

/// What a checkpoint holds, as its manifest.json says it.
struct Manifest {
  std::int64_t step = 0;                         ///< steps done
  std::int64_t replicas = 1;                     ///< that have saved it
  std::map<std::string, std::int64_t> counts{};  ///< such as the samples consumed
  std::map<std::string, double> figures{};       ///< finite ones, such as the last loss
  std::map<std::string, std::string> texts{};    ///< such as the config and versions
  std::vector<ManifestFile> files{};
  std::vector<ManifestTensor> tensors{};  ///< by name

  bool operator==(const Manifest&) const = default;
};

/// The text of manifest.json. Its last line is a checksum of all lines before it.
[[nodiscard]] std::string write_manifest(const Manifest& manifest);

/// The manifest with this text. DataError, naming the rule, for anything but what write_manifest()
/// gives. It takes no more memory than a small multiple of the text.
[[nodiscard]] Manifest parse_manifest(std::string_view text);

}  // namespace lockstep::storage
