#include "framework/replicas/stall_watch.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/base/text.h"

namespace lockstep::replicas {

using std::chrono::milliseconds;

namespace {

// "60", or "1.5".
std::string seconds_text(std::chrono::steady_clock::duration time) {
  return str(std::round(std::chrono::duration<double>(time).count() * 10) / 10);
}

}  // namespace

std::vector<Stall> StallWatch::look() {
  const auto now = Clock::now();
  if (limit_.count() == 0 || now < next_) return {};
  next_ = now + std::clamp(limit_ / 8, milliseconds(20), milliseconds(1000));
  std::vector<Stall> stalls;
  std::set<std::pair<std::uint64_t, std::uint64_t>> told;
  decltype(waits_) still;
  for (std::int64_t worker = workers_.offset; worker < workers_.end(); ++worker) {
    const auto index = static_cast<int>(worker);
    for (const watch::Board::Wait& wait : board_.waits(index)) {
      const auto before = waits_.find({worker, wait.seat});
      Known known{.version = wait.version, .since = now};
      if (before != waits_.end() && before->second.version == wait.version) known = before->second;
      const auto waited = now - known.since;
      if (waited >= limit_ * (std::int64_t{1} << known.times)) {
        const bool is_new = told.emplace(wait.key, wait.number).second;
        const std::string text = is_new ? board_.text_of(index, wait) : "";
        ++known.times;
        if (!text.empty()) {
          const std::string absent = board_.absentees(index, wait);
          stalls.push_back(
              {wait.key, wait.number, known.times,
               str("stalled for ", seconds_text(waited), " s: ", text, ": ",
                   absent.empty() ? "all replicas have arrived, but not their data" : absent)});
        }
      }
      still.emplace(std::pair(worker, wait.seat), known);
    }
  }
  waits_ = std::move(still);
  return stalls;
}

}  // namespace lockstep::replicas
