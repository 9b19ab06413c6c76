#include "trainers/report/run_table.h"

#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace fs = std::filesystem;

namespace lockstep::report {

using namespace testing;
namespace {

// Three runs, of which the last to end is not the best at its end, and one that is damaged.
class RunsFolder {
 public:
  RunsFolder() {
    add("a", R"({"step":1,"elapsed_s":1,"samples":8,"loss":2.0,"samples_per_s":8}
{"step":1,"validation_accuracy":0.25,"validation_loss":1.5}
{"step":2,"elapsed_s":2,"samples":16,"loss":1.0,"samples_per_s":24}
{"step":2,"validation_accuracy":0.5,"validation_loss":1.25}
)");
    add("b", R"({"step":3,"loss":0.5}
{"step":1,"validation_accuracy":0.75,"validation_loss":1.25}
{"step":2,"validation_accuracy":0.375,"validation_loss":0.75}
)");
    add("c", R"({"step":4,"loss":null}
{"step":4,"eval_accuracy":0.4375,"test_accuracy":0.4375,"test_own":3}
)");
    runs = mapped(std::vector<std::string>{"a", "b", "c"},
                  [&](const std::string& name) { return listed_run(home_.path() / name); });
  }

  void add(const std::string& name, const std::string& lines,
           const std::string& config = "optimizer: {lr: 0.1}\n") const {
    fs::create_directories(home_.path() / name);
    write_text(home_.path() / name / "config.yaml", config);
    write_text(home_.path() / name / "metrics.jsonl", lines);
  }
  void add_damaged() {
    const std::string name = "<script>\n\x1b[31m";
    add(name, "no line\n");
    runs.push_back(listed_run(home_.path() / name / ""));
  }
  // The runs' names, sorted by a figure.
  std::string sorted(const std::string& name) {
    sort_runs(runs, name);
    return join(mapped(runs, &ListedRun::name), "");
  }

  std::vector<ListedRun> runs;

 private:
  TemporaryFolder home_;
};

TEST_CASE("runs are sorted by a figure, the best first, as its metric has it") {
  RunsFolder folder;
  CHECK(folder.sorted("accuracy") == "acb");  // c's is of the test set
  CHECK(folder.sorted("best_accuracy") == "bac");
  CHECK(folder.sorted("validation_loss") == "bac");
  CHECK(folder.sorted("best_validation_loss") == "bac");
  CHECK(folder.sorted("loss") == "bac");  // c's is not finite
  CHECK(folder.sorted("test_accuracy") == "cba");
  CHECK(message_of<ValueError>([&] { sort_runs(folder.runs, "acuracy"); }) ==
        "no run here has the figure or key 'acuracy' (did you mean 'accuracy'?); there are loss, "
        "test_accuracy, test_own, validation_accuracy, validation_loss");
  CHECK(message_of<ValueError>([&] { sort_runs(folder.runs, "own"); }) ==
        "which test_own is the better is not known: this program has no such metric");
  std::vector<ListedRun> none;
  CHECK(message_of<ValueError>([&] { sort_runs(none, "f1"); }) ==
        "no run here has the figure or key 'f1'; there are none");
}

TEST_CASE("runs are sorted by the validation set's loss, by the training's, or by a key") {
  RunsFolder folder;
  // The least training loss of all, of a run that was overfitted, and of one without a set.
  folder.add("d", R"({"step":4,"loss":0.01}
{"step":4,"validation_loss":9}
)",
             "optimizer: {lr: 0.02}\n");
  folder.add("e", "{\"step\":4,\"loss\":0.001}\n", "optimizer: {lr: 1.0e-3, name: sgd}\n");
  const fs::path home = folder.runs[0].record.folder.parent_path();
  for (const char* name : {"d", "e"}) folder.runs.push_back(listed_run(home / name));
  CHECK(folder.sorted("loss") == "badce");
  CHECK(folder.sorted("train_loss") == "edbac");
  CHECK(folder.sorted("optimizer.lr") == "edbac");
  CHECK_THAT(message_of<ValueError>([&] { sort_runs(folder.runs, "optimiser.lr"); }),
             ContainsSubstring("(did you mean 'optimizer.lr'?)"));
  CHECK(differing_keys(folder.runs) == std::vector<std::string>{"optimizer.lr", "optimizer.name"});
  CHECK_THAT(runs_text(folder.runs, "optimizer.lr", 5), ContainsSubstring("run  optimizer.lr\n"));
  CHECK_THAT(runs_text(folder.runs, "best_loss", 5),
             ContainsSubstring("run  best\n") && ContainsSubstring("validation_loss 9 at 4"));
  CHECK_THAT(runs_text(folder.runs, std::nullopt, std::nullopt),
             ContainsSubstring("  step  optimizer.lr  optimizer.name  "));
}

TEST_CASE("whether higher is better is what the figure's metric says") {
  CHECK(higher_is_better("validation_accuracy") == true);
  CHECK(higher_is_better("test_best_top_5") == true);
  CHECK(higher_is_better("test_root_mean_squared_error") == false);
  CHECK(higher_is_better("loss") == false);
  for (const char* name : {"lr", "accuracy_", "validation_top_0", "test_", "best_loss"}) {
    CHECK(higher_is_better(name) == std::nullopt);
  }
}

TEST_CASE("a list of runs for people fits its terminal, and its names are printable") {
  RunsFolder folder;
  for (ListedRun& run : folder.runs) run.record.age_s = 200;
  const std::string all = runs_text(folder.runs, "accuracy", std::nullopt);
  CHECK(all == table_text({{"run", "status", "step", "loss", "validation_accuracy",
                            "validation_loss", "test_accuracy", "test_own", "best", "age"},
                           {"a", "failed", "2", "1", "0.5", "1.25", "", "",
                            "validation_accuracy 0.5 at 2", "3 min"},
                           {"b", "failed", "2", "0.5", "0.375", "0.75", "", "",
                            "validation_accuracy 0.75 at 1", "3 min"},
                           {"c", "failed", "4", "not finite", "", "", "0.4375", "3",
                            "test_accuracy 0.4375 at 4", "3 min"}},
                          "llrrrrrrlr"));
  CHECK(runs_text(folder.runs, "accuracy", 80) ==
        table_text({{"run", "status", "validation_accuracy", "test_accuracy"},
                    {"a", "failed", "0.5", ""},
                    {"b", "failed", "0.375", ""},
                    {"c", "failed", "", "0.4375"}},
                   "llrr"));
  CHECK(runs_text(folder.runs, std::nullopt, 60) ==
        table_text({{"run", "status", "step", "best", "age"},
                    {"a", "failed", "2", "validation_loss 1.25 at 2", "3 min"},
                    {"b", "failed", "2", "validation_loss 0.75 at 2", "3 min"},
                    {"c", "failed", "4", "", "3 min"}},
                   "llrlr"));
  folder.add_damaged();
  const std::string text = runs_text(folder.runs, std::nullopt, 5);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK_THAT(text, ContainsSubstring("run\na\nb\nc\ndamaged: <script>\\x0a\\x1b[31m: "));
}

TEST_CASE("a list of runs tells how often they have gone on, and runs of one name apart") {
  RunsFolder folder;
  folder.add("d", R"({"step":1,"loss":2}
{"step":2,"loss":1,"resumed_after":1}
{"step":5,"loss":1,"resumed_after":4,"restarts":1}
)");
  const fs::path d = folder.runs[0].record.folder.parent_path() / "d";
  std::vector<ListedRun> runs{folder.runs[0], listed_run(d)};
  for (ListedRun& run : runs) run.record.age_s = 200;
  tell_apart(runs);
  CHECK(runs_text(runs, std::nullopt, 60) ==
        table_text({{"run", "status", "step", "resumes", "best", "age"},
                    {"a", "failed", "2", "0", "validation_loss 1.25 at 2", "3 min"},
                    {"d", "failed", "5", "2", "", "3 min"}},
                   "llrrlr"));
  CHECK(runs_json(runs)[1]["resumes"] == 2);
  CHECK(!runs_json(runs)[0].contains("resumes"));
  runs.push_back(listed_run(d / ""));
  tell_apart(runs);
  CHECK(runs[0].name == folder.runs[0].record.folder.string());
  CHECK(runs[2].name == d.string());
}

TEST_CASE("a list of runs for programs has each run's last and best figures") {
  RunsFolder folder;
  folder.add_damaged();
  const auto json = nlohmann::json::parse(json_line(runs_json(folder.runs, {"optimizer.lr", "x"})));
  CHECK(json[0]["run"] == "a");
  CHECK(json[0]["status"] == "failed");
  CHECK(json[0]["samples"] == 16);
  CHECK(json[0]["samples_per_s"] == 16);
  CHECK(json[0]["figures"]["loss"] == nlohmann::json{{"last", 1}, {"best", 1}, {"best_step", 2}});
  CHECK(json[0]["config"] == nlohmann::json{{"optimizer.lr", "0.1"}, {"x", nullptr}});
  CHECK(json[2]["figures"]["loss"] == nlohmann::json{{"last", nullptr}});
  CHECK(json[2]["figures"]["test_own"] == nlohmann::json{{"last", 3}});
  CHECK(json[3]["run"] == "<script>\n\x1b[31m");
  CHECK(json[3]["status"] == "damaged");
  folder.runs.pop_back();
  for (ListedRun& run : folder.runs) {
    run.record.age_s = 2.5;
    run.record.folder = "runs";
  }
  folder.runs.resize(1);
  CHECK(runs_csv(folder.runs, {"optimizer.lr"}) ==
        "run,folder,status,step,samples,elapsed_s,age_s,resumes,restarts,checkpoint,samples_per_s,"
        "loss,"
        "best_loss,best_step_loss,validation_accuracy,best_validation_accuracy,"
        "best_step_validation_accuracy,validation_loss,best_validation_loss,"
        "best_step_validation_loss,parameters_sha256,failure,damage,optimizer.lr\n"
        "a,runs,failed,2,16,2.0,2.5,\"\",\"\",\"\",16.0,1.0,1.0,2,0.5,0.5,2,1.25,1.25,2,\"\",\"\","
        "\"\",0.1\n");
}

}  // namespace
}  // namespace lockstep::report
