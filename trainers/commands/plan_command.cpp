#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/storage/file.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/shown_data.h"
#include "trainers/config/config.h"
#include "trainers/config/config_options.h"
#include "trainers/plan/plan.h"
#include "trainers/plan/plan_text.h"
#include "trainers/plan/step_profile.h"
#include "trainers/report/run_table.h"

namespace lockstep {
namespace {

constexpr const char* kPlanHelp =
    R"(A few steps of the config's model are timed here, on as many replicas as a host is to have, or as
there are cores for. What hosts send each other is simulated: by the schedules, the sizes of buckets
and the pieces that a job would use. The table has, by number of hosts and stage of ZeRO, a step's
time, what of its communication is exposed, memory, the start, the hours of all steps (without
evaluations and checkpoints), and what does not work first: config, batch, memory, store (host 0's
launcher) or link. Nothing is trained.
)";

// "1,2,4"
template <typename Number>
std::vector<Number> numbers_of(const std::string& text) {
  constexpr std::size_t kMost = 32;
  std::vector<Number> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto number = parse_number<Number>(text.substr(begin, end - begin));
    require(number.has_value(), "expected numbers such as 1,2,4, found '", cut(text), "'");
    numbers.push_back(*number);
    begin = end + 1;
  }
  require(numbers.size() <= kMost, "at most ", kMost, " numbers, not ", numbers.size());
  return numbers;
}

std::filesystem::path picture_file(const std::string& name) {
  const std::filesystem::path file = name;
  std::error_code missing;
  require(file.extension() == ".svg" && !std::filesystem::is_directory(file, missing), cut(name),
          ": must be a file called ….svg");
  return file;
}

}  // namespace

int run_plan(int argc, const char* const* argv) {
  plan::PlanRequest request{.hosts = {1, 2, 4, 8, 16, 64}};
  std::optional<std::int64_t> host_replicas;
  std::optional<std::int64_t> global_batch;
  std::optional<comm::LinkSpeed> link;
  std::optional<std::filesystem::path> picture;
  std::string format = "text";
  const auto read = config_of(
      argc, argv,
      {.program = program_name("plan"),
       .usage = "--config FILE --link SPEED [flags]",
       .what = "Predicts what a run takes on more hosts than there are: time, memory, hours.",
       .flags =
           {{"--hosts", "1,2,4", "Numbers of hosts (default: 1,2,4,8,16,64)",
             sets(request.hosts, numbers_of<std::int64_t>)},
            {"--host-replicas", "R", "How many replicas each host has (default: parallel.replicas)",
             sets(host_replicas, number_of<std::int64_t>("an integer"))},
            {"--global-batch", "N",
             "Samples a step on any number of hosts (trainer.global_batch; default: as the config "
             "says for each replica)",
             sets(global_batch, number_of<std::int64_t>("an integer"))},
            {"--stages", "0,1,2,3", "Stages of ZeRO (default: all)",
             sets(request.stages, numbers_of<int>)},
            {"--link", "SPEED",
             "The links between hosts, '0.05 ms, 1.2 GB/s' as a run on hosts prints them, or 1, "
             "10, 25 or 100 for Ethernet of so many Gbit/s (default: parallel.link)",
             sets(link, plan::link_called)},
            {"--to", "FILE.svg", "Write a picture, too; in place of one that is there",
             sets(picture, picture_file)},
            table_format_flag(format)},
       .more = kPlanHelp});
  if (!read) return 0;
  Config config = *read;
  const std::string& configured = config.launch.hosts.link;
  if (!link && configured != "auto") link = comm::LinkSpeed::parse(configured);
  require(link || request.hosts == std::vector<std::int64_t>{1},
          "--link is needed, since parallel.link is auto and nothing is measured here: such as "
          "--link '0.05 ms, 1.2 GB/s', as a run on several hosts prints it, or --link 10 for "
          "Ethernet of 10 Gbit/s");
  if (link) request.link = *link;
  request.host_replicas = host_replicas.value_or(config.launch.replicas);
  plan::check_request(request);
  if (picture) check_folder_of("--to", *picture);
  Config of_host = config;
  of_host.launch.replicas = request.host_replicas;
  set_quiet(true);
  const DataSets data = load_shown(config.data, data_context(config));
  const std::int64_t threads = std::max<std::int64_t>(config.launch.threads_per_replica > 0
                                                          ? config.launch.threads_per_replica
                                                          : usable_cores() / request.host_replicas,
                                                      1);
  of_host.launch.threads_per_replica = threads;
  // Of a worker's replicas one runs at a time.
  const std::int64_t workers =
      config.launch.workers > 0 ? config.launch.workers : request.host_replicas;
  const std::int64_t at_once =
      std::min({request.host_replicas, workers, std::max<std::int64_t>(1, usable_cores() / threads),
                data.train->size()});
  if (global_batch) {
    require_at_least(1, "--global-batch", *global_batch);
    config.trainer.global_batch = global_batch;
  }
  const plan::Plan planned =
      plan::plan_of(config, data, plan::measure_steps(of_host, data, at_once), request);
  if (picture) write_file_atomically(*picture, plan::plan_svg(planned));
  if (format == "csv") return print(plan::plan_csv(planned));
  if (format == "json") return print(report::json_line(plan::plan_json(planned)));
  return print(plan::plan_text(planned));
}

}  // namespace lockstep
