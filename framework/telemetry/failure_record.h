#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/launch/job_failure.h"

namespace lockstep {

/// The most events of a replica that are kept, and of its operators (telemetry.operators) as many.
inline constexpr std::size_t kFailureEvents = 100;

/// What a job leaves in its run's folder whose replicas have thrown, or were lost, late or out of
/// step. Each host's launcher writes its own: failure.json, and on others than host 0
/// failure.host-N.json, since hosts may share the folder. It is the last failure: a run that goes
/// on, or starts again, leaves it there, and the next failure takes its place.
struct FailureRecord {
  struct Event {
    std::string track;            ///< "replica", or what went on beside it
    std::string kind;             ///< as name_of(SpanKind) has it
    std::string name{};           ///< of a call: "psum over 'data' at model.cpp:44"
    double begin_s = 0;           ///< before the failure was noticed on this host: negative
    std::optional<double> end_s;  ///< likewise; none: it went on, or its replica was killed in it
    std::uint64_t bytes = 0;
    std::string id{};  ///< of a call: equal on all its replicas; of another event its step; or ""
  };
  struct Replica {
    std::int64_t replica = 0;
    std::optional<std::int64_t> step{};  ///< the last that it was in, if it has recorded any
    std::vector<Event> events{};         ///< the last ones that have begun, in that order
  };

  std::string time{};  ///< when it was written: "2026-11-27 12:00:17 UTC"
  std::string verdict{};
  std::string versions{};
  bool starts_again = false;
  std::int64_t restarts = 0;
  std::int64_t host = 0;
  std::int64_t hosts = 1;
  std::vector<Replica> replicas{};  ///< of the host
};

/// The record of a failure now. `versions`, for people, are those of what has run.
[[nodiscard]] FailureRecord failure_record(const JobFailure& failure, const std::string& versions);

/// Writes the host's file into a run's folder, atomically; makes the folder if need be. Throws
/// Error where it can't be written.
void write_failure(const std::filesystem::path& folder, const FailureRecord& record);

/// The files of hosts in a run's folder, in their order. None: the run has not failed so.
[[nodiscard]] std::vector<std::filesystem::path> failure_files(const std::filesystem::path& folder);
/// Throws DataError, naming file and reason, for one that write_failure() has not written wholly.
[[nodiscard]] FailureRecord read_failure(const std::filesystem::path& file);

/// Tells people in about ten lines what has happened, and what each replica did last. `records` are
/// one or more hosts' records of one failure.
[[nodiscard]] std::string failure_text(const std::vector<FailureRecord>& records);

}  // namespace lockstep
