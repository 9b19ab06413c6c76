#include <filesystem>
#include <string>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/occurrences.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

const Flags kExport{"export", "--checkpoint", "run/checkpoints/latest", "--to"};
const Flags kEval{"eval", "--quiet", "--checkpoint"};

// A folder with a run of a small perceptron, of 20 steps and with a checkpoint after 10.
struct TrainedRun {
  explicit TrainedRun(const Flags& more = {}) {
    ended =
        must_train(folder.path(), Flags{"run", "--config", config_file("fashion_mnist_mlp.yaml")} +
                                      set("model.hidden=[8] trainer.steps=20 checkpoint.every=10 "
                                          "trainer.eval_every=10") +
                                      Flags{"--output", "run"} + more);
  }

  // The lines of the run that tell an evaluation.
  std::vector<std::string> evaluations() const { return lines_with(": test accuracy ", ended.out); }
  // Changes the last byte of a checkpoint's file. Returns its path.
  std::string damage(const std::string& checkpoint) const {
    const fs::path file =
        folder.path() / "run/checkpoints" / checkpoint / "shard-00001-of-00002.safetensors";
    change_last_byte(file);
    return fs::canonical(file);
  }

  TemporaryFolder folder;
  Ended ended;
};

}  // namespace

TEST_CASE("a plan has no more replicas at once than a host has workers") {
  const TemporaryFolder folder;
  const Ended plan = must_train(
      folder.path(), {"plan", "--config", config_file("pmean_linear.yaml"), "--hosts", "1",
                      "--link", "10", "--stages", "0", "--set", "parallel.workers=1"});
  CHECK_THAT(plan.out, ContainsSubstring(" on 1 replica of this host at once"));
}

TEST_CASE("a command tells its help also where it is one of many, and does not run there") {
  const TemporaryFolder folder;
  const Flags one_of_two{"LOCKSTEP_NNODES=2"};
  check_status(own_train(folder.path(), {"inspect", "--help"}, one_of_two), 0);
  const Ended refused = own_train(folder.path(), {"inspect", "a"}, one_of_two);
  check_status(refused, 2);
  CHECK_THAT(refused.err, ContainsSubstring("--engine none makes it a run of its own"));
}

TEST_CASE("each command of train has its help, and unknown ones are refused with the nearest") {
  const TemporaryFolder folder;
  const Ended all = train(folder.path(), {"--help"});
  const std::vector<std::string> names{"export",  "inspect", "eval",  "predict", "sample",
                                       "summary", "check",   "runs",  "compare", "report",
                                       "trace",   "plan",    "hosts", "list",    "keys"};
  for (const std::string& command : names) {
    CHECK_THAT(all.out, ContainsSubstring("\n  train " + command + " "));
    const Ended help = train(folder.path(), {command, "--help"});
    CHECK(help.status == 0);
    CHECK(help.err.empty());
    CHECK_THAT(help.out, ContainsSubstring("Usage:\n  train " + command + " "));
    for (const std::string& line : lines_of(all.out + help.out)) {
      INFO(line);
      CHECK(line.size() - count(line, "…") * 2 <= 100);
    }
  }
  CHECK(train(folder.path(), {"run", "--help"}).out == all.out);
  CHECK_THAT(train(folder.path(), {"list", "metrics"}).out,
             Catch::Matchers::StartsWith(
                 "accuracy                 the part of the targets whose class has the ") &&
                 ContainsSubstring("\ntop_K                    the part whose class has one of ") &&
                 ContainsSubstring("\nmean_absolute_error      mean over all elements\n"));
  CHECK_THAT(train(folder.path(), {"list", "schedules"}).out,
             ContainsSubstring("\ncosine     falls along half a cosine\n"));
  const std::string known = "there are run, " + join(names) + "; see train --help";
  check_refused(folder.path(), {"evla", "--help"},
                "unknown command 'evla' (did you mean 'eval'?): " + known);
  check_refused(folder.path(), {"list", "modles"},
                "there is no list 'modles' (did you mean 'models'?); there are models, datasets, "
                "losses, optimizers, schedules, metrics");
  check_refused(folder.path(), {"export", "--to", "a.safetensors"},
                "--checkpoint DIR and --to FILE.safetensors are needed; see train export --help");
  check_refused(folder.path(), {"export", "--zip", "x"},
                "unknown flag --zip; see train export --help");
  check_refused(folder.path(), {"inspect"},
                "a checkpoint's folder is needed; see train inspect --help");
  check_refused(folder.path(), {"trace"},
                "either a run's folder is needed, or --summary FILE; see train trace --help");
  check_refused(folder.path(), {"trace", "."},
                ". holds no run: name the folder of one that goes on");
  check_refused(folder.path(), {"trace", "--summary", "none"},
                "data file 'none': there is no such file");
  check_refused(folder.path(), {"report"}, "a run's folder is needed; see train report --help");
  check_refused(folder.path(), {"report", "."}, ". is no run's folder: it has no config.yaml");
  check_refused(folder.path(), {"inspect", "a", "b"}, "'b' is no flag; see train inspect --help");
  check_refused(folder.path(), {"runs"},
                "there is no folder runs of runs: name one, or begin a run");
  check_refused(folder.path(), {"runs", "--format", "xml"},
                "--format: xml: must be text, csv or json");
  fs::create_directories(folder.path() / "runs/none");
  CHECK(train(folder.path(), {"runs"}).out == "there are no runs in runs\n");
  check_refused(folder.path(), {"compare", "runs/none"},
                "the folders of two runs or more are needed; see train compare --help");
  check_refused(folder.path(), {"compare", "a", "b"},
                "a is no run's folder: it has no config.yaml");
  check_refused(folder.path(), {"plan"}, "--config FILE is needed; see train plan --help");
  const Flags plan{"plan", "--config", config_file("pmean_linear.yaml")};
  check_refused(folder.path(), plan,
                "--link is needed, since parallel.link is auto and nothing is measured here: such "
                "as --link '0.05 ms, 1.2 GB/s', as a run on several hosts prints it, or --link 10 "
                "for Ethernet of 10 Gbit/s");
  check_refused(folder.path(), plan + Flags{"--hosts", "1,x"},
                "--hosts: expected numbers such as 1,2,4, found '1,x'");
  check_refused(folder.path(), plan + Flags{"--link", "10", "--hosts", "0"},
                "numbers of hosts are from 1 to 16384, not 0");
  check_refused(
      folder.path(), plan + Flags{"--link", "fast"},
      "--link: 'fast' is no speed of a link, such as '0.21 ms, 117 MB/s', and none of 1, 10, …");
  check_refused(folder.path(), plan + Flags{"--link", "10", "--to", "none/plan.svg"},
                "--to none/plan.svg: there is no folder none");
  check_refused(folder.path(), plan + Flags{"--link", "10", "--to", "plan.yaml"},
                "--to: plan.yaml: must be a file called ….svg");
  check_refused(folder.path(), {"eval"}, "--checkpoint DIR is needed; see train eval --help");
  check_refused(folder.path(), {"inspect", "none"}, "checkpoint none: No such file or directory");
  check_refused(folder.path(), {"eval", "--checkpoint", "none"},
                "checkpoint none: No such file or directory");
}

TEST_CASE("the help of eval and predict has their own defaults and keys") {
  const TemporaryFolder folder;
  const std::string eval = train(folder.path(), {"eval", "--help"}).out;
  CHECK_THAT(eval, ContainsSubstring("(parallel.replicas; default: the run's)") &&
                       ContainsSubstring("(parallel.launch; default: the") &&
                       ContainsSubstring("--set dotted.key=value ") &&
                       !ContainsSubstring("default: all)"));
  CHECK_THAT(train(folder.path(), {"predict", "--help"}).out,
             ContainsSubstring("--set data.key=value "));
}

TEST_CASE("train list names what there is") {
  const TemporaryFolder folder;
  const Ended lists = train(folder.path(), {"list"});
  CHECK(lists.err.empty());
  CHECK_THAT(lists.out,
             Catch::Matchers::StartsWith("models      linear, mlp, cnn, resnet, gpt\n") &&
                 ContainsSubstring("\nlosses      auto, cross_entropy, ") &&
                 ContainsSubstring("\nmetrics     accuracy, "));
}

TEST_CASE("train export writes one file, or several with an index, and never over another") {
  const TrainedRun run;
  const Ended one = train(run.folder.path(), kExport + Flags{"model.safetensors"});
  check_status(one, 0);
  CHECK(one.out == "4 tensors of 24.9 KiB in model.safetensors\n");
  CHECK(fs::file_size(run.folder.path() / "model.safetensors") > 25'000);
  check_refused(run.folder.path(), kExport + Flags{"model.safetensors"},
                "model.safetensors exists already: name another file, or replace it with --force");
  write_text(run.folder.path() / "model.safetensors", "mine");
  CHECK(train(run.folder.path(), kExport + Flags{"model.safetensors", "--force"}).out == one.out);
  CHECK(fs::file_size(run.folder.path() / "model.safetensors") > 25'000);
  check_refused(run.folder.path(), kExport + Flags{"none/a.safetensors"},
                "--to none/a.safetensors: there is no folder none");
  check_refused(run.folder.path(), kExport + Flags{"a.safetensors", "--max-shard-size", "5GO"},
                "--max-shard-size: '5GO' is no size: expected a whole number of bytes above 0, "
                "such as 500MB, 5GB or 4GiB");
  const Ended several =
      train(run.folder.path(), kExport + Flags{"cut.safetensors", "--max-shard-size=1KB"});
  CHECK(several.status == 0);
  CHECK(several.out ==
        "4 tensors of 24.9 KiB in\ncut-00001-of-00003.safetensors\n"
        "cut-00002-of-00003.safetensors\ncut-00003-of-00003.safetensors\n"
        "cut.safetensors.index.json\n");
  const std::string file = run.damage("step-00000020");
  check_refused(run.folder.path(), kExport + Flags{"b.safetensors"}, file + " is damaged: …");
}

TEST_CASE("train inspect says what a checkpoint holds and what is wrong") {
  const TrainedRun run;
  const auto inspect = [&](const std::string& path) {
    return train(run.folder.path(), {"inspect", path});
  };
  const Ended right = inspect("run/checkpoints/latest");
  check_status(right, 0);
  CHECK(right.err.empty());
  for (const std::string text :
       {"\nstep        20\nreplicas    2\ncounts      batch 128, ", "\nfigures     elapsed_s ",
        "\nconfig:\n  model:\n    name: mlp\n", "\n2 files:\n",
        "  shard-00000-of-00002.safetensors  ok\n", "\n17 tensors:\n", "  F32  ",
        "  25088  parameters/0.weight  (8, 784)\n"}) {
    CHECK_THAT(right.out, ContainsSubstring(text));
  }
  for (const std::string path : {"run", "run/checkpoints/"}) {
    const Ended all = inspect(path);
    CHECK(all.status == 0);
    const auto lines = lines_of(all.out);
    REQUIRE(lines.size() == 3);
    CHECK_THAT(lines[0], ContainsSubstring("2 checkpoints in run/checkpoints"));
    CHECK_THAT(lines[1], ContainsSubstring("step-00000020  ") && ContainsSubstring("ok  latest"));
    CHECK_THAT(lines[2], ContainsSubstring("step-00000010  ") && ContainsSubstring("ok"));
  }

  const std::string first = run.damage("step-00000010");
  const fs::path gone =
      run.folder.path() / "run/checkpoints/step-00000010/shard-00000-of-00002.safetensors";
  fs::remove(gone);
  const Ended wrong = inspect("run/checkpoints/step-00000010");
  CHECK(wrong.status == 2);
  CHECK_THAT(wrong.out, ContainsSubstring("  shard-00000-of-00002.safetensors  DAMAGED\n") &&
                            ContainsSubstring("  shard-00001-of-00002.safetensors  DAMAGED\n"));
  CHECK_THAT(wrong.err, ContainsSubstring(gone.filename().string() + ": No such file") &&
                            ContainsSubstring(first + " is damaged: its bytes have"));
  const Ended listed = inspect("run");
  CHECK(listed.status == 2);
  CHECK_THAT(listed.out, ContainsSubstring("ok  latest") && ContainsSubstring("bytes  DAMAGED\n"));
  CHECK_THAT(listed.err, ContainsSubstring(first));
  write_text(run.folder.path() / "run/checkpoints/step-00000020/manifest.json", "{}");
  CHECK(inspect("run/checkpoints/latest").status == 2);
  CHECK(inspect("run/config.yaml").status == 2);
}

TEST_CASE("train eval prints what the run printed, on any number of workers") {
  for (const Flags& more : {Flags{}, Flags{"--set", "trainer.precision=bf16"},
                            Flags{"--set", "parallel.zero_stage=3", "--launch", "threads"}}) {
    const TrainedRun run(more);
    const auto expected = run.evaluations();
    REQUIRE(expected.size() == 2);
    const auto before = entries(run.folder.path());
    for (const Flags& flags : {Flags{}, Flags{"--workers", "1"}, Flags{"--launch=threads"},
                               Flags{"--set", "parallel.backend=gloo"}}) {
      const Ended last = train(run.folder.path(), kEval + Flags{"run/checkpoints/latest"} + flags);
      INFO(join(more, " ") << " " << join(flags, " ") << last.err);
      CHECK(last.status == 0);
      CHECK(last.out == expected[1] + "\n");
      CHECK(last.err.empty());
    }
    const Ended first = train(run.folder.path(), kEval + Flags{"run/checkpoints/step-00000010"});
    CHECK(first.out == expected[0] + "\n");
    const Ended three =
        train(run.folder.path(), kEval + Flags{"run/checkpoints/latest", "--replicas", "3"});
    CHECK(three.status == 0);
    CHECK(three.out.substr(0, 27) == expected[1].substr(0, 27));  // the accuracy
    CHECK(entries(run.folder.path()) == before);
  }
}

TEST_CASE("train eval refuses what is not of data or parallel, and what it can't use") {
  const TrainedRun run;
  const std::string latest = "run/checkpoints/latest";
  const auto refuse = [&](const Flags& flags, const std::string& message) {
    check_refused(run.folder.path(), kEval + flags, message);
  };
  refuse({latest, "--set", "model.hidden=[9]"},
         "--set model.hidden=[9]: train eval takes keys of data and parallel; the model is the "
         "checkpoint's");
  refuse({latest, "--replicas", "0"},
         "--replicas 0: parallel.replicas: must be from 1 to 16384, is 0");
  const Ended example = train(run.folder.path(), {"--config", config_file("pmean_linear.yaml"),
                                                  "--quiet", "--output", "example"});
  REQUIRE(example.status == 0);
  refuse(
      {"example/checkpoints/latest"},
      "the data set pmean_example has neither a test nor a validation set: --split train takes the "
      "training set");
  const std::string file = run.damage("step-00000020");
  refuse({latest}, file + " is damaged: …");
}

TEST_CASE("train predict writes what the model says of each sample, to stdout or a new file") {
  const TrainedRun run;
  const Flags predict{"predict", "--checkpoint", "run/checkpoints/latest"};
  const auto csv = [&](const Flags& flags, const std::string& told) {
    const Ended end = train(run.folder.path(), predict + flags);
    check_status(end, 0);
    CHECK(end.err == told);
    return end.out;
  };
  const std::string line = "lockstep: predicts the test set: 10000 pictures\n";
  const auto lines = lines_of(csv({}, line));
  REQUIRE(lines.size() == 10'001);
  CHECK(lines[0] == "index,prediction,prediction_name,score,target,target_name");
  CHECK(csv({"--output", "p.jsonl", "--format=jsonl"}, line).empty());
  const auto rows = read_json_lines(run.folder.path() / "p.jsonl");
  REQUIRE(rows.size() == 10'000);
  int right = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    if (row["prediction"] == row["target"]) ++right;
    const std::string begin = str(i, ",", row["prediction"].get<int>(), ",",
                                  row["prediction_name"].get<std::string>(), ",");
    const std::string end =
        str(",", row["target"].get<int>(), ",", row["target_name"].get<std::string>());
    if (!lines[i + 1].starts_with(begin) || !lines[i + 1].ends_with(end)) FAIL(lines[i + 1]);
  }
  CHECK_THAT(run.evaluations().back(),
             ContainsSubstring(str("test accuracy ", right / 10'000.0, ",")));
  CHECK(lines_of(csv({"--split", "train"}, "")).size() == 60'001);
  CHECK(lines_of(csv({"--output", "-"}, line)) == lines);
  CHECK_FALSE(std::filesystem::exists(run.folder.path() / "-"));

  const auto refuse = [&](const Flags& flags, const std::string& message) {
    check_refused(run.folder.path(), predict + flags, message);
  };
  refuse({"--output", "p.jsonl"},
         "p.jsonl exists already: name another file, or replace it with --force");
  refuse({"--force"}, "--force needs --output FILE, which it replaces");
  refuse({"--output", "run", "--force"},
         "--output run: it is no file, and --force replaces files alone");
  refuse({"--top", "11"}, "--top: must be from 1 to the 10 classes that there are, is 11");
  std::filesystem::create_symlink("p.jsonl", run.folder.path() / "link");
  std::filesystem::create_symlink("/dev/null", run.folder.path() / "device");
  refuse({"--output", "device", "--force"},
         "--output device: it is no file, and --force replaces files alone");
  CHECK(csv({"--output", "link", "--force", "--format=jsonl", "--top=10"}, line).empty());
  CHECK(std::filesystem::is_symlink(run.folder.path() / "link"));
  const auto likeliest = read_json_lines(run.folder.path() / "p.jsonl");
  REQUIRE(likeliest.size() == 10'000);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& top = likeliest[i]["top"];
    if (top.size() != 10 || top[0]["name"] != rows[i]["prediction_name"]) FAIL(likeliest[i]);
  }
  // Who reads no more gets no error.
  const Ended end =
      run_program(Flags{"/bin/sh", "-c", R"({ "$0" "$@"; echo $? >status; } | head -n 2)"} +
                      train_command(predict),
                  run.folder.path());
  CHECK(end.out == lines[0] + "\n" + lines[1] + "\n");
  CHECK(end.err == line);
  CHECK(read_text(run.folder.path() / "status") == "141\n");
  const Ended full =
      run_program(Flags{"/bin/sh", "-c", R"("$0" "$@" > /dev/full)"} + train_command(predict),
                  run.folder.path());
  CHECK(full.status == 1);
  CHECK_THAT(full.err, ContainsSubstring("stdout cannot be written"));
  refuse({"--output", "none/p.csv"}, "--output none/p.csv: there is no folder none");
  refuse({"--split", "validation"},
         "--split validation: the data set fashion_mnist has no validation set; the run had train, "
         "test");
  refuse({"--format", "tsv"}, "--format tsv: must be csv or jsonl");
  refuse({"--set", "parallel.replicas=3"},
         "--set parallel.replicas=3: train predict takes keys of data; the model is the "
         "checkpoint's");
  check_refused(run.folder.path(), {"predict"},
                "--checkpoint DIR is needed; see train predict --help");
  check_refused(run.folder.path(),
                {"sample", "--checkpoint", "run/checkpoints/latest", "--prompt", "a"},
                "train sample needs a model of bytes: the data set fashion_mnist has no bytes, "
                "each with the one that follows");
  const std::string file = run.damage("step-00000020");
  refuse({}, file + " is damaged: …");
}

TEST_CASE("averages warm up, evaluations print both figures, and export says which it writes") {
  const TemporaryFolder folder;
  std::string table = "x,y\n";
  for (int i = 0; i < 60; ++i) table += str(i % 10, ",", 3 * (i % 10) - 1, "\n");
  folder.write("table.csv", table);
  folder.write("job.yaml",
               "model: {name: linear}\n"
               "data: {name: csv, file: table.csv, target: y, batch_size: 10, validation: 0.2}\n"
               "optimizer: {name: adam, lr: 0.1}\n"
               "trainer: {steps: 200, metrics: [r2], ema_decay: 0.999}\n");
  const auto run = [&](const std::string& output, const Flags& flags) {
    const Ended end =
        must_train(folder.path(), Flags{"--config", "job.yaml", "--output", output} + flags);
    return std::pair(result_of(folder.path() / output)["validation"]["r2"].get<double>(), end.out);
  };
  // The first evaluations show no difference; later ones do, of both sets.
  const auto [warm, told] = run("warm", set("trainer.eval_every=1 data.test_file=table.csv"));
  CHECK(warm > 0.9);
  const auto line_of = [text = told](const std::string& begin) {
    for (const std::string& line : lines_of(text)) {
      if (line.starts_with(begin)) return line;
    }
    return "no line " + begin;
  };
  CHECK_THAT(line_of("step 1, averaged weights: validation loss "),
             !ContainsSubstring(" without averages)"));
  CHECK_THAT(line_of("step 100, averaged weights: validation loss "),
             ContainsSubstring(" without averages)"));
  CHECK_THAT(line_of("step 200, averaged weights: test loss "),
             ContainsSubstring(" without averages)"));
  const auto [plain, noted] = run("plain", set("trainer.ema_warmup=false"));
  CHECK(plain < 0.7);
  CHECK_THAT(noted, ContainsSubstring(str("validation r2 ", plain, " (0.9")) &&
                        ContainsSubstring(" without averages)"));
  CHECK_THAT(train(folder.path(), {"eval", "--checkpoint", "plain/checkpoints/latest"}).out,
             ContainsSubstring(" without averages)"));

  const auto exported = [&](const std::string& to, const Flags& flags) {
    return train(folder.path(),
                 Flags{"export", "--checkpoint", "warm/checkpoints/latest", "--to", to} + flags)
        .out;
  };
  CHECK_THAT(exported("a.safetensors", {}),
             Catch::Matchers::StartsWith(
                 "the parameters as trained; the run evaluates with their averages "
                 "(trainer.ema_decay), which --averaged writes\n2 tensors of "));
  CHECK_THAT(exported("b.safetensors", {"--averaged"}),
             Catch::Matchers::StartsWith(
                 "the averages of the parameters (trainer.ema_decay); without --averaged "
                 "the parameters as trained\n2 tensors of "));
}
