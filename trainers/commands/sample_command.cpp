#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/commands.h"
#include "trainers/commands/opened_checkpoint.h"
#include "trainers/commands/text_sampling.h"
#include "trainers/run/run_alone.h"

namespace lockstep {
namespace {

constexpr const char* kSampleHelp =
    R"(Continues a text with a checkpoint's model of bytes, and writes both to stdout.

Usage:
  train sample --checkpoint DIR --prompt TEXT [flags]

  --checkpoint DIR      The checkpoint, such as runs/a/checkpoints/latest
  --prompt TEXT         The text that is continued
  --bytes N             How many bytes follow it (default: 256)
  --temperature T       Scores are divided by T before softmax; 0: always the likeliest (default: 1)
  --top-k K             Only the K likeliest bytes are drawn (default: all)
  --seed S              Another seed, another text (default: 0)
  --help                Print this and end

The same flags give the same text: the model runs with the math threads of the run's replicas. No
data are needed.
)";

// Sets the variable where the flag stands.
template <typename T>
void set_number(const std::vector<Argument>& arguments, const std::string& flag, const char* what,
                T& variable) {
  const auto text = value_of(arguments, flag);
  if (!text) return;
  const auto number = parse_number<T>(*text);
  require(number.has_value(), flag, ": expected ", what, ", found '", cut(*text), "'");
  variable = *number;
}

void check_sample(const OpenedCheckpoint& checkpoint) {
  const SampleType& sample = checkpoint.sample();
  const bool is_of_bytes = sample.input.dtype == at::kLong && sample.input.shape.size() == 1 &&
                           sample.target.shape == sample.input.shape &&
                           sample.classes == kByteTokens;
  require(is_of_bytes, "train sample needs a model of bytes: the data set ",
          checkpoint.config.data.name, " has no bytes, each with the one that follows");
}

}  // namespace

int run_sample(int argc, const char* const* argv) {
  const std::string program = "train sample";
  const auto arguments = parse_command_line(
      argc, argv,
      {program,
       {"--checkpoint", "--prompt", "--bytes", "--temperature", "--top-k", "--seed"},
       {"--help"}});
  if (value_of(arguments, "--help")) return print(kSampleHelp);
  const auto prompt = value_of(arguments, "--prompt");
  require(prompt.has_value(), "--prompt TEXT is needed; see train sample --help");
  require(!prompt->empty(), "--prompt: is empty; the model continues one byte at least");
  TextSamplingOptions options;
  set_number(arguments, "--bytes", "an integer", options.bytes);
  set_number(arguments, "--temperature", "a number", options.temperature);
  set_number(arguments, "--top-k", "an integer", options.top_k);
  set_number(arguments, "--seed", "an integer, at least 0", options.seed);
  check_options(options);
  const auto checkpoint = open_checkpoint(program, arguments);
  check_sample(checkpoint);
  const auto model = checkpoint.model();
  const std::int64_t context = checkpoint.sample().input.shape[0];
  return run_alone(checkpoint.config, [&] {
    (void)print(*prompt);
    continue_text(*model, *prompt, context, options,
                  [](char byte) { (void)print(std::string(1, byte)); });
  });
}

}  // namespace lockstep
