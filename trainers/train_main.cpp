#include "trainers/train_main.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "framework/base/cores.h"
#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/process.h"
#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "framework/engines/few_cores.h"
#include "framework/engines/local_tasks.h"
#include "framework/engines/whereabouts.h"
#include "framework/launch/launch.h"
#include "framework/launch/process_memory.h"
#include "framework/launch/stop_signals.h"
#include "framework/maps/first_failure.h"
#include "framework/maps/machine.h"
#include "framework/maps/tensor_memory.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/telemetry/failure_record.h"
#include "framework/telemetry/metrics.h"
#include "framework/telemetry/run_folder.h"
#include "framework/tree/error_place.h"
#include "trainers/commands/as_one_task.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/commands.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/job_hosts.h"
#include "trainers/commands/shown_data.h"
#include "trainers/config/config.h"
#include "trainers/config/config_options.h"
#include "trainers/run/check_job.h"
#include "trainers/run/data_record.h"
#include "trainers/run/hints.h"
#include "trainers/run/memory_report.h"
#include "trainers/run/resume.h"
#include "trainers/run/run_summary.h"
#include "trainers/run/run_trace.h"

namespace lockstep {
namespace {

// How workers that are this program started again learn where the run is: see is_relaunched().
constexpr const char* kOutputVariable = "LOCKSTEP_RUN_OUTPUT";
constexpr const char* kCheckpointVariable = "LOCKSTEP_RUN_CHECKPOINT";
constexpr const char* kSetsVariable = "LOCKSTEP_RUN_SETS";  // what its sets are: sets_text()
// Where to read what may be longer than a variable can be: the record of what is left out of them,
// if something is, and the config, which the launcher may have had from a pipe.
constexpr const char* kLeftOutVariable = "LOCKSTEP_RUN_LEFT_OUT";
constexpr const char* kConfigVariable = "LOCKSTEP_RUN_CONFIG";

// Tells workers that are this program started again where the run is.
void tell_workers(const RunOptions& options) {
  ::setenv(kOutputVariable, options.output.c_str(), 1);
  ::setenv(kCheckpointVariable, options.resume ? options.resume->checkpoint.c_str() : "", 1);
  SetRecords sets = options.sets;
  for (auto& [name, set] : sets) set.left_out.clear();
  ::setenv(kSetsVariable, sets_text(sets).c_str(), 1);
}

// Workers can read the text while the result is there: a file in memory, which they find at this
// process.
Descriptor tell_workers_in_file(const char* variable, const std::string& text) {
  Descriptor file(::memfd_create("lockstep-run", MFD_CLOEXEC));
  const std::string path = str("/proc/", ::getpid(), "/fd/", file.get());
  if (!file.open() || !(std::ofstream(path) << text << std::flush)) {
    throw CommError(str("workers can't be told what to do: ", text_of_errno(errno)));
  }
  ::setenv(variable, path.c_str(), 1);
  return file;
}

// All have the launcher's sets: none looks for damaged files itself.
Descriptor tell_workers_of_left_out(const DataSets& data) {
  ::unsetenv(kLeftOutVariable);
  const LeftOut left_out = left_out_of(data);
  if (std::ranges::all_of(left_out, [](const auto& set) { return set.second.empty(); }))
    return Descriptor();
  return tell_workers_in_file(kLeftOutVariable, encode(left_out));
}

LeftOut left_out_as_told() {
  const char* const path = std::getenv(kLeftOutVariable);
  if (path == nullptr) return {};
  TextStream text;
  text << std::ifstream(path).rdbuf();
  require(!text.str().empty(), "what is left out of the data can't be read from ", path);
  return decode<LeftOut>(text.str(), "what is left out of the data");
}

// Cuts the run's files behind what the checkpoint says of them, if it is of this run.
void cut_files(RunOptions& options) {
  if (!options.resume) return cut_metrics(options.output, 0);
  CheckpointInfo& info = options.resume->info;
  std::error_code missing;
  if (!std::filesystem::equivalent(options.resume->checkpoint.parent_path(),
                                   checkpoints_of(options.output), missing)) {
    for (const std::string& text : {kMetricsText, kEventFileText}) info.texts.erase(text);
  }
  cut_metrics(options.output, info.step, entry_of(info.texts, kMetricsText));
  cut_summary(options.output, entry_of(info.texts, kEventFileText).value_or(""));
}

// Brings the output folder to the state in which the run goes on.
void prepare_output(RunOptions& options) {
  const std::int64_t step = options.resume ? options.resume->info.step : 0;
  const auto checkpoints = checkpoints_of(options.output);
  // In this order: a checkpoint that is still there has its metrics.
  if (const auto aside = set_aside_checkpoints(checkpoints, step); aside > 0) {
    log_warning(str("set aside ", counted(aside, "checkpoint"), " of steps after ", step,
                    ": the run makes new ones; ", (checkpoints / "aside-step-*").string(),
                    " may be removed"));
  }
  cut_files(options);
  // A killed run may have ended before it set the link to its best checkpoint.
  if (options.resume) {
    const auto best = entry_of(options.resume->info.counts, kBestCount);
    if (best) set_best_checkpoint(checkpoints, *best);
  }
  tell_workers(options);
}

// Where the run is and goes on, as the flags say; a worker that is this program started again finds
// it in its environment.
struct Place {
  RunOptions options;
  std::string resume;                      // as --resume
  std::optional<RunFolderLock> lock = {};  // of a folder that has a run, to which it returns
};

Place find_place(const Flags& flags) {
  Place place{.options = {.output = flags.output,
                          .quiet = flags.quiet,
                          .stop_after = flags.stop_after,
                          .where = flags.where},
              .resume = flags.resume};
  if (is_relaunched()) {
    place.options.output = std::getenv(kOutputVariable);
    place.options.sets = parse_sets(std::getenv(kSetsVariable));
    place.resume = std::getenv(kCheckpointVariable);
    return place;
  }
  // A checkpoint's run goes on where it was, unless another folder is named.
  if (flags.output.empty()) place.options.output = run_of_checkpoint(flags.resume);
  const bool goes_on = !flags.resume.empty() && holds_run(place.options.output);
  std::error_code missing;
  require(!goes_on || flags.resume == "auto" ||
              std::filesystem::equivalent(run_of_checkpoint(flags.resume), place.options.output,
                                          missing),
          "output folder ", place.options.output.string(), " holds a run already, of which ",
          flags.resume, " is no checkpoint: name another folder, or go on with --resume auto");
  // Locked before its checkpoints are looked at: a run that is about to end may save one more.
  if (goes_on && flags.hosts.rank == 0 && !flags.print_config)
    place.lock.emplace(place.options.output);
  if (place.lock && place.lock->is_held() && !flags.dry_run)
    sweep_checkpoints(checkpoints_of(place.options.output));
  return place;
}

// Without --config: of the checkpoint from which the run goes on or, where there is none yet, of
// the run's last start.
Config config_of_run(const Flags& flags, const Place& place, const std::filesystem::path& from) {
  if (from.empty()) return load_config(place.options.output / "config.yaml", flags.overrides);
  return config_in_checkpoint(from, checkpoint_info(from), flags.overrides);
}

// Once for all replicas, and before any of them waits for others. Each host takes its own: they
// must come to the rendezvous at about one time. Workers that are this program started again have
// the launcher's.
void take_records(const Config& config, const DataSets& data, RunOptions& options) {
  if (!options.sets.empty()) return;
  options.sets = placed([&] { return "the data '" + config.data.name + "'"; },
                        [&] { return records_of(data); });
}

// The first line of a run that an engine has started, or that is inside of one's job by itself.
void tell_whereabouts(const engines::Whereabouts& where) {
  const bool is_by_engine = engines::is_engine(where.engine);
  if (is_relaunched() || where.local_rank > 0) return;
  if (!is_by_engine && where.alone_because.empty()) return;
  if (!is_by_engine) return log_warning(where.alone_because);
  log_info(engines::text_of(where));
  if (where.local_tasks > 1) log_info(engines::text_of_task(where));
}

// Once the job's hosts are known, and this process has all cores that it will have.
void warn_of_few_cores(const engines::Whereabouts& where, const LaunchOptions& launch) {
  const HostOptions& hosts = launch.hosts;
  std::int64_t at_once =
      hosts.replicas > 0 ? hosts.replicas : shard(launch.replicas, hosts.count, hosts.rank).size;
  if (launch.workers > 0) {
    at_once = std::min(at_once, shard(launch.workers, hosts.count, hosts.rank).size);
  }
  const std::string text =
      engines::few_cores_text(where, usable_cores(), ::sysconf(_SC_NPROCESSORS_ONLN), at_once);
  if (!text.empty()) log_warning(text);
}

void tell_beginning() {
  log_info("there is no checkpoint to go on from: the run begins at its first step");
}

// Whether this is what to_yaml() writes, and no user has.
bool is_resolved(const std::string& config) {
  try {
    return to_yaml(parse_config(config, "config.yaml")) == config;
  } catch (const Error&) {
    return false;
  }
}

// Makes the output folder the run's own. Before the replicas start: a job that is started again
// finds it.
void claim_output(const Flags& flags, const Config& config, Place& place) {
  RunOptions& options = place.options;
  if (options.output.empty()) {
    const bool is_piped = flags.config == "-" || flags.config.string().starts_with("/dev/");
    options.output = new_run_folder(
        flags.config.empty() || is_piped ? config.model.name : flags.config.stem().string());
  }
  storage::CheckpointFolder(checkpoints_of(options.output)).check_links();
  const std::string text = written(config, options.resume ? &*options.resume : nullptr);
  if (place.lock) {
    reclaim_run_folder(*place.lock, text);
  } else {
    place.lock.emplace(claim_run_folder(options.output, text, is_resolved));
  }
  prepare_output(options);
}

// After a replica or a host was lost.
void tell_way_on(const std::filesystem::path& output) {
  const std::string inspect =
      str(program_name("inspect"), " ", output.string(), " tells what replicas did last");
  const auto newest = newest_checkpoint(checkpoints_of(output));
  log_info(newest ? str("--output ", output.string(), " --resume auto goes on from step ",
                        checkpoint_info(*newest).step, "; ", inspect)
                  : "there is no checkpoint to go on from; " + inspect);
}

int run_training(const Flags& flags, const Callbacks& callbacks) {
  std::optional<Config> given;
  Descriptor told;
  if (!flags.config.empty() && is_relaunched()) {
    given = load_config(std::getenv(kConfigVariable), flags.overrides);
  } else if (!flags.config.empty()) {
    const std::string text = read_config(flags.config);
    given = parse_config(text, config_name(flags.config), flags.overrides);
    told = tell_workers_in_file(kConfigVariable, text);
  }
  if (given && flags.print_config) return print(to_yaml(*given));
  Place place = find_place(flags);
  RunOptions& options = place.options;
  const auto checkpoint = find_checkpoint(place.resume, options.output);
  Config config = given ? *given : config_of_run(flags, place, checkpoint.value_or(""));
  if (flags.print_config) return print(to_yaml(config));
  require(flags.hosts.count <= config.launch.replicas, "parallel.replicas is ",
          config.launch.replicas, ", but ", flags.hosts.count, " hosts need at least ",
          flags.hosts.count, ": --replicas ", flags.hosts.count);
  require(flags.hosts.replicas <= config.launch.replicas, "--host-replicas is ",
          flags.hosts.replicas, " of ", counted(config.launch.replicas, "replica"), " in all");
  const std::int64_t share =
      flags.hosts.replicas > 0
          ? flags.hosts.replicas
          : engines::share_of_replicas(flags.where, config.launch.replicas, program_name());
  // Before data are read and the model is tried: what then runs out ends in other ways.
  launcher::prepare_memory(config.launch);
  // What is tried here may start no threads: a process that has some can't be forked.
  maps::set_math_threads(1);
  options.callbacks = callbacks;
  if (checkpoint) options.resume = resume_point(*checkpoint, flags.resume_with_changes, config);
  if (place.resume == "auto" && !options.resume) tell_beginning();
  // Read before the replicas start: they share the memory, and a bad file is one error, not N.
  DataContext context = data_context(config);
  if (options.resume) context.fitted = options.resume->fitted;
  if (is_relaunched()) context.damaged = left_out_as_told();
  const DataSets data = load_shown(config.data, context, flags.quiet);
  const Descriptor left_out = is_relaunched() ? Descriptor() : tell_workers_of_left_out(data);
  for (auto& [name, set] : options.sets) set.left_out = left_out_of(data)[name];
  if (options.resume) {
    take_records(config, data, options);
    check_data(*options.resume, options.sets);
  }
  check_job(config, data, options.resume ? &*options.resume : nullptr);
  if (!options.resume) check_initial_weights(config, data);
  if (flags.dry_run) return print(prediction_text(config, data, " Nothing was started."));
  check_memory(config, data);
  require(flags.max_restarts == 0 || config.launch.mode == LaunchMode::processes,
          "--max-restarts needs parallel.launch processes: a thread that crashes ends the program");
  if (config.checkpoint.saves()) take_records(config, data, options);
  if (flags.hosts.rank == 0 && !is_relaunched()) {
    for (const std::string& line : data_lines(config, data)) log_info(line);
    const std::string line =
        parameters_text(config, data.train->type(), options.resume.has_value());
    if (!line.empty()) log_info(line);
  }
  const bool has_other_hosts = flags.hosts.count > 1;
  if (has_other_hosts && !is_relaunched()) {
    config.launch.hosts = host_options(
        flags, config, data, options, [&] { claim_output(flags, config, place); },
        [&] { tell_workers(options); });
  } else if (has_other_hosts) {
    config.launch.hosts = flags.hosts;
  } else if (!is_relaunched()) {
    claim_output(flags, config, place);
  }
  if (has_other_hosts) config.launch.hosts.replicas = share;
  if (!is_relaunched()) warn_of_few_cores(flags.where, config.launch);
  config.launch.on_stop = OnStop::ask;
  config.launch.max_restarts = flags.max_restarts;
  config.launch.before_restart = [&, first = options.resume](std::int64_t /*restart*/) {
    const bool keeps_threads = options.resume && options.resume->keeps_threads;
    if (flags.hosts.rank == 0) sweep_checkpoints(checkpoints_of(options.output));
    options.resume = find_resume_point("auto", options.output, flags.resume_with_changes, config);
    if (options.resume && keeps_threads) options.resume->keeps_threads = true;
    // Where the run itself has not saved anything yet, it goes on from where it began.
    const bool is_later = options.resume && first && options.resume->info.step > first->info.step;
    if (first && !is_later) options.resume = first;
    if (flags.hosts.rank > 0) return tell_workers(options);
    if (!options.resume) tell_beginning();
    prepare_output(options);
  };
  config.launch.trace = trace_options(options.output, config.telemetry.trace);
  config.launch.after_failure = [&](const JobFailure& failure) {
    // A folder that was lost in the run's midst is not made anew. Other hosts may have none yet.
    if (flags.hosts.rank == 0 && !holds_run(options.output)) return;
    write_failure(options.output, failure_record(failure, versions_text()));
    if (flags.hosts.rank == 0 && failure.is_lost && !failure.starts_again)
      tell_way_on(options.output);
  };
  config.launch.after_stall = [&](const std::string& warning) {
    note_stall(options.output, warning);
  };
  maps::TensorMemory::prepare();  // before replicas and what makes their batches are threads
  const int status = launch([&] { Trainer(config, data, options).run(); }, config.launch);
  if (flags.hosts.rank == 0) end_traces(options.output, config.telemetry.trace, status);
  return status;
}

int run(int argc, const char* const* argv, const Callbacks& callbacks) {
  const Flags flags = parse_flags(argc, argv);
  if (flags.text) return print(*flags.text);
  set_quiet(flags.quiet);
  tell_whereabouts(flags.where);
  return as_one_task(flags.where, {argv + 1, argv + argc}, flags.hosts.meet_timeout,
                     [&] { return run_training(flags, callbacks); });
}

int train(const std::vector<const char*>& words, const Callbacks& callbacks) {
  const int argc = static_cast<int>(words.size());
  std::vector<std::string> names{"run"};
  for (const Command& command : commands()) names.push_back(command.name);
  const std::string word = words.size() > 1 ? words[1] : "";
  const bool is_set = !word.starts_with('-') && word.find('=') != std::string::npos;
  if (std::ranges::count(names, word) == 0 && (is_set || looks_like_config(word))) {
    return run(argc, words.data(), callbacks);  // which says what is missing before it
  }
  const std::string named = command_of(argc, words.data(), program_name(), names);
  // A command's own name stands where the program's is otherwise.
  for (const Command& command : commands()) {
    if (named != command.name) continue;
    if (command.in_each_task) return command.run(argc - 1, words.data() + 1);
    return command_as_one_task(command.name, {words.begin() + 1, words.end()}, command.run);
  }
  const int its = named.empty() ? 0 : 1;
  return run(argc - its, words.data() + its, callbacks);
}

// Prints an Error that leaves main() before it calls train_main(), such as one of a name that is
// registered twice, and ends with its status, as train_main() does with those that it catches.
std::terminate_handler terminate_before = nullptr;

[[noreturn]] void end_on_error() {
  try {
    if (std::current_exception()) throw;
  } catch (const Error& error) {
    std::cout.flush();
    log_error(error.what());
    std::_Exit(exit_status(error));
  } catch (...) {
  }
  terminate_before();
  std::abort();
}

const bool ends_on_errors = [] {
  terminate_before = std::set_terminate(end_on_error);
  return true;
}();

}  // namespace

int train_main(int argc, const char* const* argv, const Callbacks& callbacks) {
  // Before replicas run and after: while they do, launch() handles signals. It is never destroyed:
  // LibTorch takes some ms to end the program, and a signal that comes then must not look like a
  // crash.
  static const auto& ends_the_program = *new launcher::StopHandler(launcher::stop_at_once);
  (void)ends_the_program;
  launcher::unblock_stops();
  if (ends_on_errors && std::get_terminate() == end_on_error) std::set_terminate(terminate_before);
  prepare_process();
  try {
    if (argc > 0) name_program(argv[0]);
    return train({argv, argv + argc}, callbacks);
  } catch (const std::exception& error) {
    log_error(maps::text_of(error));
    return exit_status(error);
  }
}

}  // namespace lockstep
