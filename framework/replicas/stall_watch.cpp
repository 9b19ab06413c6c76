#include "framework/replicas/stall_watch.h"

#include <chrono>
#include <cmath>
#include <set>

#include "framework/base/text.h"

namespace lockstep::replicas {

namespace {

// "60", or "1.5".
std::string seconds_text(std::chrono::steady_clock::duration time) {
  return str(std::round(std::chrono::duration<double>(time).count() * 10) / 10);
}

}  // namespace

std::vector<Stall> find_stalls(const watch::Board& board, watch::LongWaits& waits) {
  std::vector<Stall> stalls;
  std::set<std::pair<std::uint64_t, std::uint64_t>> told;
  for (const auto& [worker, wait, lasts, times] : waits.look()) {
    const bool is_new = told.emplace(wait.key, wait.number).second;
    const std::string text = is_new ? board.text_of(worker, wait) : "";
    if (text.empty()) continue;
    const std::string absent = board.absentees(worker, wait);
    stalls.push_back(
        {wait.key, wait.number, times,
         str("stalled for ", seconds_text(lasts), " s: ", text, ": ",
             absent.empty() ? "all replicas have arrived, but not their data" : absent)});
  }
  return stalls;
}

}  // namespace lockstep::replicas
