#include "framework/formats/text_corpus.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "framework/base/text.h"
#include "framework/formats/content_reader.h"
#include "framework/formats/folder_entries.h"
#include "framework/formats/utf8.h"

namespace fs = std::filesystem;

namespace lockstep::formats {

TextCorpus::TextCorpus(const std::string& path,
                       const std::function<bool(const std::string& name)>& wanted,
                       const OnDamage& on_damage) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    passed_over_ = for_each_below(path, [&](const FolderEntry& entry, const std::string& name) {
      if (wanted && !wanted(entry.name)) return;
      do_or_tell(on_damage, [&] { add_file(path_in(path, name)); });
    });
  } else {
    add_file(path);
  }
  if (size_ > 0) return;
  fail_file(path, str("it has no text: there is no file with a byte in it",
                      passed_over_.empty() ? "" : "; links to folders are not followed"));
}

void TextCorpus::copy(std::uint64_t offset, std::span<std::uint8_t> to) const {
  require(offset <= size_ && to.size() <= size_ - offset, "text: ", to.size(), " bytes from ",
          offset, " on are asked for, but there are ", size_, " in all");
  if (to.empty()) return;
  const auto after = std::ranges::upper_bound(sources_, offset, std::less<>(), &SourceFile::offset);
  for (auto source = static_cast<std::size_t>(after - sources_.begin()) - 1; !to.empty();
       ++source) {
    const auto from = bytes_[source].bytes.subspan(offset - sources_[source].offset);
    const std::size_t count = std::min(from.size(), to.size());
    std::ranges::copy(from.first(count), to.begin());
    to = to.subspan(count);
    offset += count;
  }
}

void TextCorpus::add_file(const std::string& path) {
  constexpr std::size_t kBeginning = 8000;  // where a file that is no text shows it
  bytes_.push_back(content_of(path));
  const std::span<const std::uint8_t> bytes = bytes_.back().bytes;
  const std::string_view begin =
      beginning({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kBeginning);
  const bool is_binary = begin.find('\0') != std::string_view::npos && !is_utf16(begin);
  const bool is_utf8 = is_binary || first_not_utf8(begin) == std::string_view::npos;
  sources_.push_back(
      {path, size_, bytes.size(), is_binary, is_utf8 ? "" : utf8_advice(path, begin)});
  size_ += bytes.size();
}

}  // namespace lockstep::formats
