#include "trainers/commands/commands.h"

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "trainers/commands/command_line.h"

namespace lockstep {

// Each in a file of its own, which has its flags and its help.
using Run = int(int argc, const char* const* argv);
Run run_export, run_inspect, run_eval, run_predict, run_sample, run_summary, run_check, run_list,
    run_keys, run_hosts, run_plan, run_runs, run_compare, run_report, run_trace;

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      {"export", "write a checkpoint's weights to a safetensors file", run_export},
      {"inspect", "print what a checkpoint holds, and compare its checksums", run_inspect},
      {"eval", "evaluate a checkpoint", run_eval},
      {"predict", "write a checkpoint's predictions, a line a sample", run_predict},
      {"sample", "continue a text, with a checkpoint that models bytes", run_sample},
      {"summary", "print what the data are, a model's layers, parameters, FLOPs and memory",
       run_summary},
      {"check", "read all files of all sets, and name those that are damaged", run_check},
      {"runs", "list runs with status, figures and age, the best first if asked", run_runs},
      {"compare", "print what differs in runs' configs, beside what they came to", run_compare},
      {"report", "write a run's curves, figures and config as a page for browsers", run_report},
      {"trace", "write what all replicas of a run do now, as a timeline, or say what one tells",
       run_trace},
      {"plan", "predict a run's time, memory and hours on more hosts", run_plan},
      {"hosts", "print which host of a job this is, and which variables say so", run_hosts, true},
      {"list", "print the models that there are, the data sets, …", run_list},
      {"keys", "print a config's keys, or those of one section, model, data set, …", run_keys}};
  return all;
}

const std::map<std::string, std::string>& old_spellings() {
  static const std::map<std::string, std::string> all{{"config", "keys"},
                                                      {"models", "list models"},
                                                      {"datasets", "list datasets"},
                                                      {"losses", "list losses"},
                                                      {"optimizers", "list optimizers"},
                                                      {"schedules", "list schedules"},
                                                      {"metrics", "list metrics"}};
  return all;
}

std::vector<const char*> in_new_spelling(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  const auto old = old_spellings().find(argc < 2 ? "" : argv[1]);
  if (old == old_spellings().end()) return words;
  if (old->second.starts_with("list ")) {
    words.insert(words.begin() + 1, "list");
  } else {
    words[1] = old->second.c_str();
  }
  log_warning(str(program_name(old->first), " is now ", program_name(old->second)));
  return words;
}

}  // namespace lockstep
