#include <cstdint>
#include <optional>
#include <string>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/launch/launch.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/opened_checkpoint.h"
#include "trainers/config/config_options.h"
#include "trainers/run/text_sampling.h"

namespace lockstep {
namespace {

constexpr const char* kSampleHelp =
    R"(The same flags give the same text: the model runs with the math threads of the run's replicas. No
data are needed.
)";

void check_sample(const OpenedCheckpoint& checkpoint) {
  require(are_bytes(checkpoint.sample()), program_name("sample"),
          " needs a model of bytes: the data set ", checkpoint.config.data.name,
          " has no bytes, each with the one that follows");
}

// The names that other programs have for --bytes.
std::string bytes_are_meant(const std::string& word, const std::string& next) {
  for (const char* name : {"--length", "--max-length", "--tokens", "--max-tokens",
                           "--max-new-tokens", "--num-tokens"}) {
    if (word == name) return "--bytes " + next;
  }
  return "";
}

}  // namespace

int run_sample(int argc, const char* const* argv) {
  const std::string program = program_name("sample");
  std::optional<std::string> named, prompt;
  TextSamplingOptions options;
  const CommandLine line{
      .program = program,
      .usage = "--checkpoint DIR --prompt TEXT [flags]",
      .what =
          "Continues a text with a checkpoint's model of bytes; writes both to stdout, and a "
          "newline.",
      .flags = {checkpoint_flag(named),
                {"--prompt", "TEXT", "The text that is continued", sets(prompt)},
                {"--bytes", "N", "How many bytes follow it (default: 256)",
                 sets(options.bytes, number_of<std::int64_t>("an integer")), bytes_are_meant},
                {"--temperature", "T",
                 "Scores are divided by T before softmax; 0: always the likeliest (default: 1)",
                 sets(options.temperature, number_of<double>("a number"))},
                {"--top-k", "K", "Only the K likeliest bytes are drawn (default: all)",
                 sets(options.top_k, number_of<std::int64_t>("an integer"))},
                {"--seed", "S", "Another seed, another text (default: 0)",
                 sets(options.seed, number_of<std::uint64_t>("an integer, at least 0"))}},
      .more = kSampleHelp};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  require(prompt.has_value(), "--prompt TEXT is needed; see ", program, " --help");
  require(!prompt->empty(), "--prompt: is empty; the model continues one byte at least");
  check_options(options);
  const auto checkpoint = open_checkpoint(program, named);
  check_sample(checkpoint);
  const auto model = checkpoint.model();
  const std::int64_t context = checkpoint.sample().input.shape[0];
  set_quiet(true);
  return launch(
      [&] {
        (void)print_data(*prompt);
        continue_text(*model, *prompt, context, options,
                      [](char byte) { (void)print_data(std::string(1, byte)); });
        (void)print("\n");  // whatever the last byte is, so that all before are the text
      },
      alone(checkpoint.config).launch);
}

}  // namespace lockstep
