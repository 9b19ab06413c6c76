#include <filesystem>
#include <string>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/terminals.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A folder with c.yaml, and a shell there to which $train is the program.
struct Shell {
  TemporaryFolder folder;

  Shell() { folder.write("c.yaml", read_text(config_file("pmean_linear.yaml"))); }

  [[nodiscard]] Ended run(const std::string& script) const {
    return run_program({"/usr/bin/env", "train=" + train_command({})[0], "bash", "-c", script},
                       folder.path());
  }
  void must_run(const std::string& script) const {
    INFO(script);
    require_status(run(script), 0);
  }
};

}  // namespace

TEST_CASE("a config from a pipe is read once, and trains as that of a file") {
  const Shell shell;
  const auto& home = shell.folder.path();
  shell.must_run("$train --config c.yaml --output file");
  shell.must_run("cat c.yaml | $train --config - --output pipe");
  shell.must_run("$train --config /dev/stdin --output redirected <c.yaml");
  shell.must_run("$train --config <(cat c.yaml) --output substituted");
  // Its writer comes later, in two parts.
  shell.must_run(
      "mkfifo fifo; $train --config fifo --output fifo_run & "
      "(head -c 20 c.yaml; tail -c +21 c.yaml) >fifo; wait $!");
  // Workers that are the program started again find no more there.
  shell.must_run("cat c.yaml | LD_PRELOAD=" SECOND_THREAD " $train --config - --output again");
  for (const char* run : {"pipe", "redirected", "substituted", "fifo_run", "again"}) {
    INFO(run);
    CHECK(digest_of(home / run) == digest_of(home / "file"));
    CHECK(read_text(home / run / "config.yaml") == read_text(home / "file/config.yaml"));
  }
  shell.must_run(
      "cat c.yaml | $train --config - --output pipe --resume auto --set trainer.steps=2");
  CHECK(result_of(home / "pipe")["steps"] == 2);
  shell.must_run("$train --config <(cat c.yaml) && [[ $(echo runs/*) == runs/linear-* ]]");
}

TEST_CASE("what shows a config takes it from a pipe, too") {
  const Shell shell;
  for (const std::string command :
       {"--print-config", "--dry-run", "summary", "check", "plan --hosts 2 --link 1"}) {
    INFO(command);
    const std::string flags =
        command.starts_with("-") ? "--config $config " + command : command + " --config $config";
    const Ended file = shell.run("config=c.yaml; $train " + flags);
    const Ended pipe = shell.run("config=-; cat c.yaml | $train " + flags);
    require_status(file, 0);
    require_status(pipe, 0);
    if (!command.starts_with("plan")) CHECK(pipe.out == file.out);  // which measures this machine
  }
}

TEST_CASE("what comes from a pipe and is no config ends the run with its place") {
  const Shell shell;
  const auto refused = [&](const std::string& script, const std::string& message) {
    INFO(script);
    const Ended ended = shell.run(script);
    check_status(ended, 2);
    CHECK_THAT(ended.err, ContainsSubstring(message));
  };
  refused("$train --config - < <(true)", "<stdin>:1:1: the file is empty: its sections are");
  refused("echo 'model: {nam: mlp}' | $train --config -", "<stdin>:1:9: ");
  refused("echo 'model: {nam: mlp}' | $train --config /dev/stdin", "/dev/stdin:1:9: ");
  refused("printf 'a\\n\\1' | $train check --config -", "<stdin>:2:1: the control character 0x01");
  refused("yes | $train --config -",
          "cannot read the config <stdin>: it is longer than 256 KiB, more than any config");
  refused("$train --config - </dev/zero",
          "cannot read the config <stdin>: it is a device, not a file");
  refused("$train --config - <.", "cannot read the config <stdin>: it is a folder, not a file");
  refused("$train --config - <&-", "cannot read the config <stdin>: it is a device, not a file");
  refused("$train --config /dev/zero",
          "cannot read the config /dev/zero: it is a device, not a file");
}

TEST_CASE("who is to type a config is told how to end it") {
  if (!has_terminals()) {
    SUCCEED("there are no terminals here");
    return;
  }
  const Shell shell;
  const Ended ended = shell.run(
      "(cat c.yaml; printf '\\4') | script -qec \"$train --config - --output run\" /dev/null");
  check_status(ended, 0);
  CHECK_THAT(ended.out, ContainsSubstring("waiting for the config from <stdin>; Ctrl-D ends it"));
  CHECK(result_of(shell.folder.path() / "run")["steps"] == 1);
}
