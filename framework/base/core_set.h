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

  /// Returns the cores on which the calling thread may run; none if the system does not tell.
  [[nodiscard]] static CoreSet of_thread();

  /// Throws ValueError for a number of kMost or more.
  void add(std::size_t core);
  [[nodiscard]] bool has(std::size_t core) const noexcept;
  CoreSet& operator|=(const CoreSet& others) noexcept;
  [[nodiscard]] std::int64_t size() const noexcept;
  /// Returns "0-3,8", for example.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool operator==(const CoreSet&) const = default;

  /// Lets the calling thread, and the threads that it starts later, run on these cores alone.
  /// Returns the cores that it then has: a control group leaves out cores that are not its own.
  /// Nothing changes if the system refuses, or if the group has none of these cores.
  CoreSet take() const noexcept;

  LOCKSTEP_FIELDS(words_)

 private:
  using Word = unsigned long;  // as sched_setaffinity(2) has it
  static constexpr std::size_t kBits = 8 * sizeof(Word);
  std::array<Word, kMost / kBits> words_{};
};

}  // namespace lockstep
