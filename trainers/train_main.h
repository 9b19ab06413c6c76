#pragma once

#ifndef LOCKSTEP_HAS_TRAINER
static_assert(false, "lockstep: train_main() is in the CMake target lockstep::trainer: link that");
#endif

#include "trainers/run/trainer.h"

namespace lockstep {

/// The program `train`: reads a config, starts the replicas and trains, or runs a command on
/// checkpoints. main() of a program of one's own registers its models, data sets and losses, and
/// then returns this; what `callbacks` has is called in each replica's run.
///
///   int main(int argc, char** argv) {
///     lockstep::register_model(net_kind());
///     return lockstep::train_main(argc, argv);
///   }
///
/// Help and messages call it by its own name, which is that of argv[0]'s file.
///
/// Returns the exit status, and prints errors. Errors that leave main() before its call, as of a
/// name that is registered twice, are printed, too, and end the program with their status. From its
/// call to the program's end the signals that stop a job end the program with their status. It may
/// start the program again, for each worker: what main() does before this is done there as well,
/// and each loads the data itself. That happens where main(), loading or Dataset::fingerprint()
/// leaves threads, as LibTorch's operators on many values do; otherwise workers are forked and
/// share the data.
[[nodiscard]] int train_main(int argc, const char* const* argv, const Callbacks& callbacks = {});

}  // namespace lockstep
