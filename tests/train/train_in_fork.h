#pragma once

#include <filesystem>
#include <functional>
#include <source_location>
#include <string>

#include "tests/train/train_program.h"

namespace lockstep::testing {

/// What the binary `train` does in `folder` with `flags`, for a fork of the test (a ChildProgram):
/// there LibTorch has started, which takes a program half a second. Tests that depend on how a
/// program starts take train_command().
[[nodiscard]] std::function<int()> training(const std::filesystem::path& folder,
                                            const Flags& flags);
/// Runs it to its end.
[[nodiscard]] Ended train(const std::filesystem::path& folder, const Flags& flags);
/// The same, and the test ends here unless the status is 0.
Ended must_train(const std::filesystem::path& folder, const Flags& flags,
                 std::source_location where = std::source_location::current());
/// As these, but the program of own_train.cpp, with variables of the environment as NAME=VALUE.
[[nodiscard]] std::function<int()> own_training(const std::filesystem::path& folder,
                                                const Flags& flags, const Flags& environment = {});
[[nodiscard]] Ended own_train(const std::filesystem::path& folder, const Flags& flags,
                              const Flags& environment = {});
/// What train() writes to stderr where it ends with status 2, as it must.
[[nodiscard]] std::string refusal(const std::filesystem::path& folder, const Flags& flags,
                                  std::source_location where = std::source_location::current());

/// Checks that `program` refuses the flags: status 2, no output, no file more in the folder, and
/// this error alone, or one of as many lines that begins as `message` does before its end in "…".
void check_refused(
    const std::filesystem::path& folder, const Flags& flags, const std::string& message,
    const std::function<Ended(const std::filesystem::path&, const Flags&)>& program = train);

}  // namespace lockstep::testing
