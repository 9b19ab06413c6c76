#include "framework/calls/long_waits.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/base/text.h"
#include "framework/timeline/step_times.h"

namespace lockstep::calls {

std::vector<LongWaits::Found> LongWaits::look() {
  using std::chrono::milliseconds;
  const auto now = Clock::now();
  if (first_.count() == 0 || now < next_) return {};
  next_ = now + std::clamp(first_ / 8, milliseconds(20), milliseconds(50));
  std::vector<Found> found;
  decltype(waits_) still;
  for (std::int64_t number = workers_.offset; number < workers_.end(); ++number) {
    const auto worker = static_cast<int>(number);
    for (const CallTable::Wait& wait : table_.waits(worker)) {
      const auto before = waits_.find({worker, wait.slot});
      Known known{
          .version = wait.version, .waited = Waited(now, /*counts_all=*/true), .next = first_};
      if (before != waits_.end() && before->second.version == wait.version) known = before->second;
      const Clock::duration lasts = known.waited.look();
      if (lasts >= known.next) {
        known.next = std::min<Clock::duration>(2 * known.next, lasts + most_);
        found.push_back({wait, lasts, ++known.times});
      }
      still.emplace(std::pair(worker, wait.slot), known);
    }
  }
  waits_ = std::move(still);
  return found;
}

std::vector<Stall> LongWaits::stalls(const timeline::Recorder& recorder) {
  std::vector<Stall> stalls;
  std::set<std::pair<std::uint64_t, std::uint64_t>> told;
  for (const auto& [wait, lasts, times] : look()) {
    const bool is_new = told.emplace(wait.key, wait.number).second;
    const std::string text = is_new ? table_.text_of(wait) : "";
    if (text.empty()) continue;
    const std::string absent = table_.absentees(wait);
    const std::string doing =
        absent.empty() ? "" : timeline::doing_text(timeline::read_replicas(recorder));
    const double seconds = std::chrono::duration<double>(lasts).count();
    stalls.push_back(
        {wait.key, wait.number, times,
         str("stalled for ", std::round(seconds * 10) / 10, " s: ", text, ": ",
             absent.empty() ? "all replicas have arrived, but not their data" : absent,
             doing.empty() ? "" : "; " + doing,
             table_.held_up().load() == 0 ? ""
                                          : "; a replica's print to stdout waits for its reader")});
  }
  return stalls;
}

}  // namespace lockstep::calls
