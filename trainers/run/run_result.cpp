#include "trainers/run/run_result.h"

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>

#include "framework/base/cores.h"
#include "framework/collectives/all_gather.h"
#include "framework/launch/launch.h"
#include "framework/maps/machine.h"
#include "trainers/run/command_text.h"

namespace lockstep {
namespace {

std::string backend_of(const LaunchOptions& launch) {
  if (launch.hosts.count > 1) return "shared_memory and tcp";
  return launch.backend == Backend::gloo ? "gloo" : "shared_memory";
}

// Why the bits may differ from those of a run that was not interrupted, a line each.
std::vector<std::string> waived(const Config& config, const ResumePoint* resume) {
  std::vector<std::string> lines;
  if (config.launch.hosts.count > 1 && config.launch.hosts.allow_mixed) {
    lines.emplace_back("parallel.allow_mixed lets hosts differ, which may round differently");
  }
  if (config.zero.compression != Compression::none) {
    lines.emplace_back("parallel.compression rounds what replicas send");
  }
  std::istringstream text(resume != nullptr ? resume->waived : "");
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::optional<EngineRecord> engine_of(const engines::Whereabouts& where) {
  if (!engines::is_engine(where.engine)) return std::nullopt;
  return EngineRecord{engines::name_of(where.engine), where.job, where.step, where.restarts};
}

}  // namespace

RunResult result_of_job(const Config& config, const ResumePoint* resume,
                        const engines::Whereabouts& where) {
  const LaunchOptions& launch = config.launch;
  return {.replicas = launch.replicas,
          .zero_stage = config.zero.stage,
          .threads_per_replica = maps::own_math_threads(),
          .workers = launch.workers > 0 ? launch.workers : launch.replicas,
          .hosts = launch.hosts.count,
          .launch = name_of(launch.mode),
          .backend = backend_of(launch),
          .blas = maps::blas().name,
          .libtorch = maps::libtorch_version(),
          .lockstep = LOCKSTEP_VERSION,
          .cpu = maps::cpu_model(),
          .cores = usable_cores(),
          .command = command_text(maps::command_line()),
          .restarts = launch_restarts(),
          .engine = engine_of(where),
          .changes = resume != nullptr ? resume->changes : std::vector<std::string>{},
          .waived = waived(config, resume)};
}

std::vector<std::int64_t> hosts_of_replicas(const LaunchOptions& launch) {
  if (launch.hosts.count == 1) return {};
  const at::Tensor all =
      all_gather(at::tensor({std::int64_t{launch_host()}}), launch.axis_name, {.tiled = true})
          .contiguous();
  return {all.data_ptr<std::int64_t>(), all.data_ptr<std::int64_t>() + all.numel()};
}

}  // namespace lockstep
