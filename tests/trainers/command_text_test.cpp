#include "trainers/run/command_text.h"

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("a run's command line can be given again, and does not tell where its secret is") {
  CHECK(command_text({"train", "--config", "a.yaml", "--secret-file", "/home/a/secret",
                      "--quiet"}) == "train --config a.yaml --quiet");
  CHECK(command_text({"train", "--secret-file=/home/a/secret", "--set", "lr=0.1"}) ==
        "train --set lr=0.1");
  CHECK(command_text({"train", "--secret-file"}) == "train");
  CHECK(command_text({"./my train", "--set", "data.classes=[a, 'b']", ""}) ==
        R"('./my train' --set 'data.classes=[a, '\''b'\'']' '')");
}
