#pragma once

namespace lockstep::testing {

/// Registers the model "waits": layers, each a Block with a parameter of so many values, that
/// wait where others compute. So its steps take as long on every host, however many of these share
/// a machine's cores.
void register_waiting_model();

}  // namespace lockstep::testing
