#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/programs.h"
#include "trainers/bench/session.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// The binary, with a folder of its own for all that is temporary.
class Bench {
 public:
  [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& flags) const {
    std::vector<std::string> words{"/usr/bin/env", "TMPDIR=" + temporary_.path().string()};
    words.insert(words.end(), environment_.begin(), environment_.end());
    words.push_back(BENCH_BINARY);
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }
  [[nodiscard]] Ended run(const std::vector<std::string>& flags) const {
    return run_program(command(flags), work_.path());
  }
  // In a fork, where LibTorch has started: what ends before anything is measured, since a worker is
  // the program started again.
  [[nodiscard]] Ended run_in_fork(const std::vector<std::string>& flags) const {
    return run_forked([&] {
      ::setenv("TMPDIR", temporary_.path().c_str(), 1);
      fs::current_path(work_.path());
      std::vector<const char*> arguments{BENCH_BINARY};
      for (const std::string& flag : flags) arguments.push_back(flag.c_str());
      arguments.push_back(nullptr);
      return bench::bench_main(static_cast<int>(flags.size()) + 1, arguments.data());
    });
  }
  void set(const std::string& variable, const std::string& value) {
    environment_.push_back(variable + "=" + value);
  }
  [[nodiscard]] fs::path file(const std::string& name) const { return work_.path() / name; }
  [[nodiscard]] bool left_nothing() const { return entries(temporary_.path()) == 0; }

 private:
  std::vector<std::string> environment_{
      str("PATH=", fs::path(PYTHON).parent_path().string(), ":", std::getenv("PATH"))};
  TemporaryFolder temporary_;
  TemporaryFolder work_;
};

// For a run that goes on until it is ended.
const std::vector<std::string> kLong{"collectives", "--systems",    "psum,pmap", "--sizes",
                                     "1MiB",        "--replicas",   "2",         "--repetitions",
                                     "10000",       "--operations", "all_reduce"};

std::vector<pid_t> with_descendants(pid_t pid) {
  std::vector<pid_t> all{pid};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const pid_t child : children_of(all[i])) all.push_back(child);
  }
  return all;
}

// Waits until a psum worker has its two replicas below it, and returns the worker. The memory's
// speed is measured first, which takes long on a busy machine.
pid_t await_worker(const ChildProgram& bench) {
  pid_t found = -1;
  const bool there = eventually(
      [&] {
        for (const pid_t child : children_of(bench.pid())) {
          if (children_of(child).size() == 2) found = child;
        }
        return found > 0;
      },
      std::chrono::minutes(2));
  REQUIRE(there);
  return found;
}

}  // namespace

TEST_CASE("bench collectives measures, prints tables and writes its files") {
  const Bench bench;
  const Ended end =
      bench.run({"collectives", "--sizes", "8,64KiB", "--replicas", "2", "--repetitions", "3",
                 "--python", "/nowhere/python", "--json", "out.json", "--plot", "out.svg"});
  require_status(end, 0);
  for (const std::string part :
       {"symmetric: LibTorch",
        "psum: ", "pmap: ", "gloo: ", "c10d is left out: /nowhere/python cannot run it: ",
        "jax is left out: /nowhere/python cannot run it: ", "== all_reduce, 2 replicas; limit: ",
        "== reduce_scatter, 2", "== all_gather, 2", "time a call", "bus GB/s", "64 KiB"}) {
    CHECK_THAT(end.out, ContainsSubstring(part));
  }
  const auto json = nlohmann::json::parse(read_text(bench.file("out.json")));
  REQUIRE(json["results"].size() == 3);
  for (const auto& result : json["results"]) {
    CHECK(result["limit"]["bytes_per_second"] > 1e8);
    REQUIRE(result["sizes"].size() == 2);
    for (const auto& size : result["sizes"]) {
      REQUIRE(size["measurements"].size() >= 4);
      for (const auto& measurement : size["measurements"]) {
        CHECK(measurement["samples"].size() == 3);
        CHECK(measurement["seconds"]["median"] > 0);
        CHECK(measurement["calls_per_sample"] >= 1);
      }
    }
  }
  CHECK_THAT(read_text(bench.file("out.svg")), ContainsSubstring("all_gather, 2 replicas"));
  CHECK(bench.left_nothing());
}

TEST_CASE("replicas may be threads too, and one alone") {
  const Bench bench;
  const Ended end =
      bench.run({"collectives", "--systems", "psum,symmetric", "--launch", "threads,processes",
                 "--sizes", "12", "--replicas", "1,3", "--repetitions", "1"});
  check_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("symmetric threads"));
  CHECK_THAT(end.out, ContainsSubstring("== all_gather, 3 replicas"));
  CHECK(bench.left_nothing());
}

TEST_CASE("bench vdot checks its results and compares") {
  const Bench bench;
  const Ended end = bench.run(
      {"vdot", "--systems", "pmap,serial,libtorch", "--repetitions", "3", "--json", "vdot.json"});
  require_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("pmap: the result differs from float64's by"));
  const auto json = nlohmann::json::parse(read_text(bench.file("vdot.json")));
  CHECK(json["measurements"].size() == 3);
  CHECK(json["replicas"] == 8);
}

TEST_CASE("bench training measures steps and launches, and says which peers are not there") {
  const Bench bench;
  const Ended end = bench.run({"training", "--models", "mlp", "--replicas", "2,1", "--batch", "4",
                               "--repetitions", "2", "--stages", "0,3", "--python",
                               "/nowhere/python", "--json", "out.json", "--plot", "out.svg"});
  require_status(end, 0);
  for (const std::string part :
       {"stage 0: LibTorch", "plain is left out: /nowhere/python cannot run it: ",
        "ddp is left out: /nowhere/python", "zero is left out: /nowhere/python",
        "fsdp is left out: /nowhere/python", "torchrun is left out: /nowhere/python",
        "== mlp, 1863690 parameters, 1 replica of 4 samples; floor ",
        "== mlp, 1863690 parameters, 2 replicas of 4 samples; floor ", "steps/s", "of floor",
        "== launch to first step, pmean_linear, 4 processes"}) {
    CHECK_THAT(end.out, ContainsSubstring(part));
  }
  const auto json = nlohmann::json::parse(read_text(bench.file("out.json")));
  REQUIRE(json["results"].size() == 2);
  for (const auto& result : json["results"]) {
    CHECK(result["floor"]["forward_and_backward"] > 0);
    const bool scales = result["replicas"] == 2 && json["machine"]["cores"] > 1;
    REQUIRE(result["measurements"].size() == (scales ? 4 : 3));
    CHECK(result["measurements"][1].contains("efficiency") == scales);
    for (const auto& measurement : result["measurements"]) {
      CHECK(measurement["samples"].size() == 2);
      const double seconds = measurement["seconds"]["median"];
      double parts = 0;
      for (const auto& part : measurement["measured_parts"]) parts += part.get<double>();
      CHECK(parts > 0);
      CHECK(parts < 1.5 * seconds);
      CHECK(measurement["measured_parts"]["backward"] > 0);
      CHECK(measurement["peak_bytes"] > 1 << 20);
      CHECK(measurement["host_bytes"] > 1 << 20);
    }
  }
  CHECK(json["launches"]["measurements"][0]["system"] == "train");
  CHECK(json["launches"]["measurements"][0]["samples"].size() == 2);
  CHECK_THAT(read_text(bench.file("out.svg")),
             ContainsSubstring("mlp, 1863690 parameters, 2 replicas, batch 4"));
  CHECK(bench.left_nothing());
}

TEST_CASE("bench training measures how memory grows over steps") {
  const Bench bench;
  const Ended end = bench.run({"training", "--measure", "memory", "--steps", "120", "--models",
                               "mlp", "--systems", "lockstep", "--stages", "0", "--replicas", "2",
                               "--batch", "2", "--json", "out.json"});
  check_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("== memory over steps, mlp, 2 replicas"));
  const auto json = nlohmann::json::parse(read_text(bench.file("out.json")));
  CHECK(json["results"].empty());
  REQUIRE(json["memory"].size() == 2);  // replicas alone, which exchange nothing, and stage 0
  for (const auto& memory : json["memory"]) {
    CHECK(memory["steps"] == 120);
    const double first = memory["first_bytes"];
    CHECK(first > 4 * 4 * 1863690.0);  // parameters, gradients, Adam's state
    CHECK(memory["host_bytes"].get<double>() < first + 30e6);
  }
}

TEST_CASE("bench training runs replicas as threads, and a measurement alone") {
  const Bench bench;
  const Ended end = bench.run({"training", "--measure", "steps", "--models", "cnn", "--systems",
                               "lockstep", "--launch", "threads", "--stages", "3,0", "--replicas",
                               "2", "--batch", "2", "--repetitions", "1"});
  check_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("stage 0 threads"));
  CHECK_THAT(end.out, ContainsSubstring("stage 3 threads"));
  CHECK_THAT(end.out, !ContainsSubstring("stage 1"));
  CHECK_THAT(end.out, ContainsSubstring("== cnn, 421642 parameters, 2 replicas"));
  CHECK_THAT(end.out, !ContainsSubstring("launch to first step"));
  CHECK(bench.left_nothing());
}

TEST_CASE("bench training has a resnet on images, also augmented ones, and a gpt on texts") {
  const Bench bench;
  const Ended end =
      bench.run({"training", "--measure", "steps", "--models", "resnet,gpt", "--systems",
                 "lockstep", "--stages", "0", "--data", "memory,augmented", "--replicas", "2",
                 "--batch", "2", "--repetitions", "1", "--json", "out.json"});
  require_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("== resnet, 77754 parameters, 2 replicas of 2 samples"));
  CHECK_THAT(end.out, ContainsSubstring("== gpt, 842496 parameters, 2 replicas of 2 samples"));
  CHECK_THAT(end.out, ContainsSubstring("stage 0 augmented: "));
  const auto json = nlohmann::json::parse(read_text(bench.file("out.json")));
  const auto systems = [&](std::size_t model) {
    std::vector<std::string> labels;
    for (const auto& measurement : json["results"][model]["measurements"]) {
      const auto label = measurement["system"].get<std::string>();
      if (label.find("1 replica") == std::string::npos) labels.push_back(label);
      CHECK(measurement["measured_parts"]["backward"] > 0);
    }
    return labels;
  };
  CHECK(systems(0) == std::vector<std::string>{"alone", "stage 0", "stage 0 augmented"});
  CHECK(systems(1) == std::vector<std::string>{"alone", "stage 0"});
  CHECK(json["results"][0]["measurements"][2]["times_of_unaugmented"] > 0);
  CHECK(bench.left_nothing());
}

TEST_CASE("bench checkpoint measures in each folder, and says which peers are not there") {
  const Bench bench;
  const TemporaryFolder one;
  const TemporaryFolder other;
  const Ended end =
      bench.run({"checkpoint", "--parameters", "5K", "--repetitions", "2", "--folders",
                 str(one.path().string(), ",", other.path().string()), "--python",
                 "/nowhere/python", "--json", "out.json", "--plot", "out.png"});
  require_status(end, 0);
  CHECK(read_text(bench.file("out.png")).rfind("\x89PNG", 0) == 0);
  for (const std::string part :
       {"dcp is left out: /nowhere/python cannot run it: ", "dcp_async is left out: ",
        "torch_save is left out: ", "5000 parameters with Adam's state, of 2 replicas, in ",
        "limits in GB/s: write ", "loaded by", "4 replicas, stage 3", "1 replica, stage 0"}) {
    CHECK_THAT(end.out, ContainsSubstring(part));
  }
  const auto json = nlohmann::json::parse(read_text(bench.file("out.json")));
  CHECK(json["bytes"] == 60'000);
  REQUIRE(json["results"].size() == 2);
  for (const auto& result : json["results"]) {
    for (const std::string limit : {"write", "read", "copy", "checksum"})
      CHECK(result["limits"][limit]["samples"].size() == 2);
    REQUIRE(result["measurements"].size() == 1);
    const auto& own = result["measurements"][0];
    CHECK(own["save"]["samples"].size() == 2);
    CHECK(own["save"]["median"] > own["pause"]["median"]);
    CHECK(own["pause"]["median"] > 0);
    CHECK(own["load"]["median"] > 0);
    CHECK(own["save_memory"]["median"] >= 0);
    REQUIRE(result["reloads"].size() == 3);
    CHECK(result["reloads"][0]["replicas"] == 4);
    CHECK(result["reloads"][1]["replicas"] == 4);
    CHECK(result["reloads"][2]["replicas"] == 1);
    for (const auto& reload : result["reloads"]) {
      CHECK(reload["predicted"]["median"] > 0);
      CHECK(reload["load"]["median"] > 0);
    }
  }
  CHECK(entries(one.path()) == 0);
  CHECK(entries(other.path()) == 0);
  CHECK(bench.left_nothing());
}

TEST_CASE("bench parts measures each part, and says which peers are not there") {
  const Bench bench;
  const Ended end = bench.run({"parts", "--columns", "20", "--repetitions", "2", "--python",
                               "/nowhere/python", "--json", "out.json"});
  require_status(end, 0);
  for (const std::string part :
       {"train: LibTorch", "shard_map: LibTorch",
        "pandas is left out: /nowhere/python cannot run it: ",
        "loadtxt is left out: /nowhere/python cannot run it: ", "== table: ", "\ntrain, 20 columns",
        "\ntrain, 4 columns", "== replicated: ", "\ncheck ", "\nmemory, read once"}) {
    CHECK_THAT(end.out, ContainsSubstring(part));
  }
  const auto json = nlohmann::json::parse(read_text(bench.file("out.json")));
  REQUIRE(json["results"].size() == 2);
  CHECK(json["results"][1]["unit"] == "MiB");
  for (const auto& result : json["results"]) {
    REQUIRE(result["measurements"].size() >= 2);
    CHECK(result["measurements"][0]["samples"].size() == 2);
    CHECK(result["measurements"][1]["seconds"]["median"] > 0);
  }
  CHECK(bench.left_nothing());
}

TEST_CASE("bench parts measures one part alone, and a table beside Python's readers") {
  const Bench bench;
  // A Python whose libraries read at once, but for pandas.
  std::ofstream(bench.file("python")) << "#!/bin/sh\n"
                                         "[ $2 = loadtxt ] || exit 1\n"
                                         "[ $3 = --version ] && echo 2.3.4 && exit\n"
                                         "echo step 1 on $(tail -n +2 $3 | wc -l) samples\n";
  fs::permissions(bench.file("python"), fs::perms::owner_all);
  const Ended end = bench.run({"parts", "--measure", "table", "--columns", "9", "--repetitions",
                               "1", "--python", bench.file("python").string()});
  require_status(end, 0);
  for (const std::string part :
       {"pandas is left out: ", "loadtxt 2.3: NumPy 2.3.4, ", "x train, 9 columns",
        "\nloadtxt 2.3, 9 columns", "\nloadtxt 2.3, 4 columns"}) {
    CHECK_THAT(end.out, ContainsSubstring(part));
  }
  CHECK_THAT(end.out, !ContainsSubstring("replicated"));
  CHECK(bench.left_nothing());
}

TEST_CASE("bench recorder says what a span costs, and what of it is the clock") {
  const Bench bench;
  const Ended end = bench.run({"recorder", "--repetitions", "3", "--json", "out.json"});
  require_status(end, 0);
  for (const std::string part : {"== span: ", "\nspan ", "\nclock "})
    CHECK_THAT(end.out, ContainsSubstring(part));
  const auto json = nlohmann::json::parse(read_text(bench.file("out.json")));
  CHECK(json["measurement"] == "recorder");
  const auto& measurements = json["results"][0]["measurements"];
  REQUIRE(measurements.size() == 2);
  for (const auto& measurement : measurements) {
    CHECK(measurement["samples"].size() == 3);
    CHECK(measurement["seconds"]["median"] > 0);
    CHECK(measurement["seconds"]["median"] < 1e-4);
  }
}

TEST_CASE("bench peak says what products take, and keeps the rate of the fastest for its user") {
  Bench bench;
  bench.set("XDG_CACHE_HOME", bench.file("cache").string());
  const Ended end = bench.run({"peak", "--repetitions", "1"});
  require_status(end, 0);
  const auto peaks = nlohmann::json::parse(read_text(bench.file("cache/lockstep/peaks.json")));
  REQUIRE(peaks.size() == 2);
  for (const auto& [name, rate] : peaks.items()) {
    CHECK_THAT(name, ContainsSubstring(" core") && ContainsSubstring(", LibTorch "));
    CHECK(rate.get<double>() > 1e8);
  }
  for (const std::string part : {"== float32: a product ", "== bfloat16: a product "})
    CHECK_THAT(end.out, ContainsSubstring(part));
}

TEST_CASE("a picture that this machine cannot draw is refused before anything is measured") {
  Bench bench;
  write_text(bench.file("matplotlib.py"), "raise ImportError('it is broken')");
  bench.set("PYTHONPATH", bench.file("").string());
  bench.set("PATH", "/nowhere");
  const Ended end = bench.run({"vdot", "--plot", "out.svg", "--python", PYTHON});
  CHECK(end.status == 2);
  CHECK(end.out.empty());
  CHECK_THAT(end.err, Catch::Matchers::StartsWith(
                          str("lockstep: error: --plot needs a Python that has matplotlib (Debian: "
                              "python3-matplotlib); tried ",
                              PYTHON, ": ", PYTHON,
                              " cannot import matplotlib: it is broken; python3: cannot run "
                              "python3: No such file or directory")));
  CHECK(lines_of(end.err).size() == 1);
  CHECK_FALSE(fs::exists(bench.file("out.svg")));
  CHECK(bench.left_nothing());
}

TEST_CASE("a picture is drawn by the first Python that can") {
  Bench bench;
  for (const std::string name : {"python3", "other"}) {
    write_text(bench.file(name), "#!/bin/sh\necho no matplotlib; exit 1\n");
    fs::permissions(bench.file(name), fs::perms::owner_all);
  }
  bench.set("PATH", bench.file("").string() + ":/usr/bin:/bin");
  require_status(bench.run({"recorder", "--repetitions", "1", "--plot", "out.svg", "--python",
                            str(bench.file("other").string(), ",", PYTHON)}),
                 0);
  CHECK_THAT(read_text(bench.file("out.svg")), ContainsSubstring("</svg>"));
  CHECK(bench.left_nothing());
}

TEST_CASE("where the picture cannot be written, what was measured is there") {
  Bench bench;
  write_text(bench.file("python3"),
             "#!/bin/sh\n[ $2 = --version ] && exit\necho no space; exit 1\n");
  fs::permissions(bench.file("python3"), fs::perms::owner_all);
  bench.set("PATH", bench.file("").string() + ":/usr/bin:/bin");
  const Ended end =
      bench.run({"recorder", "--repetitions", "1", "--json", "out.json", "--plot", "out.svg"});
  CHECK(end.status == 1);
  CHECK_THAT(end.out, ContainsSubstring("== span: "));
  CHECK(end.err == "lockstep: error: --plot: no space\n");
  CHECK(nlohmann::json::parse(read_text(bench.file("out.json")))["results"].size() == 1);
  CHECK(bench.left_nothing());
}

TEST_CASE("--help and --version print to stdout and do nothing else") {
  const Bench bench;
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--help"}, {"vdot", "--help"}}) {
    const Ended help = bench.run(flags);
    CHECK(help.status == 0);
    CHECK(help.err.empty());
    for (const std::string part :
         {"bench collectives", "bench vdot",     "bench training",  "bench checkpoint",
          "--parameters",      "--folders",      "--stages",        "--operations",
          "--sizes",           "--replicas",     "--systems",       "--launch",
          "--repetitions",     "--python",       "--json",          "--plot",
          "bench parts",       "bench recorder", "--columns",       "--hosts",
          "--rate-mbit",       "--delay-ms",     "How is measured", "The limit",
          "Several hosts",     "Exit status"}) {
      CHECK_THAT(help.out, ContainsSubstring(part));
    }
    for (const std::string& line : lines_of(help.out)) CHECK(line.size() <= 100);
  }
  CHECK(bench.run({"--version"}).out == "lockstep " LOCKSTEP_VERSION "\n");
}

TEST_CASE("what is not understood is refused, in one line and at once") {
  struct Refusal {
    std::vector<std::string> flags;
    std::string message;  // or its beginning
  };
  const std::vector<Refusal> refusals{
      {{},
       "a measurement is needed: collectives, vdot, training, checkpoint, parts, peak or "
       "recorder; see bench --help"},
      {{"colectives"},
       "unknown measurement 'colectives' (did you mean 'collectives'?): collectives, vdot, "
       "training, checkpoint, parts, peak or recorder; see bench --help"},
      {{"collectives", "--size", "8"},
       "unknown flag --size (did you mean '--sizes'?); see bench --help"},
      {{"vdot", "--sizes", "8"}, "unknown flag --sizes"},
      {{"collectives", "stray"}, "'stray' is no flag; see bench --help"},
      {{"collectives", "--sizes"}, ""},
      {{"collectives", "--sizes", "8,1.5MiB"}, "--sizes: '1.5MiB' is no size"},
      {{"collectives", "--sizes", " "}, "--sizes  : an entry of the list is empty"},
      {{"collectives", "--sizes", ",8"}, "--sizes ,8: an entry of the list is empty"},
      {{"collectives", "--sizes", "8, ,16"}, "--sizes 8, ,16: an entry of the list is empty"},
      {{"collectives", "--sizes", "8,,16"}, "--sizes 8,,16: an entry of the list is empty"},
      {{"collectives", "--sizes", "6"},
       "--sizes: 6 is no whole number of float32 values, which take 4 bytes each"},
      {{"collectives", "--operations", "all_reduce,gather"},
       "--operations: unknown operation 'gather'"},
      {{"collectives", "--replicas", "0"}, "--replicas: '0' is no whole number from 1 to 64"},
      {{"collectives", "--replicas", "2,x"}, "--replicas: 'x' is no whole number from 1 to 64"},
      {{"collectives", "--repetitions", "0"},
       "--repetitions: '0' is no whole number from 1 to 10000"},
      {{"collectives", "--launch", "thread"},
       "--launch: 'thread' is neither processes nor threads"},
      {{"collectives", "--systems", "psun"},
       "--systems: unknown system 'psun' (did you mean 'psum'?)"},
      {{"collectives", "--systems", "psum,c10d", "--python", "/nowhere/python"},
       "--systems: c10d cannot be measured here: /nowhere/python cannot run it: "},
      {{"vdot", "--systems", "gloo"},
       "--systems: unknown system 'gloo'; there are pmap, serial, libtorch, jax"},
      {{"training", "--sizes", "8"}, "unknown flag --sizes"},
      {{"training", "--measure", "step"},
       "--measure: 'step' is unknown (did you mean 'steps'?); there are steps, launches, memory"},
      {{"training", "--models", "mlp,vit"},
       "--models: 'vit' is unknown; there are mlp, cnn, resnet, gpt"},
      {{"training", "--data", "disk"}, "--data: 'disk' is unknown; there are memory, augmented"},
      {{"training", "--stages", "4"}, "--stages: '4' is no stage; there are 0, 1, 2, 3"},
      {{"training", "--batch", "0"}, "--batch: '0' is no whole number from 1 to 4096"},
      {{"training", "--replicas", "65"}, "--replicas: '65' is no whole number from 1 to 64"},
      {{"training", "--systems", "lockstep,ddp", "--python", "/nowhere/python"},
       "--systems: ddp cannot be measured here: /nowhere/python cannot run it: "},
      {{"collectives", "--hosts", "2", "--replicas", "4,3"},
       "--replicas: 3 cannot be spread evenly over 2 hosts"},
      {{"collectives", "--hosts", "2", "--launch", "threads"},
       "--launch: on several hosts replicas are processes"},
      {{"collectives", "--rate-mbit", "-1"},
       "--rate-mbit: '-1' is no whole number from 0 to 100000"},
      {{"training", "--hosts", "2", "--measure", "launches"},
       "--measure: launches are those of one host"},
      {{"checkpoint", "--hosts", "2"}, "unknown flag --hosts"},
      {{"checkpoint", "--parameters", "5m"},
       "--parameters: '5m' is no number of parameters, such as 5000 or 100M"},
      {{"checkpoint", "--folders", "/nowhere"},
       "--folders: '/nowhere' is no folder that can be written to"},
      {{"parts", "--measure", "steps"},
       "--measure: 'steps' is unknown; there are table, replicated"},
      {{"parts", "--columns", "1"}, "--columns: '1' is no whole number from 2 to 1000000"},
      {{"parts", "--systems", "train"}, "unknown flag --systems"},
      {{"checkpoint", "--systems", "dcp", "--python", "/nowhere/python"},
       "--systems: dcp cannot be measured here: /nowhere/python cannot run it: "},
      {{"collectives", "--json", "/nowhere/out.json"},
       "--json: the folder /nowhere cannot be written to"},
      {{"collectives", "--plot", ""}, "--plot: '' is no file's name"},
      {{"vdot", "--plot", "out.gif"}, "--plot: 'out.gif' does not end in .svg, .png or .pdf"},
  };
  const Bench bench;
  for (const Refusal& refusal : refusals) {
    const Ended end = bench.run_in_fork(refusal.flags);
    INFO(join(refusal.flags, " ") << "\n" << end.out << end.err);
    CHECK(end.status == 2);
    CHECK(end.out.empty());
    CHECK(lines_of(end.err).size() == 1);
    CHECK(end.err.rfind("lockstep: error: " + refusal.message, 0) == 0);
  }
  CHECK(bench.left_nothing());
}

TEST_CASE(
    "a system that loses a process ends the measurement, with its name, and nothing stays behind") {
  const Bench bench;
  ChildProgram program(bench.command(kLong));
  const pid_t worker = await_worker(program);
  const std::vector<pid_t> all = with_descendants(program.pid());
  ::kill(children_of(worker)[1], SIGKILL);
  const Ended end = program.wait();
  check_status(end, 3);
  CHECK_THAT(end.err, ContainsSubstring("lockstep: error: psum, 2 replicas: "));
  CHECK_THAT(end.err, ContainsSubstring("replica 1"));
  for (const pid_t pid : all) CHECK(eventually([&] { return ended(pid); }));
  CHECK(bench.left_nothing());
}

TEST_CASE("Ctrl-C and SIGTERM end everything") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Bench bench;
    ChildProgram program(bench.command(kLong));
    (void)await_worker(program);
    const std::vector<pid_t> all = with_descendants(program.pid());
    ::kill(program.pid(), signal);
    const Ended end = program.wait();
    check_status(end, 128 + signal);
    CHECK_THAT(end.err,
               ContainsSubstring(signal == SIGINT ? "stopped by Ctrl-C" : "stopped by SIGTERM"));
    for (const pid_t pid : all) CHECK(eventually([&] { return ended(pid); }));
    CHECK(bench.left_nothing());
  }
}

TEST_CASE("Ctrl-C and SIGTERM end the search for systems") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Bench bench;
    // A Python that does not answer.
    std::ofstream(bench.file("python")) << "#!/bin/sh\nexec sleep 1000\n";
    fs::permissions(bench.file("python"), fs::perms::owner_all);
    ChildProgram program(bench.command(
        {"collectives", "--systems", "c10d", "--python", bench.file("python").string()}));
    std::vector<pid_t> asked;
    REQUIRE(eventually([&] { return !(asked = children_of(program.pid())).empty(); }));
    ::kill(program.pid(), signal);
    const Ended end = program.wait(std::chrono::seconds(20));
    check_status(end, 128 + signal);
    CHECK(!end.by_signal);
    CHECK(eventually([&] { return ended(asked[0]); }));
    CHECK(bench.left_nothing());
  }
}
