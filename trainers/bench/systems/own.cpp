#include "trainers/bench/systems/own.h"

#include <cstddef>
#include <filesystem>
#include <iterator>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/replicas/pmap.h"

namespace lockstep::bench {
namespace {

std::unique_ptr<ReplicaTask> make_task(const std::string& measurement, const std::string& way) {
  if (measurement == "collectives") return make_collective(way);
  if (measurement == "vdot") return make_vdot(way);
  if (measurement == "training") return make_training(way);
  if (measurement == "replicated") return make_replicated(way);
  if (measurement == "checkpoint") return make_checkpoint(way);
  throw ValueError(str("bench worker: unknown measurement '", measurement, "'"));
}

}  // namespace

System own_system(const std::string& measurement, const std::string& name, const std::string& way,
                  LaunchMode mode, const std::string& version) {
  return {.facts = {.name = name,
                    .label = mode == LaunchMode::threads ? way + " threads" : way,
                    .version = version,
                    .own = true},
          .programs = [=](std::int64_t replicas, const std::filesystem::path& folder) {
            return std::vector<Program>{
                {{kThisBinary, "worker", measurement, way, name_of(mode), str(replicas), folder}}};
          }};
}

int run_worker(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5 && arguments.size() < 8)
    throw ValueError("bench worker is started by bench alone");
  const std::string& measurement = arguments[0];
  const std::string& way = arguments[1];
  const LaunchMode mode =
      arguments[2] == name_of(LaunchMode::threads) ? LaunchMode::threads : LaunchMode::processes;
  const std::int64_t replicas = std::stoll(arguments[3]);
  const std::filesystem::path folder = arguments[4];
  HostOptions hosts;
  if (arguments.size() > 5) {
    const std::vector<std::string> addresses(arguments.begin() + 7, arguments.end());
    hosts = {.count = std::ssize(addresses),
             .rank = std::stoll(arguments[5]),
             .rendezvous = str(addresses[0], ":", arguments[6]),
             .secret_file = folder / kSecret};
    if (way == kPlainTcp) {
      const auto task = make_plain_tcp(addresses, static_cast<std::size_t>(hosts.rank),
                                       static_cast<std::uint16_t>(std::stoi(arguments[6])));
      serve(*task, folder, hosts.rank);
      return 0;
    }
  }
  set_quiet(true);
  if (measurement == "vdot" || measurement == "replicated") {  // a call of it is all replicas
    serve(*make_task(measurement, way), folder, 0);
    return 0;
  }
  const auto replica = [&] { serve(*make_task(measurement, way), folder, axis_index(kAxis)); };
  // One math thread each, as peers are told.
  if (way == "pmap") {
    pmap(replica, {.axis_name = kAxis, .axis_size = replicas, .threads_per_replica = 1})();
    return 0;
  }
  return launch(replica, {.replicas = replicas,
                          .mode = mode,
                          .backend = way == "gloo" ? Backend::gloo : Backend::automatic,
                          .axis_name = kAxis,
                          .threads_per_replica = 1,
                          .hosts = hosts});
}

}  // namespace lockstep::bench
