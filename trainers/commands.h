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

}  // namespace lockstep
