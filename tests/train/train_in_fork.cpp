#include "tests/train/train_in_fork.h"

#include <cstddef>
#include <cstdlib>
#include <vector>

#include "tests/support/ended.h"
#include "tests/train/own_parts.h"
#include "trainers/train_main.h"

namespace lockstep::testing {

namespace {

// What `program` does in `folder` with a command: its path and flags.
int run(const auto& program, const std::filesystem::path& folder, const Flags& command) {
  std::filesystem::current_path(folder);
  std::vector<const char*> arguments;
  for (const std::string& word : command) arguments.push_back(word.c_str());
  arguments.push_back(nullptr);
  return program(static_cast<int>(command.size()), arguments.data());
}

}  // namespace

std::function<int()> training(const std::filesystem::path& folder, const Flags& flags) {
  return [folder, command = train_command(flags)] {
    const auto program = [](int argc, const char* const* argv) { return train_main(argc, argv); };
    return run(program, folder, command);
  };
}

Ended train(const std::filesystem::path& folder, const Flags& flags) {
  return run_forked(training(folder, flags));
}

Ended must_train(const std::filesystem::path& folder, const Flags& flags,
                 std::source_location where) {
  Ended end = train(folder, flags);
  require_status(end, 0, where);
  return end;
}

std::function<int()> own_training(const std::filesystem::path& folder, const Flags& flags,
                                  const Flags& environment) {
  return [=] {
    for (const std::string& variable : environment) {
      const std::size_t end = variable.find('=');
      ::setenv(variable.substr(0, end).c_str(), variable.c_str() + end + 1, 1);
    }
    return run(own_main, folder, Flags{OWN_TRAIN_BINARY} + flags);
  };
}

Ended own_train(const std::filesystem::path& folder, const Flags& flags, const Flags& environment) {
  return run_forked(own_training(folder, flags, environment));
}

std::string refusal(const std::filesystem::path& folder, const Flags& flags,
                    std::source_location where) {
  const Ended end = train(folder, flags);
  check_status(end, 2, where);
  return end.err;
}

}  // namespace lockstep::testing
