#pragma once

namespace lockstep {

/// What `train` does beside training, a command each. `argv[0]` is the command's name. They return
/// the exit status and throw what main() reports.

/// `train export`: writes a checkpoint's parameters and buffers to safetensors files.
int run_export(int argc, const char* const* argv);
/// `train inspect`: prints what a checkpoint holds, or which ones a run has, and what is wrong.
int run_inspect(int argc, const char* const* argv);
/// `train eval`: evaluates a checkpoint on the validation and the test set.
int run_eval(int argc, const char* const* argv);

/// `train check`: reads all files of all sets, and names those that are damaged.
int run_check(int argc, const char* const* argv);

/// `train predict`: writes what a checkpoint's model says of each sample of a set.
int run_predict(int argc, const char* const* argv);
/// `train sample`: continues a text with a checkpoint's model of bytes.
int run_sample(int argc, const char* const* argv);
/// `train summary`: prints what the data are, a model's layers, parameters, FLOPs and memory.
int run_summary(int argc, const char* const* argv);
/// `train config`: prints the keys of a config, or those of one model, data set, ….
int run_config(int argc, const char* const* argv);
/// `train models`, `datasets`, `losses`, `optimizers`, `schedules` and `metrics`: prints the names.
int run_list(int argc, const char* const* argv);

}  // namespace lockstep
