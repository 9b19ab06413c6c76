#pragma once

namespace lockstep {

/// What replicas need of their process, done once, from any thread: SIGPIPE is ignored where it
/// would end the process (a peer or reader that is gone is an error of the write, not the end of
/// all), and as many descriptors may be open as the system allows. Programs started later inherit
/// both.
void prepare_process();

}  // namespace lockstep
