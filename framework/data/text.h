#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/random.h"
#include "framework/data/data.h"
#include "framework/formats/text_corpus.h"

namespace lockstep {

/// A stretch of a corpus, cut into windows: as many bytes as the context, with the byte that
/// follows each as its target. A byte is a token of a vocabulary of 256.
struct TextWindows {
  std::uint64_t offset = 0;  ///< of the stretch in the corpus
  std::uint64_t bytes = 0;   ///< of the stretch; at least context + 1
  std::int64_t context = 256;

  enum class Use {
    /// Window i begins at byte i · context. Each epoch shifts all windows by as many bytes, 0 …
    /// context-1, as a key (seed, epoch) draws. Up to 2 · context bytes of an epoch are in none.
    train,
    /// Window i begins at byte i · context, in every epoch. The last bytes, which fill no window
    /// (fewer than the context), are left out.
    test,
    /// The same, with one window more for the last bytes: it ends where the stretch does, and its
    /// targets that the window before has are kIgnoredTarget. So every byte but the first is a
    /// target once, and the mean loss is that of the whole stretch. For losses with this
    /// ignore_index, as SampleType::ignored says.
    test_of_all,
  };
  Use use = Use::test;
};

/// The target that does not count, as cross entropy's ignore_index.
inline constexpr std::int64_t kIgnoredTarget = -100;

/// Text as a data set for language models of bytes. Bytes stay on the disk (see TextCorpus).
class TextSet final : public Dataset {
 public:
  /// ValueError for a context below 1, a stretch that is shorter than context + 1 bytes, and one
  /// that the corpus does not have.
  TextSet(std::shared_ptr<const formats::TextCorpus> corpus, const TextWindows& windows,
          std::uint64_t seed = 0);

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] SampleType type() const override;
  [[nodiscard]] std::string fingerprint() const override;

 private:
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices,
                             std::int64_t epoch) const override;

  std::shared_ptr<const formats::TextCorpus> corpus_;
  TextWindows windows_;
  Key key_;
  std::int64_t size_ = 0;
  std::uint64_t last_start_ = 0;  // where the last window begins that fits
};

struct TextSetOptions {
  std::string path{};  ///< a file or a folder
  std::optional<std::string> validation_path{};
  std::optional<std::string> test_path{};
  /// Patterns, as matches_pattern() has them, for the names of files in folders: of those that are
  /// passed over …
  std::vector<std::string> exclude{};
  std::vector<std::string> held_out{};  ///< … and of those in `path` that are the test set
  std::int64_t context = 256;
  bool every_byte = false;  ///< validation and test sets are TextWindows::Use::test_of_all
};

/// The sets of texts. Without a validation_path, `job.validation` of the text's bytes at its end
/// become the validation set, so that no byte of it is in a window to train on. DataError for a
/// text that is missing, damaged, or shorter than context + 1 bytes. ValueError for a part for
/// validation that leaves less on one side, for a test_path beside files that are held out, and for
/// names of files where `path` is no folder.
[[nodiscard]] DataSets load_text(const TextSetOptions& options, const DataContext& job = {});

/// For the registry.
[[nodiscard]] DataKind text_kind();

}  // namespace lockstep
