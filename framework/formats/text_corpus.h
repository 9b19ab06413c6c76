#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "framework/formats/data_file.h"

namespace lockstep::formats {

/// Text as one row of bytes, for language models of bytes: a file, or all files of a folder and the
/// folders in it, joined by nothing. Each folder's entries are in the order of their names, byte by
/// byte, so that the bytes are the same on every machine.
///
/// Names that begin with a dot are passed over; every other file counts, whatever its ending. Plain
/// files are mapped and stay on the disk (see File::content()); gzip files are unpacked in
/// memory. Links to files are followed; those to folders are passed over, since they may lead back.
/// DataError, naming file or folder, for what is missing or can't be read, damaged gzip data, an
/// entry that is neither file nor folder, and a text of no bytes. Any thread.
class TextCorpus {
 public:
  /// One file's part of the text.
  struct SourceFile {
    std::string path;
    std::uint64_t offset;  ///< of its first byte in the text
    std::uint64_t size;    ///< unpacked
    /// Whether it begins as no text does: with a zero byte among the first 8000, as git tells. Not
    /// if it is in UTF-16.
    bool is_binary;
    /// Of a text whose first 8000 bytes are not in UTF-8: what to do, by utf8_advice().
    std::string not_utf8;
  };

  /// Of a folder's files those whose names, without folders, are `wanted`; without it all. Those
  /// that can't be read are an error, or go to `on_damage` and are left out.
  explicit TextCorpus(const std::string& path,
                      const std::function<bool(const std::string& name)>& wanted = {},
                      const OnDamage& on_damage = {});

  /// In bytes, at least 1.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// In the order of the text.
  [[nodiscard]] const std::vector<SourceFile>& sources() const noexcept { return sources_; }
  /// The links to folders.
  [[nodiscard]] const std::vector<std::string>& passed_over() const noexcept {
    return passed_over_;
  }

  /// Copies the text's bytes from `offset` on, as many as `to` has. ValueError if it ends before.
  void copy(std::uint64_t offset, std::span<std::uint8_t> to) const;

 private:
  void add_file(const std::string& path);

  std::vector<SourceFile> sources_;
  std::vector<FileBytes> bytes_;  // of each source
  std::vector<std::string> passed_over_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::formats
