#include "framework/base/core_set.h"

#include <bit>
#include <vector>

#include <sched.h>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep {

CoreSet CoreSet::of_thread() {
  CoreSet cores;
  auto* const mask = reinterpret_cast<cpu_set_t*>(cores.words_.data());
  if (::sched_getaffinity(0, sizeof cores.words_, mask) != 0) return {};
  return cores;
}

void CoreSet::add(std::size_t core) {
  require(core < kMost, "core ", core, ": the last that is known is ", kMost - 1);
  words_[core / kBits] |= Word{1} << core % kBits;
}

bool CoreSet::has(std::size_t core) const noexcept {
  return core < kMost && (words_[core / kBits] >> core % kBits & 1) != 0;
}

CoreSet& CoreSet::operator|=(const CoreSet& others) noexcept {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
  return *this;
}

std::int64_t CoreSet::size() const noexcept {
  return sum_of(words_, [](Word word) { return std::int64_t{std::popcount(word)}; });
}

std::string CoreSet::text() const {
  std::vector<std::string> ranges;
  for (std::size_t first = 0; first < kMost; ++first) {
    if (!has(first)) continue;
    std::size_t last = first;
    while (has(last + 1)) ++last;
    ranges.push_back(first == last ? str(first) : str(first, "-", last));
    first = last;
  }
  return join(ranges, ",");
}

CoreSet CoreSet::take() const noexcept {
  (void)::sched_setaffinity(0, sizeof words_, reinterpret_cast<const cpu_set_t*>(words_.data()));
  return of_thread();
}

}  // namespace lockstep
