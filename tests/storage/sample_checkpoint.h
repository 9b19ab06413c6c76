#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checksum.h"
#include "framework/storage/manifest.h"
#include "framework/storage/safetensors.h"

namespace lockstep::testing {

/// A small checkpoint of two replicas, for tests.

inline std::string checksum_text(const std::string& bytes) {
  storage::Checksum checksum;
  checksum.add(std::as_bytes(std::span(bytes)));
  return checksum.text();
}

/// Returns the bytes of a tensor of `count` elements, others for each step.
inline std::string sample_bytes(const storage::ManifestTensor& tensor, std::uint64_t count,
                                std::int64_t step) {
  std::string bytes(count * storage::element_bytes(tensor.dtype), '\0');
  std::uint64_t state = static_cast<std::uint64_t>(step) * 1000 + tensor.name.size();
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56U);
  }
  return bytes;
}

/// All elements of a tensor, as its pieces count them.
inline std::uint64_t elements_of(const storage::ManifestTensor& tensor) {
  return tensor.pieces.empty() ? 0 : tensor.pieces.back().offset + tensor.pieces.back().size;
}

/// Writes the files of a checkpoint into `folder`, and sets their sizes and checksums in
/// `manifest`.
inline void write_files(storage::Manifest& manifest, const std::filesystem::path& folder) {
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    storage::SafetensorsHeader header;
    std::string data;
    for (const storage::ManifestTensor& tensor : manifest.tensors) {
      for (const storage::ManifestPiece& piece : tensor.pieces) {
        if (piece.file != file) continue;
        header.tensors.push_back(
            {.name = tensor.name, .dtype = tensor.dtype, .shape = {piece.size}});
        const std::size_t element = storage::element_bytes(tensor.dtype);
        data += sample_bytes(tensor, elements_of(tensor), manifest.step)
                    .substr(piece.offset * element, piece.size * element);
      }
    }
    const std::string bytes = write_header(header) + data;
    manifest.files[file].bytes = bytes.size();
    manifest.files[file].checksum = checksum_text(bytes);
    std::ofstream(folder / manifest.files[file].name, std::ios::binary) << bytes;
  }
}

/// Returns the sample's manifest. Its files are not written yet.
inline storage::Manifest sample_manifest(std::int64_t step) {
  const std::string checksum(16, '0');
  return {.step = step,
          .replicas = 2,
          .counts = {{"samples", step * 32}},
          .figures = {{"loss", 0.1}},
          .texts = {{"config", "model: mlp\n"}},
          .files = {{.name = "replica-0.safetensors", .checksum = checksum},
                    {.name = "replica-1.safetensors", .checksum = checksum}},
          .tensors = {
              {.name = "bias", .dtype = "BF16", .shape = {6}, .pieces = {{0, 0, 2}, {1, 2, 4}}},
              {.name = "empty", .dtype = "I64", .shape = {4, 0}},
              {.name = "flags", .dtype = "BOOL", .shape = {3}, .pieces = {{1, 0, 3}}},
              {.name = "scalar", .dtype = "F64", .shape = {}, .pieces = {{0, 0, 1}}},
              {.name = "weight", .dtype = "F32", .shape = {3, 5}, .pieces = {{1, 0, 8}, {0, 8, 7}}},
          }};
}

/// Writes and publishes the sample of this step.
inline storage::Manifest publish_sample(const storage::CheckpointFolder& folder,
                                        std::int64_t step) {
  storage::Manifest manifest = sample_manifest(step);
  folder.begin(step);
  write_files(manifest, folder.unfinished(step));
  folder.publish(manifest);
  return manifest;
}

}  // namespace lockstep::testing
