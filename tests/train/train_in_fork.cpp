#include "tests/train/train_in_fork.h"

#include <vector>

#include "trainers/train_main.h"

namespace lockstep::testing {

std::function<int()> training(const std::filesystem::path& folder, const Flags& flags) {
  return [folder, command = train_command(flags)] {
    std::filesystem::current_path(folder);
    std::vector<const char*> arguments;
    for (const std::string& word : command) arguments.push_back(word.c_str());
    arguments.push_back(nullptr);
    return train_main(static_cast<int>(command.size()), arguments.data());
  };
}

Ended train(const std::filesystem::path& folder, const Flags& flags) {
  return run_forked(training(folder, flags));
}

}  // namespace lockstep::testing
