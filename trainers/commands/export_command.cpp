#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "framework/base/memory.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/storage/export.h"
#include "framework/training/state.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/run/resume.h"

namespace lockstep {
namespace {

constexpr const char* kExportHelp =
    R"(Parameters are float32, also those of a run in bf16; buffers keep their type. The metadata have, as
"fitted", what was fitted to the training data: columns, means, deviations and classes, in JSON. All
checksums are compared first.
)";

std::uint64_t size_of_flag(const std::string& text) {
  const auto size = parse_size(text);
  require(size.has_value(), "'", cut(text),
          "' is no size: expected a whole number of bytes above 0, such as 500MB, 5GB or 4GiB");
  return static_cast<std::uint64_t>(*size);
}

}  // namespace

int run_export(int argc, const char* const* argv) {
  std::optional<std::string> checkpoint, to;
  bool is_averaged = false;
  storage::ExportOptions options{.prefixes = {training::kParameters, training::kBuffers}};
  const CommandLine line{
      .program = program_name("export"),
      .usage = "--checkpoint DIR --to FILE.safetensors [flags]",
      .what =
          "Writes a checkpoint's parameters and buffers to a safetensors file, under the "
          "model's names.",
      .flags = {checkpoint_flag(checkpoint),
                {"--to", "FILE.safetensors",
                 "The new file; without --force no file may have the name", sets(to)},
                {"--averaged", "",
                 "The averages of the parameters (trainer.ema_decay) in their place",
                 sets(is_averaged)},
                {"--max-shard-size", "SIZE",
                 "The most bytes of tensors in a file, such as 500MB, 5GB or 4GiB; a larger tensor "
                 "gets a file of its own. Several files are named "
                 "FILE-00001-of-00003.safetensors, …, with FILE.safetensors.index.json",
                 sets(options.most_bytes, size_of_flag)},
                {"--force", "", "Replace files that have the names, once all new ones are whole",
                 sets(options.replaces)}},
      .more = kExportHelp};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  require(checkpoint && to, "--checkpoint DIR and --to FILE.safetensors are needed; see ",
          line.program, " --help");
  check_folder_of("--to", *to);
  const storage::CheckpointReader reader(*checkpoint);
  if (is_averaged) options.instead = training::kAverages;
  // Checkpoints of other programs may have none.
  const auto fitted = entry_of(reader.manifest().texts, kFittedText);
  if (fitted) options.metadata[kFittedText] = *fitted;
  const storage::Exported exported = storage::export_tensors(reader, *to, options);
  const bool has_averages =
      std::ranges::any_of(reader.manifest().tensors, [](const storage::ManifestTensor& tensor) {
        return tensor.name.starts_with(training::kAverages);
      });
  std::string text;
  if (is_averaged) {
    text =
        "the averages of the parameters (trainer.ema_decay); without --averaged the parameters "
        "as trained\n";
  } else if (has_averages) {
    text =
        "the parameters as trained; the run evaluates with their averages (trainer.ema_decay), "
        "which --averaged writes\n";
  }
  text += str(counted(static_cast<std::int64_t>(exported.tensors), "tensor"), " of ",
              text_of_bytes(exported.bytes), " in", exported.files.size() == 1 ? " " : "\n");
  for (const auto& file : exported.files) text += file.string() + "\n";
  return print(text);
}

}  // namespace lockstep
