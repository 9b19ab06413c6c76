#include "trainers/bench/reports/text.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"

namespace lockstep::bench {

std::string digits_text(double value) {
  const double size = std::abs(value);
  const int decimals = size >= 99.95     ? 0
                       : size >= 9.995   ? 1
                       : size >= 0.9995  ? 2
                       : size >= 0.09995 ? 3
                                         : 4;
  return formatted("%.*f", decimals, value);
}

std::string time_text(double seconds) {
  // Compared as they are rounded: 999.7 us is 1.00 ms.
  if (seconds < 999.5e-6) return digits_text(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return digits_text(seconds * 1e3) + " ms";
  return digits_text(seconds) + " s";
}

namespace {

using Row = TextTable::value_type;

constexpr double kBusyLoad = 0.5;
constexpr std::int64_t kFromHereOnShares = std::int64_t{1} << 20;

// The first column left-aligned, the others right-aligned, and an empty line.
std::string table_of(const TextTable& rows) {
  return table_text(rows, "lr") + "\n";
}

std::string percent(double share) {
  return str(std::lround(100 * share), '%');
}

// A median with the quartiles in percent of it: "3.02 us -1 +4%".
std::string spread_text(const Quartiles& seconds) {
  return str(time_text(seconds.median), " -",
             std::lround(100 * std::abs(seconds.lower / seconds.median - 1)), " +",
             percent(std::abs(seconds.upper / seconds.median - 1)));
}

// How many times as fast as `other`.
std::string ratio_text(const Measurement& measurement, const Measurement& other) {
  return digits_text(times_of(other, measurement));
}

// What `line` says of the measurements, and an empty line; "" where it says nothing.
template <typename Measurements, typename Line>
std::string lines_of(const Measurements& measurements, const Line& line) {
  std::string text;
  for (const auto& measurement : measurements) text += line(measurement);
  return text.empty() ? "" : text + "\n";
}

template <typename Measured>
std::string note_line(const Measured& measurement) {
  if (measurement.note.empty()) return "";
  return str(measurement.system.label, ": ", measurement.note, "\n");
}

std::string bandwidth_text(const MemoryBandwidth& limit) {
  return digits_text(limit.bytes_per_second * 1e-9) + " GB/s";
}

// " on 2 hosts, 1000 Mbit/s, 5 ms away"; "" for one host.
std::string network_text(const NetworkFacts& network) {
  if (network.hosts == 1) return "";
  return str(" on ", network.hosts, " hosts, ",
             network.rate_mbit == 0 ? "any rate" : str(network.rate_mbit, " Mbit/s"),
             network.delay_ms == 0 ? "" : str(", ", network.delay_ms, " ms away"));
}

// A row a size, under the systems' labels; `cell` writes a measurement.
template <typename Cell>
std::string size_table(const std::string& title, const CollectivesReport& report,
                       const OperationResult& result, const Cell& cell) {
  TextTable rows{{title}};
  for (const SystemFacts& system : report.heading.systems) rows[0].push_back(system.label);
  for (const SizeResult& size : result.sizes) {
    Row& row = rows.emplace_back(1, size_text(size.bytes));
    for (const Measurement& measurement : size.measurements) row.push_back(cell(size, measurement));
  }
  return table_of(rows);
}

// A row a size, a column for each pair of one of ours and a peer; "" without such a pair.
std::string ratio_table(const CollectivesReport& report, const OperationResult& result) {
  TextTable rows{{"times as fast"}, {"as"}};
  for (const SizeResult& size : result.sizes) rows.push_back({size_text(size.bytes)});
  const std::vector<SystemFacts>& systems = report.heading.systems;
  for (std::size_t own = 0; own < systems.size(); ++own) {
    for (std::size_t peer = 0; peer < systems.size(); ++peer) {
      if (!systems[own].own || systems[peer].own) continue;
      rows[0].push_back(systems[own].label);
      rows[1].push_back(systems[peer].label);
      for (std::size_t i = 0; i < result.sizes.size(); ++i) {
        const auto& measurements = result.sizes[i].measurements;
        rows[i + 2].push_back(ratio_text(measurements[own], measurements[peer]));
      }
    }
  }
  return rows[0].size() > 1 ? table_of(rows) : "";
}

// A row a peer, a column one of ours, `cell` of both; "" without the one or the other.
template <typename Cell>
std::string peer_table(const std::string& title, const std::vector<Measurement>& measurements,
                       const Cell& cell) {
  std::vector<const Measurement*> own;
  TextTable rows{{title}};
  for (const Measurement& measurement : measurements) {
    if (!measurement.system.own || is_reference(measurement)) continue;
    own.push_back(&measurement);
    rows[0].push_back(measurement.system.label);
  }
  for (const Measurement& peer : measurements) {
    if (peer.system.own || is_reference(peer)) continue;
    Row& row = rows.emplace_back(1, peer.system.label);
    for (const Measurement* const measurement : own) row.push_back(cell(*measurement, peer));
  }
  return own.empty() || rows.size() == 1 ? "" : table_of(rows);
}

std::string ratio_table(const std::vector<Measurement>& measurements) {
  return peer_table("times as fast as", measurements, ratio_text);
}

// What systems wait for others, in percent of what peers do; "" for one replica.
std::string exposed_table(const TrainingResult& result) {
  if (result.replicas == 1) return "";
  return peer_table("exposed, of that of", result.measurements,
                    [&](const Measurement& measurement, const Measurement& peer) -> std::string {
                      const auto ratio = exposed_ratio(result, measurement, peer);
                      return ratio ? percent(*ratio) : "";
                    });
}

std::string compute_line(const TrainingResult& result, const Measurement& measurement) {
  const std::optional<double> ratio = compute_ratio(result, measurement);
  if (!ratio) return "";
  return str("forward and backward alone: ", digits_text(1 / *ratio), " times as fast as ",
             measurement.system.label, "\n");
}

std::string augmentation_line(const TrainingResult& result, const Measurement& measurement) {
  const Measurement* const plain = unaugmented(result, measurement);
  if (plain == nullptr) return "";
  return str(measurement.system.label, ": ", digits_text(times_of(measurement, *plain)),
             " times as long as ", plain->system.label, "\n");
}

// Of several hosts: what is hidden and exposed of the communication, and how near steps are to the
// bound.
Row network_columns(const TrainingResult& result, const Measurement& measurement) {
  const std::optional<NetworkUse> use = network_use(result, measurement);
  const std::optional<double> bound = network_bound(result);
  return {digits_text(measurement.sent_bytes / (1 << 20)), use ? digits_text(use->cable * 1e3) : "",
          use ? digits_text(use->hidden * 1e3) : "",
          bound ? digits_text(measurement.seconds().median / *bound) : ""};
}

std::string step_table(const TrainingResult& result) {
  const bool on_hosts = result.network.hosts > 1;
  TextTable rows{{"", "a step", "steps/s"}};
  rows[0].insert(rows[0].end(), kStepPartNames.begin(), kStepPartNames.end());
  const Row more = on_hosts ? Row{"sent MiB", "on cable", "hidden", "x bound"}
                            : Row{"of floor", "efficiency", "peak MiB", "host MiB"};
  rows[0].insert(rows[0].end(), more.begin(), more.end());
  const std::optional<Floor> floor = floor_of(result);
  for (const Measurement& measurement : result.measurements) {
    if (measurement.system.name == kSingle) continue;
    const double seconds = measurement.seconds().median;
    Row& row = rows.emplace_back(Row{measurement.system.label, spread_text(measurement.seconds()),
                                     digits_text(1 / seconds)});
    for (const double part : exposed_parts(result, measurement))
      row.push_back(digits_text(part * 1e3));
    if (on_hosts) {
      const Row columns = network_columns(result, measurement);
      row.insert(row.end(), columns.begin(), columns.end());
      continue;
    }
    const std::optional<double> scaling = efficiency(result, measurement);
    row.push_back(floor && !is_reference(measurement) ? percent(floor->seconds() / seconds) : "");
    row.push_back(scaling ? percent(*scaling) : "");
    row.push_back(str(measurement.memory.peak_bytes >> 20));
    row.push_back(str(measurement.memory.host_bytes >> 20));
  }
  return table_of(rows);
}

std::string megabytes_text(const Quartiles& bytes) {
  return str(std::lround(bytes.median / (1 << 20)));
}

// A row a peer, how many times as long it takes.
std::string ratio_table(const CheckpointResult& result, const PartsMeasurement& own) {
  TextTable rows{{str(own.system.label, " is faster, times"), "save", "pause", "load"}};
  for (const PartsMeasurement& peer : result.measurements) {
    if (peer.system.own) continue;
    Row& row = rows.emplace_back(1, str("than ", peer.system.label));
    for (const CheckpointPart part :
         {CheckpointPart::save, CheckpointPart::pause, CheckpointPart::load}) {
      row.push_back(digits_text(peer.of(part).median / own.of(part).median));
    }
  }
  return rows.size() == 1 ? "" : table_of(rows);
}

std::string reload_table(const CheckpointResult& result) {
  TextTable rows{{"loaded by", "time", "holds MiB", "predicted", "more MiB", "of it"}};
  for (const PartsMeasurement& reload : result.reloads) {
    const Quartiles held = reload.of(ReloadPart::held);
    const Quartiles more = reload.of(ReloadPart::load_memory);
    rows.push_back({str(counted(reload.replicas, "replica"), ", ", reload.system.label),
                    spread_text(reload.of(ReloadPart::load)), megabytes_text(held),
                    megabytes_text(reload.of(ReloadPart::predicted)), megabytes_text(more),
                    percent(more.median / held.median)});
  }
  return rows.size() == 1 ? "" : table_of(rows);
}

}  // namespace

std::string heading_text(const Heading& heading) {
  const MachineFacts& machine = heading.machine;
  std::string text =
      str(machine.cpu, machine.instructions.empty() ? "" : ", " + machine.instructions, ", ",
          counted(machine.cores, "core"), ", ",
          digits_text(static_cast<double>(machine.memory_bytes) / (1 << 30)), " GiB, ",
          machine.kernel, ", ", machine.date, "\n");
  for (const SystemFacts& system : heading.systems)
    text += str(system.label, ": ", system.version, "\n");
  if (machine.load > kBusyLoad) {
    text += str("The machine was busy before this began (load average ", digits_text(machine.load),
                "): expect noise.\n");
  }
  for (const LeftOut& system : heading.left_out)
    text += str(system.name, " is left out: ", system.reason, "\n");
  return text;
}

std::string result_text(const CollectivesReport& report, const OperationResult& result) {
  const auto time = [](const SizeResult&, const Measurement& measurement) {
    return spread_text(measurement.seconds());
  };
  const auto bandwidth = [&](const SizeResult& size, const Measurement& measurement) {
    const std::string rate = digits_text(bus_bandwidth(result, size, measurement) * 1e-9);
    if (!measurement.system.own || size.bytes < kFromHereOnShares) return rate;
    return str(rate, " (", percent(share_of_limit(result, size, measurement)), ")");
  };
  const auto bus_mbit = [&](const SizeResult& size, const Measurement& measurement) {
    return digits_text(bus_bandwidth(result, size, measurement) * 8e-6);
  };
  const auto sent = [](const SizeResult&, const Measurement& measurement) {
    return digits_text(measurement.sent_bytes / (1 << 20));
  };
  std::string text =
      str("== ", name_of(result.operation), ", ", counted(result.replicas, "replica"));
  if (result.network.hosts > 1) {
    text += network_text(result.network) + "\n\n";
    text += size_table("time a call", report, result, time);
    text += size_table("bus Mbit/s", report, result, bus_mbit);
    text += size_table("MiB sent by a host", report, result, sent);
  } else {
    text += str("; limit: ", bandwidth_text(result.limit), " read and written by ",
                counted(result.limit.threads, "thread"), ", ", result.limit.how, "\n\n");
    text += size_table("time a call", report, result, time);
    text += size_table("bus GB/s (of limit)", report, result, bandwidth);
  }
  text += ratio_table(report, result);
  for (const std::string& note : result.notes) text += note + "\n";
  return result.notes.empty() ? text : text + "\n";
}

std::string vdot_text(const VdotReport& report) {
  TextTable rows{{"vdot", "time a call", "GB/s read"}};
  for (const SystemFacts& system : report.heading.systems) {
    if (system.own) rows[0].push_back(system.label + " is faster, times");
  }
  for (const Measurement& measurement : report.measurements) {
    const double rate = 2 * static_cast<double>(report.bytes) / measurement.seconds().median;
    Row& row = rows.emplace_back(Row{measurement.system.label, spread_text(measurement.seconds()),
                                     digits_text(rate * 1e-9)});
    for (const Measurement& own : report.measurements) {
      if (own.system.own) row.push_back(ratio_text(own, measurement));
    }
  }
  std::string text = table_of(rows);
  for (const Measurement& measurement : report.measurements) text += note_line(measurement);
  return text;
}

std::string result_text(const TrainingResult& result) {
  std::string text = str("== ", result.model, ", ", counted(result.parameters, "parameter"), ", ",
                         counted(result.replicas, "replica"), " of ",
                         counted(result.batch, "sample"), network_text(result.network));
  if (const std::optional<Floor> floor = floor_of(result)) {
    text += str("; floor ", time_text(floor->seconds()), ": ", time_text(floor->compute),
                " forward and backward, ", time_text(floor->update), " update at ",
                bandwidth_text(result.limit));
  }
  if (const std::optional<double> bound = network_bound(result))
    text += str("; bound ", time_text(*bound));
  text += "\n\n" + step_table(result) + ratio_table(result.measurements) + exposed_table(result);
  for (const auto& line : {compute_line, augmentation_line}) {
    text += lines_of(result.measurements,
                     [&](const Measurement& measurement) { return line(result, measurement); });
  }
  return text + lines_of(result.measurements, note_line<Measurement>);
}

std::string launches_text(const TrainingReport& report) {
  TextTable rows{{"", "time"}};
  for (const Measurement& launch : report.launches)
    rows.push_back({launch.system.label, spread_text(launch.seconds())});
  return str("== launch to first step, pmean_linear, ", report.launched_replicas, " processes\n\n",
             table_of(rows), ratio_table(report.launches));
}

std::string growth_text(const TrainingResult& result, std::int64_t steps) {
  TextTable rows{{"", "MiB after a step", str("after ", steps), "more"}};
  for (const Measurement& each : result.measurements) {
    const std::int64_t first = each.memory.first_bytes >> 20;
    const std::int64_t last = each.memory.host_bytes >> 20;
    rows.push_back({each.system.label, str(first), str(last), str(last - first)});
  }
  return str("== memory over steps, ", result.model, ", ", counted(result.replicas, "replica"),
             "\n\n", table_of(rows));
}

std::string result_text(const CheckpointReport& report, const CheckpointResult& result) {
  const auto bytes = static_cast<double>(report.bytes);
  const auto rate = [&](const Quartiles& seconds) {
    return digits_text(bytes / seconds.median * 1e-9);
  };
  std::string text =
      str("== ", digits_text(bytes * 1e-9), " GB, ", counted(report.parameters, "parameter"),
          " with Adam's state, of ", counted(result.replicas, "replica"), ", in ", result.folder,
          result.file_system.empty() ? "" : ", ", result.file_system, "; limits in GB/s: ");
  for (std::size_t i = 0; i < kCheckpointLimitNames.size(); ++i) {
    text += str(i == 0 ? "" : ", ", kCheckpointLimitNames[i], " ",
                rate(result.limits.of(static_cast<CheckpointLimit>(i))));
  }
  TextTable rows{
      {"", "save", "GB/s", "of limit", "pause", "of save", "load", "GB/s", "save MiB", "load MiB"}};
  for (const PartsMeasurement& measurement : result.measurements) {
    const Quartiles save = measurement.of(CheckpointPart::save);
    const Quartiles pause = measurement.of(CheckpointPart::pause);
    const Quartiles load = measurement.of(CheckpointPart::load);
    rows.push_back({measurement.system.label, spread_text(save), rate(save),
                    percent(share_of_limit(result, measurement)), spread_text(pause),
                    percent(pause.median / save.median), spread_text(load), rate(load),
                    megabytes_text(measurement.of(CheckpointPart::save_memory)),
                    megabytes_text(measurement.of(CheckpointPart::load_memory))});
  }
  text += "\n\n" + table_of(rows);
  for (const PartsMeasurement& measurement : result.measurements) {
    if (measurement.system.own) text += ratio_table(result, measurement);
  }
  return text + reload_table(result) + lines_of(result.measurements, note_line<PartsMeasurement>);
}

std::string result_text(const PartResult& result) {
  const Measurement& part = result.measurements.at(0);
  TextTable rows{{"", result.unit.empty() ? "time" : str("time a ", result.unit),
                  str("x ", part.system.label)}};
  for (const Measurement& measurement : result.measurements) {
    const auto [lower, median, upper] = measurement.seconds();
    rows.push_back(
        {measurement.system.label,
         spread_text({lower / result.amount, median / result.amount, upper / result.amount}),
         digits_text(median / part.seconds().median)});
  }
  return str("== ", result.name, ": ", result.what, "\n\n", table_of(rows));
}

}  // namespace lockstep::bench
