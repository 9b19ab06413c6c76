#include "trainers/bench/reports/report.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/range.h"

namespace lockstep::bench {
namespace {

constexpr const char* kPlain = "plain";  // the name of PyTorch's loop without others
constexpr double kBytesAParameter = 28;  // gradient, value and two moments read, all but it written

const Measurement* find(const TrainingResult& result, const std::string& label) {
  for (const Measurement& measurement : result.measurements) {
    if (measurement.system.label == label) return &measurement;
  }
  return nullptr;
}

// "plain 1.13" of "ddp 1.13".
std::string plain_label(const SystemFacts& peer) {
  return kPlain + peer.label.substr(peer.name.size());
}

// The label of the first of Lockstep's ways to train.
std::string first_own_label(const TrainingResult& result) {
  for (const Measurement& measurement : result.measurements) {
    if (measurement.system.own && !is_reference(measurement)) return measurement.system.label;
  }
  return "";
}

// The parts that a system has without others, too.
constexpr std::array kComputedParts{StepPart::forward, StepPart::backward, StepPart::update};

// A system's forward, backward and update without others.
const Measurement* alone_of(const TrainingResult& result, const SystemFacts& system) {
  return find(result, system.own ? kAlone : plain_label(system));
}

// Of a system's forward and backward.
double compute_of(const Measurement& measurement) {
  return measurement.parts[static_cast<std::size_t>(StepPart::forward)] +
         measurement.parts[static_cast<std::size_t>(StepPart::backward)];
}

// Of a host's cable.
std::optional<double> bytes_per_second(const NetworkFacts& network) {
  if (network.hosts == 1 || network.rate_mbit == 0) return std::nullopt;
  return 1e6 / 8 * static_cast<double>(network.rate_mbit);
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
  const std::int64_t parties = result.network.hosts > 1 ? result.network.hosts : result.replicas;
  return bus_bytes(result.operation, parties, size.bytes) / measurement.seconds().median;
}

double share_of_limit(const OperationResult& result, const SizeResult& size,
                      const Measurement& measurement) {
  return moved_bytes(result.operation, result.replicas, size.bytes) / measurement.seconds().median /
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
  return Floor{.compute = compute_of(*alone),
               .update = kBytesAParameter * static_cast<double>(result.parameters) /
                         result.limit.bytes_per_second};
}

StepParts exposed_parts(const TrainingResult& result, const Measurement& measurement) {
  StepParts parts = measurement.parts;
  const SystemFacts& system = measurement.system;
  if (is_reference(measurement)) return parts;
  const Measurement* const alone = alone_of(result, system);
  if (alone == nullptr) return parts;
  // Of the parameters, which a replica updates.
  const bool is_sharded = system.name == "zero" || system.name == "fsdp";
  const double share = is_sharded ? 1 / static_cast<double>(result.replicas) : 1;
  constexpr auto kCommunication = static_cast<std::size_t>(StepPart::communication);
  std::vector<double> waits;
  for (std::size_t turn = 0; turn < std::min(measurement.turns.size(), alone->turns.size());
       ++turn) {
    const StepParts& together = measurement.turns[turn];
    double& wait = waits.emplace_back(together[kCommunication]);
    for (const StepPart which : kComputedParts) {
      const auto i = static_cast<std::size_t>(which);
      wait += together[i] - (which == StepPart::update ? share : 1) * alone->turns[turn][i];
    }
  }
  parts[kCommunication] = quartiles(std::move(waits)).median;
  for (const StepPart which : kComputedParts) {
    const auto i = static_cast<std::size_t>(which);
    parts[i] = (which == StepPart::update ? share : 1) * alone->parts[i];
  }
  return parts;
}

double times_of(const Measurement& measurement, const Measurement& other) {
  std::vector<double> times;
  for (std::size_t i = 0; i < std::min(measurement.samples.size(), other.samples.size()); ++i)
    times.push_back(measurement.samples[i] / other.samples[i]);
  return quartiles(std::move(times)).median;
}

std::optional<double> exposed_ratio(const TrainingResult& result, const Measurement& measurement,
                                    const Measurement& peer) {
  if (alone_of(result, measurement.system) == nullptr || alone_of(result, peer.system) == nullptr ||
      peer.system.name == kPlain) {
    return std::nullopt;
  }
  const auto exposed = [&](const Measurement& of) {
    return exposed_parts(result, of)[static_cast<std::size_t>(StepPart::communication)];
  };
  const double theirs = exposed(peer);
  if (theirs <= 0) return std::nullopt;
  return std::max(exposed(measurement), 0.0) / theirs;
}

std::optional<double> compute_ratio(const TrainingResult& result, const Measurement& plain) {
  const Measurement* const alone = find(result, kAlone);
  if (alone == nullptr || plain.system.name != kPlain) return std::nullopt;
  return compute_of(*alone) / compute_of(plain);
}

const Measurement* unaugmented(const TrainingResult& result, const Measurement& measurement) {
  const std::string& label = measurement.system.label;
  const std::size_t end = label.find(kAugmentedSuffix);
  if (end == std::string::npos) return nullptr;
  return find(result,
              label.substr(0, end) + label.substr(end + std::string_view(kAugmentedSuffix).size()));
}

std::optional<double> network_bound(const TrainingResult& result) {
  const Measurement* const alone = find(result, kAlone);
  const std::optional<double> speed = bytes_per_second(result.network);
  if (alone == nullptr || !speed) return std::nullopt;
  std::vector<std::size_t> last_first = consecutive(std::size_t{0}, result.gradient_bytes.size());
  const std::vector<double>& ready = alone->gradients_ready;
  std::ranges::sort(last_first, std::greater{}, [&](std::size_t i) { return ready.at(i); });
  double bound = floor_of(result)->seconds();
  std::int64_t bytes = 0;
  for (const std::size_t i : last_first) {
    bytes += result.gradient_bytes[i];
    const double sent = bus_bytes(Operation::all_reduce, result.network.hosts, bytes);
    bound = std::max(
        bound, ready[i] + sent / *speed + 1e-3 * static_cast<double>(result.network.delay_ms));
  }
  return bound;
}

std::optional<NetworkUse> network_use(const TrainingResult& result,
                                      const Measurement& measurement) {
  const std::optional<double> speed = bytes_per_second(result.network);
  if (!speed) return std::nullopt;
  const StepParts parts = exposed_parts(result, measurement);
  const double exposed = parts[static_cast<std::size_t>(StepPart::communication)];
  const double cable = measurement.sent_bytes / *speed;
  return NetworkUse{.cable = cable, .hidden = std::clamp(cable - exposed, 0.0, cable)};
}

std::optional<double> efficiency(const TrainingResult& result, const Measurement& measurement) {
  const SystemFacts& system = measurement.system;
  const Measurement* const single =
      find(result, (system.own ? first_own_label(result) : plain_label(system)) + kSingleSuffix);
  if (single == nullptr || is_reference(measurement)) return std::nullopt;
  return single->seconds().median / measurement.seconds().median;
}

}  // namespace lockstep::bench
