#pragma once

namespace lockstep::testing {

/// `train` with models, data sets, a loss, a metric and a callback of its own. With the variable
/// RAISE_AT_EXIT a SIGTERM comes where main() is over, with TELL_STEPS each step is told, with
/// REGISTER_TWICE a name is registered twice.
int own_main(int argc, const char* const* argv);

}  // namespace lockstep::testing
