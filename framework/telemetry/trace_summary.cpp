#include "framework/telemetry/trace_summary.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/timeline/slow_link.h"
#include "framework/timeline/step_times.h"

namespace lockstep {
namespace {

using timeline::ReplicaTimes;
using timeline::StepTimes;
using timeline::TimePart;
using timeline::Trace;

std::string milliseconds_text(double seconds) {
  return formatted("%.2f", 1e3 * seconds);
}

// What it costs.
std::string less_text(const auto& slow) {
  return str("the median step takes ", milliseconds_text(slow.seconds_a_step), " ms less (",
             formatted("%.1f %%", 100 * slow.share), "): the run would be ",
             formatted("%.2f", 1 / (1 - slow.share)), " times as fast.\n");
}

// The summary of steps that are there.
class Summary {
 public:
  explicit Summary(const StepTimes& times)
      : times_(times), sums_(times.sums()), count_(static_cast<double>(times.steps.size())) {}

  [[nodiscard]] std::string text() const {
    return parts_text() + "\n" + idle_text() + "\n" + slow_text();
  }

 private:
  // Of a sum over all steps.
  [[nodiscard]] std::string each(double sum) const { return milliseconds_text(sum / count_); }

  // A column for each part that takes time anywhere.
  [[nodiscard]] std::string parts_text() const {
    TextTable rows{{"ms a step"}};
    for (const auto& [replica, times] : sums_) rows.push_back({str("replica ", replica)});
    const auto add = [&](const std::string& name, const auto& value_of) {
      const auto values = mapped(
          sums_, [&](const auto& entry) -> double { return std::invoke(value_of, entry.second); });
      if (std::ranges::max(values) <= 0) return;
      rows[0].push_back(name);
      for (std::size_t i = 0; i < values.size(); ++i) rows[i + 1].push_back(each(values[i]));
    };
    for (std::size_t part = 0; part < timeline::kTimeParts.size(); ++part) {
      const bool is_communication = static_cast<TimePart>(part) == TimePart::communication;
      add(is_communication ? "exposed communication" : timeline::kTimeParts[part],
          [&](const ReplicaTimes& times) { return times.parts[part]; });
      if (is_communication) add("(hidden)", [](const ReplicaTimes& times) { return times.hidden; });
    }
    add("in all", &ReplicaTimes::total);
    return table_text(rows, "lr");
  }

  [[nodiscard]] std::string idle_text() const {
    TextTable rows{{"idle, ms a step", "for bytes", "for data", "paused", "for others"}};
    for (const auto& [replica, times] : sums_) {
      std::vector<std::pair<double, int>> others;  // the longest wait first
      for (const auto& [other, seconds] : times.waited_for) others.emplace_back(-seconds, other);
      std::ranges::sort(others);
      const auto whom = mapped(others, [&](const auto& other) {
        return str(each(-other.first), " for replica ", other.second);
      });
      rows.push_back({str("replica ", replica),
                      each(times.of(TimePart::communication) - times.waited()),
                      each(times.of(TimePart::data)), each(times.of(TimePart::pause)),
                      whom.empty() ? each(0) : listed(whom, 3)});
    }
    return table_text(rows, "lrrrl");
  }

  [[nodiscard]] std::string slow_text() const {
    const double share = times_.waiting_share();
    const std::string waits =
        formatted("Replicas wait for each other in %.1f %% of the time of training", 100 * share);
    const auto slow = times_.slow();
    if (!slow) {
      return str(waits, sums_.size() < 2 ? ": there is one.\n"
                                         : ". None is slow: no replica's own work makes steps "
                                           "longer by more than a tenth.\n");
    }
    return str(waits, ".\nReplica ", slow->replica, " is slow: in ", slow->steps, " of ",
               counted(std::ssize(times_.steps), "step"), " it is the slowest, mostly in its ",
               reason_of(slow->replica), ".\nWith the pace of the slowest of the others ",
               less_text(*slow));
  }

  // The part in which it takes longer than the mean of the others by most.
  [[nodiscard]] std::string reason_of(int slow) const {
    std::array<double, timeline::kTimeParts.size()> more{};
    for (std::size_t part = 0; part < timeline::kTimeParts.size(); ++part) {
      if (!timeline::is_own(static_cast<TimePart>(part))) continue;
      const double all = sum_of(sums_, [&](const auto& entry) { return entry.second.parts[part]; });
      const double own = sums_.at(slow).parts[part];
      more[part] = own - (all - own) / static_cast<double>(sums_.size() - 1);
    }
    const auto most = std::ranges::max_element(more) - more.begin();
    const auto part = static_cast<std::size_t>(most);
    return static_cast<TimePart>(part) == TimePart::other ? "work outside of these parts"
                                                          : timeline::kTimeParts[part];
  }

  const StepTimes& times_;
  std::map<int, ReplicaTimes> sums_;
  double count_;
};

// "" where no host has recorded enough of what comes from others.
std::string links_text(const timeline::LinkRates& rates, const StepTimes& times) {
  TextTable rows{{"bytes come", "MB/s"}};
  const auto megabytes = [](double rate) { return formatted("%.3g", 1e-6 * rate); };
  for (const auto& [link, rate] : timeline::median_rates(rates)) {
    rows.push_back({str("from host ", link.first, " to host ", link.second), megabytes(rate)});
  }
  if (rows.size() < 2) return "";
  const std::string table = "\n" + table_text(rows, "lr");
  const auto slow = timeline::slow_link(rates, times.paces());
  if (!slow) return table;
  return str(table, "\nSlow is ", slow->name(), ": ", megabytes(slow->rate),
             " MB/s, where others have ", megabytes(slow->best_rate), ".\nWith their rate ",
             less_text(*slow));
}

}  // namespace

std::string trace_summary(const Trace& trace) {
  std::int64_t replicas = 0;
  std::string notes;
  for (std::size_t host = 0; host < trace.hosts.size(); ++host) {
    const Trace::Host& its = trace.hosts[host];
    replicas += std::ssize(its.replicas);
    if (its.is_cut) notes += str("host ", host, " had more spans than a trace has\n");
    if (host == 0) continue;
    notes += str("host ", host, "'s clock is within ",
                 formatted("%.3f", 1e-6 * static_cast<double>(its.error)), " ms of host 0's\n");
  }
  const StepTimes times = trace.step_times();
  const std::string where =
      str(counted(replicas, "replica"), " on ", counted(std::ssize(trace.hosts), "host"));
  const std::string steps = str("steps ", trace.first, " to ", trace.last, ", ", where);
  if (times.steps.empty()) return steps + ": no step is whole\n" + notes;
  return str(
      steps, ": ", counted(std::ssize(times.steps), "whole step"), ", median ",
      milliseconds_text(timeline::median_of(mapped(times.paces(), &timeline::StepPace::total))),
      " ms of training\n", notes, "\n", Summary(times).text(),
      links_text(trace.link_rates(), times));
}

}  // namespace lockstep
