#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainers/bench/reports/operation.h"

namespace lockstep::bench {

// The results of bench, as data, a report for each measurement, and figures computed from them.

/// Facts about the machine that figures depend on.
struct MachineFacts {
  std::string cpu;           ///< its model's name
  std::int64_t cores = 0;    ///< that this process may run on
  std::string instructions;  ///< the widest vectors: "AVX-512", "AVX2" or ""
  std::int64_t memory_bytes = 0;
  std::int64_t last_cache_bytes = 0;
  double load = 0;     ///< how many threads wanted to run in the last minute, on average
  std::string kernel;  ///< "Linux 6.1.0"
  std::string date;    ///< today, in UTC: "2026-11-21"
};

/// The bandwidth of this machine's memory for so many threads at once.
struct MemoryBandwidth {
  std::int64_t threads = 0;
  double bytes_per_second = 0;  ///< read and written together
  std::string how;              ///< the kind of copy that was the fastest
};

/// The network between the hosts over which replicas are spread.
struct NetworkFacts {
  std::int64_t hosts = 1;      ///< 1: there is none
  std::int64_t rate_mbit = 0;  ///< of each host's cable, either way; 0: as fast as it goes
  std::int64_t delay_ms = 0;   ///< from any host to any other, one way
};

/// A library in one mode of use.
struct SystemFacts {
  std::string name;     ///< as --systems has it: "psum", "c10d"
  std::string label;    ///< as tables have it: "psum threads", "c10d 1.13"
  std::string version;  ///< "LibTorch 1.13.0", "PyTorch 2.9.0"
  bool own = false;     ///< Lockstep, not a peer
};

/// A system that was not measured, and why.
struct LeftOut {
  std::string name;
  std::string reason;
};

/// The middle of samples and how far the middle half of them reaches.
struct Quartiles {
  double lower = 0;
  double median = 0;
  double upper = 0;
};

/// The quartiles of one or more samples, interpolated linearly between neighbours (as NumPy's
/// percentile does). ValueError without any.
[[nodiscard]] Quartiles quartiles(std::vector<double> samples);

/// The parts of a training step. Communication is the time in which a replica waits for others or
/// moves bytes to them. Where it runs during other parts, only exposed_parts() separates it.
enum class StepPart : std::size_t { data, forward, backward, communication, update };

inline constexpr std::array<const char*, 5> kStepPartNames{"data", "forward", "backward",
                                                           "communication", "update"};

/// Seconds of each part.
using StepParts = std::array<double, kStepPartNames.size()>;

/// The memory of a system's replicas.
struct ProcessMemory {
  std::int64_t peak_bytes = 0;   ///< of the process that had the most
  std::int64_t host_bytes = 0;   ///< now, of all processes, pages that they share counted once
  std::int64_t first_bytes = 0;  ///< the same after the first step; of growths
};

/// The time of one system for one case.
struct Measurement {
  SystemFacts system;
  std::vector<double> samples = {};  ///< seconds a call, in the order measured
  std::int64_t calls = 1;            ///< in a sample
  std::string note = {};             ///< what a reader should know of how it was done; mostly ""
  StepParts parts = {};              ///< of a training step: medians, as the replicas measured them
  std::vector<StepParts> turns = {};         ///< whose medians those are, one a sample
  ProcessMemory memory = {};                 ///< of training
  std::vector<double> gradients_ready = {};  ///< "alone": of each parameter, since the step's begin
  double sent_bytes = 0;  ///< in a call by one of several hosts, with all headers

  [[nodiscard]] Quartiles seconds() const { return quartiles(samples); }
};

/// The beginning of every report.
struct Heading {
  MachineFacts machine;
  std::vector<SystemFacts> systems;
  std::vector<LeftOut> left_out;
};

/// All systems on one size, in the order of the report's systems.
struct SizeResult {
  std::int64_t bytes = 0;
  std::vector<Measurement> measurements;
};

/// One operation on one number of replicas.
struct OperationResult {
  Operation operation = Operation::all_reduce;
  std::int64_t replicas = 0;
  MemoryBandwidth limit;  ///< of as many threads as replicas can run at once; of one host
  NetworkFacts network = {};
  std::vector<SizeResult> sizes = {};
  std::vector<std::string> notes = {};  ///< what a reader should know of these figures
};

struct CollectivesReport {
  Heading heading;
  std::vector<OperationResult> results = {};
};

struct VdotReport {
  Heading heading;
  std::int64_t replicas = 0;
  std::int64_t bytes = 0;  ///< of each of the two arrays
  std::vector<Measurement> measurements = {};
};

/// One model on one number of replicas.
struct TrainingResult {
  std::string model;
  std::int64_t parameters = 0;
  std::int64_t replicas = 0;
  std::int64_t batch = 0;                      ///< samples a replica
  MemoryBandwidth limit;                       ///< of as many threads as replicas can run at once
  std::vector<Measurement> measurements = {};  ///< in the order of the report's systems
  NetworkFacts network = {};
  std::vector<std::int64_t> gradient_bytes = {};  ///< of each parameter
};

struct TrainingReport {
  Heading heading;
  std::vector<TrainingResult> results = {};
  std::int64_t launched_replicas = 0;
  std::vector<Measurement> launches = {};    ///< seconds from a launch to its first step
  std::vector<TrainingResult> growths = {};  ///< memory after the first of `steps` and after all
  std::int64_t steps = 0;
};

/// What saving and loading take: seconds, and bytes of the replica that needs the most.
enum class CheckpointPart : std::size_t {
  save,         ///< until all is on the disk
  pause,        ///< until the call returns and training may go on
  load,         ///< of what was just saved: its pages are in the system's cache
  save_memory,  ///< the peak, beyond what the process had before its first save
  load_memory   ///< the peak, beyond what it had before this load
};
inline constexpr std::array<const char*, 5> kCheckpointPartNames{"save", "pause", "load",
                                                                 "save_memory", "load_memory"};

/// Seconds that the same bytes take at the least, in as many processes.
enum class CheckpointLimit : std::size_t {
  write,     ///< write() and fsync
  read,      ///< read()
  copy,      ///< from memory to memory that the process has had before
  checksum,  ///< XXH3
};
inline constexpr std::array<const char*, 4> kCheckpointLimitNames{"write", "read", "copy",
                                                                  "checksum"};

/// Loading by another number of replicas.
enum class ReloadPart : std::size_t {
  load,
  load_memory,  ///< the peak, beyond `held`
  held,         ///< bytes, beyond what the process had before it made its model
  predicted,    ///< of `held`, by predicted_memory()
};
inline constexpr std::array<const char*, 4> kReloadPartNames{"load", "load_memory", "held",
                                                             "predicted"};

/// One system's samples. Of each turn the slowest replica counts.
struct PartsMeasurement {
  SystemFacts system;
  std::vector<std::vector<double>> samples = {};  ///< by part, in the order measured
  std::string note = {};
  std::int64_t replicas = 0;

  template <typename Part>
  [[nodiscard]] Quartiles of(Part part) const {
    return quartiles(samples.at(static_cast<std::size_t>(part)));
  }
};

/// Checkpoints of one number of replicas in one folder.
struct CheckpointResult {
  std::string folder;
  std::string file_system;  ///< "ext4", "tmpfs"; "" if unknown
  std::int64_t replicas = 0;
  PartsMeasurement limits;
  std::vector<PartsMeasurement> measurements = {};  ///< in the order of the report's systems
  std::vector<PartsMeasurement> reloads = {};       ///< of what Lockstep has saved
};

struct CheckpointReport {
  Heading heading;
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;  ///< of the state, on all replicas together
  std::vector<CheckpointResult> results = {};
};

/// One part of Lockstep, beside what it is compared with.
struct PartResult {
  std::string name;       ///< as --measure has it
  std::string what;       ///< is measured
  std::string unit = {};  ///< of what a call is for: "MiB"; "" where it is one thing
  double amount = 1;      ///< of these
  std::vector<Measurement> measurements = {};  ///< the part's first
};

struct PartsReport {
  std::string measurement = "parts";  ///< or "peak" or "recorder"
  Heading heading = {};
  std::vector<PartResult> results = {};
};

/// What the slower of writing and the checksum alone takes, over a save.
[[nodiscard]] double share_of_limit(const CheckpointResult& result,
                                    const PartsMeasurement& measurement);

/// Of bus_bytes(), a second. On several hosts it is what each of them must send, and its replicas
/// do not matter.
[[nodiscard]] double bus_bandwidth(const OperationResult& result, const SizeResult& size,
                                   const Measurement& measurement);

/// The part of the memory's bandwidth that a system uses for moved_bytes(). It may be more than 1
/// with buffers in a cache.
[[nodiscard]] double share_of_limit(const OperationResult& result, const SizeResult& size,
                                    const Measurement& measurement);

/// The label of training with nothing but forward, backward, and the update of the replica's share
/// of the parameters.
inline constexpr const char* kAlone = "alone";

/// The name of systems with one replica, measured among systems with more. The suffix is appended
/// to the label of the system that runs with one replica.
inline constexpr const char* kSingle = "single";
inline constexpr const char* kSingleSuffix = ", 1 replica";

/// The end of the label of Lockstep's training on images that are cropped and mirrored at random.
/// What comes before it is the label of the same on images as they are.
inline constexpr const char* kAugmented = "augmented";
inline constexpr const char* kAugmentedSuffix = " augmented";

/// Whether it is measured only for comparison: kAlone, or a system with one replica.
[[nodiscard]] bool is_reference(const Measurement& measurement);

/// The least time of a step.
struct Floor {
  double compute = 0;  ///< forward and backward, as "alone" takes them
  double update = 0;   ///< Adam's 28 bytes a parameter, each once, at the memory's speed
  [[nodiscard]] double seconds() const { return compute + update; }
};

/// None if "alone" was not measured.
[[nodiscard]] std::optional<Floor> floor_of(const TrainingResult& result);

/// The parts of a system's step with exposed communication: forward, backward and update are what
/// they take alone, the rest of the step is communication, a median over turns in which both ran.
/// Lockstep's systems take them from "alone", peers from the plain loop of their version (zero,
/// fsdp: the replica's share of its update). Without these, parts are as the replicas measured
/// them.
[[nodiscard]] StepParts exposed_parts(const TrainingResult& result, const Measurement& measurement);

/// How a system's time compares with another's: the median over the repetitions, in each of which
/// both had a turn. Below 1: it is faster.
[[nodiscard]] double times_of(const Measurement& measurement, const Measurement& other);

/// The exposed communication of one system over that of a peer: 0 if it has none. None if the peer
/// has none or trains each replica for itself, or if one lacks what exposed_parts() needs.
[[nodiscard]] std::optional<double> exposed_ratio(const TrainingResult& result,
                                                  const Measurement& measurement,
                                                  const Measurement& peer);

/// Lockstep's forward and backward alone over those of a peer's plain loop. None for other systems.
[[nodiscard]] std::optional<double> compute_ratio(const TrainingResult& result,
                                                  const Measurement& plain);

/// Of a system on augmented images: the same system's measurement on images as they are, or
/// nullptr.
[[nodiscard]] const Measurement* unaugmented(const TrainingResult& result,
                                             const Measurement& measurement);

/// The least time of a step on several hosts: a host cannot send a gradient before it is ready, and
/// sends 2 (H-1)/H of all of them at the rate of its cable; and no less than the floor. None
/// without "alone", and where the network has no limit of rate.
[[nodiscard]] std::optional<double> network_bound(const TrainingResult& result);

/// Communication of a step on several hosts, in seconds.
struct NetworkUse {
  double cable = 0;   ///< what the host's cable takes for the bytes that the host has sent
  double hidden = 0;  ///< of that, beside other parts of the step: the rest is exposed
};

/// None where the network has no limit of rate.
[[nodiscard]] std::optional<NetworkUse> network_use(const TrainingResult& result,
                                                    const Measurement& measurement);

/// Weak scaling: the time of one replica (in Lockstep's first mode, or in the plain loop of a
/// peer's version) divided by the time here, both from the same turns.
[[nodiscard]] std::optional<double> efficiency(const TrainingResult& result,
                                               const Measurement& measurement);

}  // namespace lockstep::bench
