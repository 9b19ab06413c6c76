#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::keys {

/// Where something was written. Places order as they are read: the file's lines, then the flags.
struct YamlPosition {
  std::string text;       ///< as messages begin: "configs/a.yaml:3:5", or the flag as it was typed
  std::int64_t line = 0;  ///< counted from 1, as the column is
  std::int64_t column = 0;

  friend bool operator<(const YamlPosition& a, const YamlPosition& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  }
};

/// All problems of a file and of the flags that win over it, reported at once.
class YamlProblems {
 public:
  /// Adds a problem. `words` returns its message, and is called only if the message may be shown: a
  /// text may have thousands of problems.
  template <typename Words>
  void report(const YamlPosition& place, const Words& words) {
    const bool is_shown = first_.size() < kMostShown || place < first_.rbegin()->first;
    if (is_shown && !first_.emplace(place, words()).second) return;  // where an alias stands again
    ++count_;
    if (first_.size() > kMostShown) first_.erase(std::prev(first_.end()));
  }

  [[nodiscard]] std::size_t count() const { return count_; }

  /// Throws a ValueError if there are problems: a line "place: message" for each, in the order of
  /// their places. Problems without a place come first. With more than 20 it has the first 20 and
  /// the number of the others.
  void finish() const {
    if (count_ == 0) return;
    std::vector<std::string> lines;
    for (const auto& [place, message] : first_) {
      lines.push_back(place.text + (place.text.empty() ? "" : ": ") + message);
    }
    if (count_ > first_.size()) lines.push_back(str("and ", count_ - first_.size(), " more"));
    throw ValueError(join(lines, "\n"));
  }

 private:
  static constexpr std::size_t kMostShown = 20;

  std::set<std::pair<YamlPosition, std::string>> first_;  // each place with its message
  std::size_t count_ = 0;                                 // of all
};

}  // namespace lockstep::keys
