#include "framework/data/text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <system_error>
#include <utility>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/data/fingerprint.h"
#include "framework/formats/data_file.h"

namespace lockstep {
namespace {

using formats::TextCorpus;
using TextUse = TextWindows::Use;

constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kLongestContext = 1'000'000;

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

void require_text(const std::string& path) {
  data::require_there(
      "text", path,
      str("it must be a text's file, plain or gzip, or a folder of such files", data::kSeeConfigs));
}

// Thumbnails, pictures and archives that lie among texts count to their last byte.
void warn_of_binary(const TextCorpus& corpus, const std::string& path) {
  const auto& sources = corpus.sources();
  const auto first = std::ranges::find(sources, true, &TextCorpus::SourceFile::is_binary);
  if (first == sources.end()) return;
  const std::int64_t count = std::ranges::count(sources, true, &TextCorpus::SourceFile::is_binary);
  log_warning(str("text: of '", path, "' ", counted(count, "file"), count == 1 ? " has" : " have",
                  " zero bytes, as text has none, but ", count == 1 ? "counts" : "count",
                  ", such as '", first->path, "': data.exclude passes files over"));
}

void warn_of_encoding(const TextCorpus& corpus, const std::string& path) {
  const auto is_other = [](const TextCorpus::SourceFile& file) { return !file.not_utf8.empty(); };
  const auto first = std::ranges::find_if(corpus.sources(), is_other);
  if (first == corpus.sources().end()) return;
  const std::int64_t count = std::ranges::count_if(corpus.sources(), is_other);
  log_warning(str("text: of '", path, "' ", counted(count, "file"), count == 1 ? " is" : " are",
                  " not in UTF-8, but counts byte by byte, such as '", first->path, "'; ",
                  first->not_utf8));
}

void warn_of_links(const TextCorpus& corpus, const std::string& path) {
  const auto& links = corpus.passed_over();
  if (links.empty()) return;
  log_warning(str("text: of '", path, "' ", counted(std::ssize(links), "link"),
                  links.size() == 1 ? " to a folder is" : " to folders are",
                  " passed over, such as '", links.front(), "': what they lead to may lead back"));
}

std::shared_ptr<const TextCorpus> open_text(
    const std::string& path, std::int64_t context,
    const std::function<bool(const std::string& name)>& wanted,
    const formats::OnDamage& on_damage) {
  require_text(path);
  auto corpus = std::make_shared<const TextCorpus>(path, wanted, on_damage);
  warn_of_binary(*corpus, path);
  warn_of_encoding(*corpus, path);
  warn_of_links(*corpus, path);
  if (corpus->size() <= static_cast<std::uint64_t>(context)) {
    formats::fail_file(path,
                       str("it has ", counted(static_cast<std::int64_t>(corpus->size()), "byte"),
                           " of text, but data.context ", context, " needs ", context + 1));
  }
  return corpus;
}

keys::ConfigKeys text_keys(TextSetOptions& options) {
  return {
      file_key("path", options.path, "the text to train on: a file, or a folder of files"),
      file_key("validation_path", options.validation_path, "the same, for validation"),
      file_key("test_path", options.test_path, "the same, for the test"),
      {"exclude", list(options.exclude, keys::of_length("a pattern for files' names", 1000)),
       "names of files in folders that are passed over; patterns as in a shell (\"*.dat\")"},
      {"held_out", list(options.held_out, keys::of_length("a pattern for files' names", 1000)),
       "names of files in path that are the test set, not trained on; patterns as in a shell"},
      {"context", number(options.context, keys::from_to<std::int64_t>(1, kLongestContext)),
       "bytes of a sample, each with the next one as its target"},
      {"every_byte", keys::flag(options.every_byte),
       "held-out texts count to their last byte: needs loss.ignore_index -100"},
  };
}

}  // namespace

TextSet::TextSet(std::shared_ptr<const TextCorpus> corpus, const TextWindows& windows,
                 std::uint64_t seed)
    : corpus_(std::move(corpus)), windows_(windows), key_(Key(seed).fold("text")) {
  require_at_least(1, "text: context", windows.context);
  const auto context = static_cast<std::uint64_t>(windows.context);
  require(windows.bytes > context, "text: a stretch of ", windows.bytes, " bytes is too short for ",
          "a context of ", context, ": it needs one more");
  require(windows.offset <= corpus_->size() && windows.bytes <= corpus_->size() - windows.offset,
          "text: a stretch of ", windows.bytes, " bytes from ", windows.offset,
          " on is not in a text of ", corpus_->size());
  last_start_ = windows.bytes - 1 - context;
  const std::uint64_t full = last_start_ / context + 1;
  std::uint64_t size = full;
  if (windows.use == TextUse::train) {
    // So many that each shift by less than the context fits, but one at least.
    size = std::max<std::uint64_t>((windows.bytes - context) / context, 1);
  } else if (windows.use == TextUse::test_of_all && last_start_ % context != 0) {
    ++size;
  }
  size_ = static_cast<std::int64_t>(size);
}

SampleType TextSet::type() const {
  SampleType type = token_sample(windows_.context, kBytes);
  if (windows_.use == TextUse::test_of_all) type.ignored = kIgnoredTarget;
  return type;
}

// A text may grow by less than a sample.
std::string TextSet::fingerprint() const {
  data::Fingerprint made(*this);
  made.add(static_cast<std::int64_t>(windows_.bytes));
  made.add_samples(*this);
  return made.text();
}

Batch TextSet::gather(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const auto context = static_cast<std::uint64_t>(windows_.context);
  std::uint64_t shift = 0;
  if (windows_.use == TextUse::train && epoch != kUnaugmented) {
    const std::uint64_t slack = last_start_ - static_cast<std::uint64_t>(size_ - 1) * context;
    shift = key_.fold(epoch).bits() % (std::min(slack, context - 1) + 1);
  }
  Batch batch = empty_batch(type(), std::ssize(indices));
  auto* input = batch.inputs.data_ptr<std::int64_t>();
  auto* target = batch.targets.data_ptr<std::int64_t>();
  std::vector<std::uint8_t> bytes(context + 1);
  for (const std::int64_t index : indices) {
    const std::uint64_t wanted = static_cast<std::uint64_t>(index) * context + shift;
    const std::uint64_t start = std::min(wanted, last_start_);  // less in the window for the rest
    corpus_->copy(windows_.offset + start, bytes);
    input = std::copy(bytes.begin(), bytes.end() - 1, input);
    std::fill_n(target, wanted - start, kIgnoredTarget);
    std::copy(bytes.begin() + 1 + static_cast<std::ptrdiff_t>(wanted - start), bytes.end(),
              target + (wanted - start));
    target += context;
  }
  return batch;
}

DataSets load_text(const TextSetOptions& options, const DataContext& job) {
  const auto& wanted = job.wanted;
  const auto context = static_cast<std::uint64_t>(options.context);
  const TextUse held_out = options.every_byte ? TextUse::test_of_all : TextUse::test;
  require(options.held_out.empty() || !options.test_path,
          "data.held_out: not together with data.test_path: keep one of them");
  const bool is_split = job.validation > 0 && !options.validation_path;
  const bool takes_train = wanted.train || (wanted.validation && is_split);
  const bool takes_path = takes_train || (wanted.test && !options.held_out.empty());
  if (takes_path) require_text(options.path);
  std::error_code error;
  require((options.held_out.empty() && options.exclude.empty()) || !takes_path ||
              std::filesystem::is_directory(options.path, error),
          "data.held_out and data.exclude name files of a folder, but data.path ", options.path,
          " is none");
  const auto is_taken = [&](const std::string& name) {
    return !matches_any(options.exclude, name);
  };
  const auto is_held_out = [&](const std::string& name) {
    return matches_any(options.held_out, name);
  };
  DataSets sets;
  const auto open = [&](const std::string& path, const auto& is_wanted) {
    return open_text(path, options.context, is_wanted, job.on_damage);
  };
  const auto held_out_from = [&](const std::shared_ptr<const TextCorpus>& text,
                                 std::uint64_t offset) {
    return std::make_shared<const TextSet>(text, TextWindows{.offset = offset,
                                                             .bytes = text->size() - offset,
                                                             .context = options.context,
                                                             .use = held_out});
  };
  const auto load_train = [&] {
    const auto corpus = open(options.path, [&](const std::string& name) {
      return is_taken(name) && !is_held_out(name);
    });
    TextWindows train{.bytes = corpus->size(), .context = options.context, .use = TextUse::train};
    if (is_split) {
      const auto bytes = static_cast<std::uint64_t>(
          std::llround(job.validation * static_cast<double>(corpus->size())));
      require(bytes > context && corpus->size() - bytes > context, "data.validation: of ",
              corpus->size(), " bytes of text ", job.validation, " would be ", bytes,
              ", and both sides need data.context + 1 at least, which is ", context + 1);
      train.bytes -= bytes;
      sets.validation = held_out_from(corpus, train.bytes);
    }
    sets.train = std::make_shared<const TextSet>(corpus, train, job.seed);
    sets.notes = {str(
        "text: ", counted(std::ssize(corpus->sources()), "file"), ", ", corpus->size(),
        " bytes in all, each byte a token",
        is_split ? str("; the last ", corpus->size() - train.bytes, " bytes are the validation set")
                 : "")};
  };
  if (takes_train) load_or_tell(job, load_train);
  const auto other = [&](const std::string& path) {
    return held_out_from(open(path, is_taken), 0);
  };
  if (wanted.validation && options.validation_path) {
    if (job.validation > 0) {
      log_info("data.validation takes nothing: there is a data.validation_path");
    }
    load_or_tell(job, [&] { sets.validation = other(*options.validation_path); });
  }
  load_wanted(job, wanted.test && options.test_path, sets.test,
              [&] { return other(*options.test_path); });
  load_wanted(job, wanted.test && !options.held_out.empty(), sets.test, [&] {
    return held_out_from(
        open(options.path,
             [&](const std::string& name) { return is_taken(name) && is_held_out(name); }),
        0);
  });
  return sets;
}

DataKind text_kind() {
  DataKind kind = data_kind<TextSetOptions>(
      "text", "text for language models, byte by byte: each with the one that follows it",
      text_keys, load_text);
  kind.splits = true;
  return kind;
}

}  // namespace lockstep
