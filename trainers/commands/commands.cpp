#include "trainers/commands/commands.h"

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

}  // namespace lockstep
