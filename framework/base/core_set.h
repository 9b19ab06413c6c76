#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "framework/base/record.h"

namespace lockstep {

/// A set of cores, by the system's numbers from 0 on.
class CoreSet {
 public:
  static constexpr std::size_t kMost = 16384;

  /// The cores on which the calling thread may run; none if the system does not tell.
  [[nodiscard]] static CoreSet of_thread();

  /// ValueError for a number that is too large.
  void add(std::size_t core);
  [[nodiscard]] bool has(std::size_t core) const noexcept;
  CoreSet& operator|=(const CoreSet& others) noexcept;
  [[nodiscard]] std::int64_t size() const noexcept;
  /// "0-3,8".
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool operator==(const CoreSet&) const = default;

  /// Lets the calling thread, and those that it starts from here on, run on these cores alone.
  /// Returns on which it then may: a control group allows others only what it has, and where it has
  /// none of these, or the system refuses, all stays as it is.
  CoreSet take() const noexcept;

  LOCKSTEP_FIELDS(words_)

 private:
  using Word = unsigned long;  // as sched_setaffinity(2) has it
  static constexpr std::size_t kBits = 8 * sizeof(Word);
  std::array<Word, kMost / kBits> words_{};
};

}  // namespace lockstep
