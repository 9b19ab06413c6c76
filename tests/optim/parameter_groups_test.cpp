#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/optim/optimizer_options.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::message_of;

const std::vector<std::string> kNames{"fc1.bias", "fc1.weight", "norm.weight"};

OptimizerOptions with(std::vector<ParameterGroup> groups) {
  return {.weight_decay = 0.1, .groups = std::move(groups)};
}

}  // namespace

TEST_CASE("the first group whose pattern matches a parameter holds for it", "[optim]") {
  const OptimizerOptions options =
      with({{.pattern = "*.bias", .weight_decay = 0.0},
            {.pattern = "fc?.*", .lr_scale = 0.5},
            {.pattern = "[mn]orm.weight", .weight_decay = 0.3, .lr_scale = 2}});
  CHECK(parameter_settings(options, "fc1.bias") == ParameterSettings{0, 1});
  CHECK(parameter_settings(options, "block.0.norm.bias") == ParameterSettings{0, 1});
  CHECK(parameter_settings(options, "fc1.weight") == ParameterSettings{0.1, 0.5});
  CHECK(parameter_settings(options, "norm.weight") == ParameterSettings{0.3, 2});
  CHECK(parameter_settings(options, "head.weight") == ParameterSettings{0.1, 1});
  CHECK(parameter_settings(with({}), "fc1.bias") == ParameterSettings{0.1, 1});
  CHECK_NOTHROW(check_groups(options, kNames));
  CHECK_NOTHROW(check_groups(with({}), {}));
}

TEST_CASE("a group that holds for no parameter is an error", "[optim]") {
  const auto message = [](std::vector<ParameterGroup> groups) {
    return message_of<ValueError>([&] { check_groups(with(std::move(groups)), kNames); });
  };
  CHECK(message({{.pattern = "*.bias"}, {.pattern = "bias"}}) ==
        "optimizer.groups: no parameter matches the pattern 'bias'; the parameters are fc1.bias, "
        "fc1.weight, norm.weight");
  CHECK(message({{.pattern = "fc1.*"}, {.pattern = "*.bias"}}) ==
        "optimizer.groups: earlier groups match all that the pattern '*.bias' does: fc1.bias");
}

}  // namespace lockstep
