#include "trainers/bench/report_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "framework/base/text.h"
#include "framework/base/wording.h"
#include "trainers/bench/units.h"

namespace lockstep::bench {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr double kBusyLoad = 0.5;
constexpr std::int64_t kFromHereOnShares = std::int64_t{1} << 20;

std::vector<std::string> heading_row(const std::string& first, const CollectivesReport& report) {
  std::vector<std::string> row{first};
  for (const SystemFacts& system : report.systems) row.push_back(system.label);
  return row;
}

Rows time_rows(const CollectivesReport& report, const OperationResult& result) {
  Rows rows{heading_row("time a call", report)};
  for (const SizeResult& size : result.sizes) {
    auto& row = rows.emplace_back(1, size_text(size.bytes));
    for (const Measurement& measurement : size.measurements)
      row.push_back(spread_text(measurement.seconds));
  }
  return rows;
}

Rows bandwidth_rows(const CollectivesReport& report, const OperationResult& result) {
  Rows rows{heading_row("bus GB/s (of limit)", report)};
  for (const SizeResult& size : result.sizes) {
    auto& row = rows.emplace_back(1, size_text(size.bytes));
    for (std::size_t i = 0; i < size.measurements.size(); ++i) {
      const Measurement& measurement = size.measurements[i];
      std::string cell = digits_text(bus_bandwidth(result, size, measurement) * 1e-9);
      if (report.systems[i].own && size.bytes >= kFromHereOnShares) {
        cell += str(" (", std::lround(100 * share_of_limit(result, size, measurement)), "%)");
      }
      row.push_back(cell);
    }
  }
  return rows;
}

// A column for each pair of one of ours and a peer.
Rows ratio_rows(const CollectivesReport& report, const OperationResult& result) {
  Rows rows{{"times as fast"}, {"as"}};
  for (const SizeResult& size : result.sizes) rows.push_back({size_text(size.bytes)});
  for (std::size_t own = 0; own < report.systems.size(); ++own) {
    if (!report.systems[own].own) continue;
    for (std::size_t peer = 0; peer < report.systems.size(); ++peer) {
      if (report.systems[peer].own) continue;
      rows[0].push_back(report.systems[own].label);
      rows[1].push_back(report.systems[peer].label);
      for (std::size_t i = 0; i < result.sizes.size(); ++i) {
        const auto& measurements = result.sizes[i].measurements;
        rows[i + 2].push_back(
            digits_text(measurements[peer].seconds.median / measurements[own].seconds.median));
      }
    }
  }
  return rows;
}

}  // namespace

std::string text_table(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string spread_text(const Quartiles& seconds) {
  const auto percent = [&](double value) {
    return std::lround(100 * std::abs(value / seconds.median - 1));
  };
  return str(time_text(seconds.median), " -", percent(seconds.lower), " +", percent(seconds.upper),
             '%');
}

std::string heading_text(const MachineFacts& machine, const std::vector<SystemFacts>& systems,
                         const std::vector<LeftOut>& left_out) {
  std::string text =
      str(machine.cpu, machine.instructions.empty() ? "" : ", " + machine.instructions, ", ",
          machine.cores, machine.cores == 1 ? " core, " : " cores, ",
          digits_text(static_cast<double>(machine.memory_bytes) / (1 << 30)), " GiB, ",
          machine.kernel, ", ", machine.date, "\n");
  for (const SystemFacts& system : systems) text += str(system.label, ": ", system.version, "\n");
  if (machine.load > kBusyLoad) {
    text += str("The machine was busy before this began (load average ", digits_text(machine.load),
                "): expect noise.\n");
  }
  for (const LeftOut& system : left_out)
    text += str(system.name, " is left out: ", system.reason, "\n");
  return text;
}

std::string result_text(const CollectivesReport& report, const OperationResult& result) {
  const bool peers = std::any_of(report.systems.begin(), report.systems.end(),
                                 [](const SystemFacts& system) { return !system.own; });
  const bool own = std::any_of(report.systems.begin(), report.systems.end(),
                               [](const SystemFacts& system) { return system.own; });
  std::string text =
      str("== ", name_of(result.operation), ", ", counted(result.replicas, "replica"),
          "; limit: ", digits_text(result.limit.bytes_per_second * 1e-9),
          " GB/s read and written by ", result.limit.threads,
          result.limit.threads == 1 ? " thread" : " threads", ", ", result.limit.how, "\n\n");
  text += text_table(time_rows(report, result)) + "\n";
  text += text_table(bandwidth_rows(report, result)) + "\n";
  if (peers && own) text += text_table(ratio_rows(report, result)) + "\n";
  for (const std::string& note : result.notes) text += note + "\n";
  if (!result.notes.empty()) text += "\n";
  return text;
}

std::string vdot_text(const VdotReport& report) {
  Rows rows{{"vdot", "time a call", "GB/s read"}};
  for (const SystemFacts& system : report.systems) {
    if (system.own) rows[0].push_back(system.label + " is faster, times");
  }
  for (const Measurement& measurement : report.measurements) {
    const double rate = 2 * static_cast<double>(report.bytes) / measurement.seconds.median;
    auto& row = rows.emplace_back(std::vector<std::string>{
        measurement.label, spread_text(measurement.seconds), digits_text(rate * 1e-9)});
    for (std::size_t i = 0; i < report.systems.size(); ++i) {
      if (!report.systems[i].own) continue;
      row.push_back(
          digits_text(measurement.seconds.median / report.measurements[i].seconds.median));
    }
  }
  std::string text = text_table(rows) + "\n";
  for (const Measurement& measurement : report.measurements) {
    if (!measurement.note.empty()) text += str(measurement.label, ": ", measurement.note, "\n");
  }
  return text;
}

}  // namespace lockstep::bench
