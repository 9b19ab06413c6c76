#include "trainers/bench/reports/report.h"

#include <algorithm>

#include "framework/base/errors.h"

namespace lockstep::bench {
namespace {

constexpr double kBytesAParameter = 28;  // gradient, value and two moments read, all but it written

const Measurement* find(const TrainingResult& result, const std::string& label) {
  for (const Measurement& measurement : result.measurements) {
    if (measurement.system.label == label) return &measurement;
  }
  return nullptr;
}

// "plain 1.13" of "ddp 1.13".
std::string plain_label(const SystemFacts& peer) {
  return "plain" + peer.label.substr(peer.name.size());
}

// The label of the first of Lockstep's ways to train.
std::string first_own_label(const TrainingResult& result) {
  for (const Measurement& measurement : result.measurements) {
    if (measurement.system.own && !is_reference(measurement)) return measurement.system.label;
  }
  return "";
}

}  // namespace

Quartiles quartiles(std::vector<double> samples) {
  if (samples.empty()) throw ValueError("quartiles: there are no samples");
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] +
           (place - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {.lower = at(0.25), .median = at(0.5), .upper = at(0.75)};
}

double bus_bandwidth(const OperationResult& result, const SizeResult& size,
                     const Measurement& measurement) {
  return bus_bytes(result.operation, result.replicas, size.bytes) / measurement.seconds.median;
}

double share_of_limit(const OperationResult& result, const SizeResult& size,
                      const Measurement& measurement) {
  return moved_bytes(result.operation, result.replicas, size.bytes) / measurement.seconds.median /
         result.limit.bytes_per_second;
}

double share_of_limit(const CheckpointResult& result, const PartsMeasurement& measurement) {
  const double least = std::max(result.limits.of(CheckpointLimit::write).median,
                                result.limits.of(CheckpointLimit::checksum).median);
  return least / measurement.of(CheckpointPart::save).median;
}

bool is_reference(const Measurement& measurement) {
  return measurement.system.label == kAlone || measurement.system.name == kSingle;
}

std::optional<Floor> floor_of(const TrainingResult& result) {
  const Measurement* const alone = find(result, kAlone);
  if (alone == nullptr) return std::nullopt;
  const auto part = [&](StepPart which) { return alone->parts[static_cast<std::size_t>(which)]; };
  return Floor{.compute = part(StepPart::forward) + part(StepPart::backward),
               .update = kBytesAParameter * static_cast<double>(result.parameters) /
                         result.limit.bytes_per_second};
}

StepParts exposed_parts(const TrainingResult& result, const Measurement& measurement) {
  StepParts parts = measurement.parts;
  const SystemFacts& system = measurement.system;
  if (is_reference(measurement)) return parts;
  const Measurement* const alone = find(result, system.own ? kAlone : plain_label(system));
  if (alone == nullptr) return parts;
  for (const StepPart which : {StepPart::forward, StepPart::backward, StepPart::update}) {
    const auto i = static_cast<std::size_t>(which);
    double own = alone->parts[i];
    if (system.name == "zero" && which == StepPart::update)
      own /= static_cast<double>(result.replicas);
    parts[static_cast<std::size_t>(StepPart::communication)] += parts[i] - own;
    parts[i] = own;
  }
  return parts;
}

std::optional<double> efficiency(const TrainingResult& result, const Measurement& measurement) {
  const SystemFacts& system = measurement.system;
  const Measurement* const single =
      find(result, (system.own ? first_own_label(result) : plain_label(system)) + kSingleSuffix);
  if (single == nullptr || is_reference(measurement)) return std::nullopt;
  return single->seconds.median / measurement.seconds.median;
}

}  // namespace lockstep::bench
