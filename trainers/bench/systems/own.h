#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/replicas/launch.h"
#include "framework/replicas/machine.h"
#include "trainers/bench/systems/link.h"
#include "trainers/bench/systems/system.h"

namespace lockstep::bench {

// The systems that are this binary itself: the driver starts it as
// `bench worker MEASUREMENT WAY processes|threads REPLICAS FOLDER [HOST PORT ADDRESS...]`. What is
// last is for one of several hosts: its number, a port of the first one, and all of their
// addresses. They share the secret in the folder.

inline constexpr const char* kThisBinary = "/proc/self/exe";
inline constexpr const char* kSecret = "secret";
inline constexpr const char* kPlainTcp = "tcp";

inline constexpr const char* kAxis = "replicas";  ///< over which the replicas of a worker talk

/// Lockstep's ways to run collectives, each in those of `modes` that it can.
[[nodiscard]] std::vector<System> collective_systems(const std::vector<LaunchMode>& modes);
/// Those that can run on several hosts, and plain TCP between the hosts.
[[nodiscard]] std::vector<System> collective_systems_on_hosts(std::int64_t hosts);
[[nodiscard]] std::unique_ptr<ReplicaTask> make_collective(const std::string& way);
/// TCP with nothing on top: what the hosts' network can do. Each sends to the next one, while it
/// receives from the one before, as many bytes as a host must send in the operation. Listens at
/// `port` of addresses[host] (IPv4). Throws CommError.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_plain_tcp(const std::vector<std::string>& addresses,
                                                          std::size_t host, std::uint16_t port);

/// The dot product of two arrays of float32 values, by Lockstep's pmap and by LibTorch in one
/// thread and on all cores.
inline constexpr std::int64_t kVdotReplicas = 8;
inline constexpr std::int64_t kVdotRows = 10'000'000;
inline constexpr std::int64_t kVdotColumns = 3;
[[nodiscard]] std::vector<System> vdot_systems();
[[nodiscard]] std::unique_ptr<ReplicaTask> make_vdot(const std::string& way);

/// Lockstep's training: kAlone, each stage of ZeRO on each of these data in each mode, and
/// train_system() with one step of the pmean example. The operation is a model's name, its amount
/// the samples of a replica's batch. Data are "memory" and kAugmented, for models of images.
[[nodiscard]] std::vector<System> training_systems(const std::vector<std::int64_t>& stages,
                                                   const std::vector<LaunchMode>& modes,
                                                   const std::vector<std::string>& data);
[[nodiscard]] std::unique_ptr<ReplicaTask> make_training(const std::string& way);
/// The `train` binary beside this one, with a config in YAML whose training is one step. It prints
/// "step 1" at its end.
[[nodiscard]] System train_system(const std::string& config);
inline constexpr const char* kTrain = "train";  ///< its label
/// Samples of a replica's batch.
[[nodiscard]] std::int64_t default_batch(const std::string& model);
/// Whether it is trained on images, which can be augmented.
[[nodiscard]] bool takes_images(const std::string& model);
/// The number of values in each parameter of the model called `model`.
[[nodiscard]] std::vector<std::int64_t> parameters_of(const std::string& model);

/// Lockstep's checkpoints at a stage, in the folder kCheckpoints of the environment. The operation
/// is "save", with the parts of CheckpointPart, or "reload", with those of ReloadPart; its amount
/// the model's parameters.
[[nodiscard]] System checkpoint_system(std::int64_t stage);
/// What the files of such a state take at the least: its parts are those of CheckpointLimit.
[[nodiscard]] System checkpoint_limits();
[[nodiscard]] std::unique_ptr<ReplicaTask> make_checkpoint(const std::string& way);
inline constexpr const char* kCheckpoints = "LOCKSTEP_BENCH_FOLDER";
/// Of the state of a parameter in float32 with Adam's two moments.
inline constexpr std::int64_t kStateBytesAParameter = 12;

/// shard_map over replicas as threads, which return a tensor with the spec P(), alike and each its
/// own: with the check that they are alike, or without it. The amount is the tensor's bytes.
inline constexpr std::int64_t kReplicatedOver = 2;
[[nodiscard]] System replicated_system(bool checked);
[[nodiscard]] std::unique_ptr<ReplicaTask> make_replicated(const std::string& way);

/// A system of this binary. Its label is `way`, followed by " threads" in that mode.
[[nodiscard]] System own_system(const std::string& measurement, const std::string& name,
                                const std::string& way, LaunchMode mode = LaunchMode::processes,
                                const std::string& version = replicas::libtorch_version());

/// Runs the worker until the driver hangs up. `arguments` follow "worker" on its command line.
/// Returns the exit status.
[[nodiscard]] int run_worker(const std::vector<std::string>& arguments);

}  // namespace lockstep::bench
