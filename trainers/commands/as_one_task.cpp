#include "trainers/commands/as_one_task.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "framework/base/core_set.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/engines/local_tasks.h"
#include "framework/launch/host_tasks.h"
#include "framework/launch/launch.h"
#include "framework/launch/stop_signals.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"

namespace lockstep {
namespace {

// What all tasks must have alike to be one program.
launcher::TaskFacts facts_of_task(const std::vector<std::string>& arguments) {
  std::error_code gone;
  return {{"arguments", join(arguments, " ")},
          {"working folder", std::filesystem::current_path(gone).string()}};
}

int run_for_all(const engines::Whereabouts& where, const launcher::TaskFacts& facts,
                std::chrono::milliseconds timeout, const std::function<int()>& run) {
  launcher::HostTasks others(where, facts, timeout);
  try {
    const CoreSet taken = others.cores().take();
    const auto missing = engines::missing_cores(where, others.cores(), taken, program_name());
    if (!missing.empty()) log_warning(missing);
    const int status = run();
    others.end(status);
    return status;
  } catch (const std::exception& error) {
    others.end(exit_status(error));
    throw;
  }
}

// Takes --engine and its value off the words.
std::optional<engines::Engine> take_engine(std::vector<const char*>& words) {
  constexpr std::string_view kFlag = "--engine";
  std::optional<engines::Engine> engine;
  const CommandLine line{.program = program_name(),
                         .flags = {{"--engine", "NAME", "", sets(engine, engines::parse_engine)}}};
  std::vector<const char*> others;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word.substr(0, word.find('=')) != kFlag) {
      others.push_back(words[i]);
      continue;
    }
    std::vector<const char*> own{words[0], words[i]};
    if (word == kFlag && i + 1 < words.size()) own.push_back(words[++i]);
    (void)parse_command_line(static_cast<int>(own.size()), own.data(), line);
  }
  words = others;
  return engine;
}

}  // namespace

int as_one_task(const engines::Whereabouts& where, const std::vector<std::string>& arguments,
                std::chrono::milliseconds timeout, const std::function<int()>& run) {
  if (where.local_tasks == 1 || is_relaunched()) return run();
  if (where.local_rank == 0) return run_for_all(where, facts_of_task(arguments), timeout, run);
  try {
    return launcher::stand_by(where, facts_of_task(arguments), timeout);
  } catch (const launcher::Stopped& stopped) {  // as the first task says
    return launcher::status_of_stop(stopped.signal());
  }
}

int command_as_one_task(const std::string& name, std::vector<const char*> words,
                        int (*command)(int argc, const char* const* argv)) {
  using engines::Engine;
  const auto engine = take_engine(words);
  const auto run = [&] { return command(static_cast<int>(words.size()), words.data()); };
  // The command meets no other hosts: it does not matter that their meeting point is not known.
  const engines::Whereabouts where =
      whereabouts_of({.count = kNotGiven, .rank = kNotGiven, .rendezvous = "nowhere"}, engine);
  const bool asks_for_help = std::ranges::find(words, std::string_view("--help")) != words.end();
  if (!where.refusal.empty() && asks_for_help) return run();
  require(where.refusal.empty(), where.refusal);
  const bool starts_tasks = where.engine == Engine::slurm || where.engine == Engine::mpi ||
                            where.engine == Engine::torchrun;
  if (!starts_tasks) return run();
  const std::string program = program_name(name);
  if (where.host > 0) {
    if (where.local_rank == 0) {
      log_info(str(program, " runs on host 0 alone, and this is host ", where.host,
                   ": it ends with status 0"));
    }
    return 0;
  }
  engines::require_known_tasks(where, program);
  return as_one_task(where, {words.begin(), words.end()},
                     std::chrono::seconds(where.meet_timeout_s), run);
}

}  // namespace lockstep
