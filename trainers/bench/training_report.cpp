#include "trainers/bench/training_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "framework/base/text.h"
#include "framework/base/wording.h"
#include "trainers/bench/report_text.h"
#include "trainers/bench/units.h"

namespace lockstep::bench {
namespace {

constexpr double kBytesAParameter = 28;  // gradient, value and two moments read, all but it written

using Rows = std::vector<std::vector<std::string>>;

double part(const StepParts& parts, StepPart which) {
  return parts[static_cast<std::size_t>(which)];
}

const StepMeasurement* find(const TrainingResult& result, const std::string& label) {
  for (const StepMeasurement& measurement : result.measurements) {
    if (measurement.step.label == label) return &measurement;
  }
  return nullptr;
}

bool is_own(const StepMeasurement& measurement) {
  return measurement.name == "lockstep";
}

// "plain 1.13" of "ddp 1.13".
std::string plain_label(const StepMeasurement& peer) {
  return "plain" + peer.step.label.substr(peer.name.size());
}

// Of the first of Lockstep's ways to train.
std::string first_own_label(const TrainingResult& result) {
  for (const StepMeasurement& measurement : result.measurements) {
    if (is_own(measurement) && !is_reference(measurement)) return measurement.step.label;
  }
  return "";
}

std::string milliseconds(double seconds) {
  return digits_text(seconds * 1e3);
}

std::string percent(double share) {
  return str(std::lround(100 * share), '%');
}

std::string mebibytes(std::int64_t bytes) {
  return str(bytes >> 20);
}

Rows step_rows(const TrainingResult& result) {
  Rows rows{{"", "a step", "steps/s"}};
  for (const char* const name : kStepPartNames) rows[0].emplace_back(name);
  for (const char* const name : {"of floor", "efficiency", "peak MiB", "host MiB"})
    rows[0].emplace_back(name);
  const std::optional<Floor> floor = floor_of(result);
  for (const StepMeasurement& measurement : result.measurements) {
    if (is_reference(measurement)) continue;
    const double seconds = measurement.step.seconds.median;
    auto& row = rows.emplace_back(std::vector<std::string>{
        measurement.step.label, spread_text(measurement.step.seconds), digits_text(1 / seconds)});
    for (const double value : exposed_parts(result, measurement))
      row.push_back(milliseconds(value));
    const std::optional<double> scaling = efficiency(result, measurement);
    row.push_back(floor ? percent(floor->seconds() / seconds) : "");
    row.push_back(scaling ? percent(*scaling) : "");
    row.push_back(mebibytes(measurement.memory.peak_bytes));
    row.push_back(mebibytes(measurement.memory.host_bytes));
  }
  return rows;
}

// A row a peer, a column one of ours.
Rows ratio_rows(const std::vector<const Measurement*>& own,
                const std::vector<const Measurement*>& peers) {
  Rows rows{{"times as fast as"}};
  for (const Measurement* const measurement : own) rows[0].push_back(measurement->label);
  for (const Measurement* const peer : peers) {
    auto& row = rows.emplace_back(1, peer->label);
    for (const Measurement* const measurement : own)
      row.push_back(digits_text(peer->seconds.median / measurement->seconds.median));
  }
  return rows;
}

std::string notes_text(const TrainingResult& result) {
  std::string text;
  for (const StepMeasurement& measurement : result.measurements) {
    if (!measurement.step.note.empty())
      text += str(measurement.step.label, ": ", measurement.step.note, "\n");
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace

bool is_reference(const StepMeasurement& measurement) {
  return measurement.step.label == kAlone || measurement.name == kSingle;
}

std::optional<Floor> floor_of(const TrainingResult& result) {
  const StepMeasurement* const alone = find(result, kAlone);
  if (alone == nullptr) return std::nullopt;
  return Floor{
      .compute = part(alone->parts, StepPart::forward) + part(alone->parts, StepPart::backward),
      .update = kBytesAParameter * static_cast<double>(result.parameters) /
                result.limit.bytes_per_second};
}

StepParts exposed_parts(const TrainingResult& result, const StepMeasurement& measurement) {
  StepParts parts = measurement.parts;
  const StepMeasurement* const alone =
      find(result, is_own(measurement) ? kAlone : plain_label(measurement));
  if (alone == nullptr) return parts;
  const bool shares = measurement.name == "zero";
  for (const StepPart which : {StepPart::forward, StepPart::backward, StepPart::update}) {
    const auto i = static_cast<std::size_t>(which);
    double own = alone->parts[i];
    if (shares && which == StepPart::update) own /= static_cast<double>(result.replicas);
    parts[static_cast<std::size_t>(StepPart::communication)] += parts[i] - own;
    parts[i] = own;
  }
  return parts;
}

std::optional<double> efficiency(const TrainingResult& result, const StepMeasurement& measurement) {
  const std::string compared =
      is_own(measurement) ? first_own_label(result) : plain_label(measurement);
  const StepMeasurement* const single = find(result, compared + kSingleSuffix);
  if (single == nullptr) return std::nullopt;
  return single->step.seconds.median / measurement.step.seconds.median;
}

std::string result_text(const TrainingResult& result) {
  std::string text =
      str("== ", result.model, ", ", counted(result.parameters, "parameter"), ", ",
          counted(result.replicas, "replica"), " of ", counted(result.batch, "sample"));
  if (const std::optional<Floor> floor = floor_of(result)) {
    text += str("; floor ", time_text(floor->seconds()), ": ", time_text(floor->compute),
                " forward and backward, ", time_text(floor->update), " update at ",
                digits_text(result.limit.bytes_per_second * 1e-9), " GB/s");
  }
  text += "\n\n" + text_table(step_rows(result)) + "\n";
  std::vector<const Measurement*> own;
  std::vector<const Measurement*> peers;
  for (const StepMeasurement& measurement : result.measurements) {
    if (!is_reference(measurement))
      (is_own(measurement) ? own : peers).push_back(&measurement.step);
  }
  if (!own.empty() && !peers.empty()) text += text_table(ratio_rows(own, peers)) + "\n";
  return text + notes_text(result);
}

std::string launches_text(const TrainingReport& report) {
  std::string text =
      str("== launch to first step, pmean_linear, ", report.launched_replicas, " processes\n\n");
  Rows rows{{"", "time"}};
  std::vector<const Measurement*> own;
  std::vector<const Measurement*> peers;
  for (const Measurement& launch : report.launches) {
    rows.push_back({launch.label, spread_text(launch.seconds)});
    (launch.label == "train" ? own : peers).push_back(&launch);
  }
  text += text_table(rows) + "\n";
  if (!own.empty() && !peers.empty()) text += text_table(ratio_rows(own, peers)) + "\n";
  return text;
}

}  // namespace lockstep::bench
