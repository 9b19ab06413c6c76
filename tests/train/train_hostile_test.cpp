// Names, files and folders that somebody else has made.

#include <algorithm>
#include <filesystem>
#include <string>

#include <sys/stat.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

const std::string kEvil = "\x1b]0;evil\x07\xc2\x9b\x7f";

// Runs a command: it must print nothing that a terminal obeys, and show the name escaped.
Ended show(const fs::path& folder, const Flags& flags) {
  Ended end = train(folder, flags);
  const std::string all = end.out + end.err;
  INFO(join(flags, " ") << "\n" << printable(all));
  CHECK(printable(all) == all);
  CHECK_THAT(all, ContainsSubstring("\\x1b]0;evil") || ContainsSubstring("\\u001b]0;evil"));
  return end;
}

}  // namespace

TEST_CASE("names with control characters reach a terminal escaped, from every command") {
  const TemporaryFolder folder;
  std::string table = "x,\"y" + kEvil + "\"\n";
  for (int i = 0; i < 40; ++i) table += str(i, ",\"", i % 2 == 0 ? "a" : "b", kEvil, "\"\n");
  folder.write("data.csv", table);
  folder.write("job.yaml",
               "model: {name: linear}\n"
               "data: {name: csv, file: data.csv, target: \"y\\x1b]0;evil\\x07\\x9b\\x7f\", "
               "task: classification, validation: 0.2, batch_size: 4}\ntrainer: {steps: 4}\n");
  const std::string run = "run" + kEvil + "\r\x9b";
  const Flags job{"--config", "job.yaml"};
  (void)show(folder.path(), job + Flags{"--output", run});
  (void)show(folder.path(), Flags{"summary"} + job);
  (void)show(folder.path(), Flags{"check"} + job);
  (void)show(folder.path(), {"inspect", run});
  (void)show(folder.path(), {"report", run});
  folder.write(run + "/failure.json", "{}");
  (void)show(folder.path(), {"inspect", run});
  for (const std::string format : {"text", "json", "csv"}) {
    (void)show(folder.path(), {"runs", ".", "--format", format});
  }
  (void)show(folder.path(), {"compare", run, run});
  (void)show(folder.path(), {"trace", "--summary", run + "/trace.json"});
  (void)show(folder.path(), {"run", "--config", kEvil});
}

TEST_CASE("a run goes on whose metrics and events end in a line without an end") {
  const TemporaryFolder folder;
  const Flags flags = Flags{"--config", config_file("pmean_linear.yaml"), "--output", "run"} +
                      set("trainer.log_every=1 trainer.steps=3 checkpoint.every=2");
  must_train(folder.path(), flags);
  for (const char* name : {"metrics.jsonl", "events.jsonl"}) {
    fs::resize_file(folder.path() / "run" / name, std::uintmax_t{1} << 37);
  }
  const Ended end = train(folder.path(), flags + Flags{"--resume", "auto"});
  check_status(end, 0);
  CHECK(read_json_lines(folder.path() / "run/metrics.jsonl").size() == 3);
  CHECK_THAT(end.err, ContainsSubstring("the run's start is not among its events: run/events.jsonl "
                                        "ends in a line of more than "));
}
