#include "framework/data/tensor_set.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/support/message_of.h"

namespace lockstep {

TEST_CASE("a set of tensors gives their rows") {
  const at::Tensor inputs = at::arange(12, at::kFloat).view({3, 2, 2});
  const at::Tensor targets = at::arange(3, at::kLong);
  const TensorSet set(inputs, targets, class_sample({2, 2}, 3));
  CHECK(set.size() == 3);
  const Batch batch = set.batch(std::vector<std::int64_t>{2, 0, 2});
  CHECK(testing::floats_of(batch.inputs) ==
        std::vector<float>{8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(testing::integers_of(batch.targets) == std::vector<std::int64_t>{2, 0, 2});
  CHECK(set.batch({}).inputs.sizes().vec() == std::vector<std::int64_t>{0, 2, 2});
  batch.inputs.fill_(5);
  CHECK(inputs[2][0][0].item<float>() == 8);
  testing::check_same_batches(set);
}

TEST_CASE("a set of tensors that do not fit its type is refused") {
  const SampleType type = class_sample({2}, 3);
  const at::Tensor inputs = at::zeros({4, 2});
  const at::Tensor targets = at::zeros({4}, at::kLong);
  CHECK_NOTHROW(TensorSet(inputs, targets, type));
  CHECK(TensorSet(inputs, targets, type).class_names().empty());
  CHECK_THROWS_AS(TensorSet({}, targets, type), ValueError);
  CHECK_THROWS_AS(TensorSet(inputs, at::zeros({3}, at::kLong), type), ValueError);
  CHECK_THROWS_AS(TensorSet(inputs, at::zeros({4}), type), ValueError);
  CHECK_THROWS_AS(TensorSet(at::zeros({4, 3}), targets, type), ValueError);
  CHECK_THROWS_AS(TensorSet(at::zeros({2, 4}).t(), targets, type), ValueError);
  CHECK_THROWS_AS(TensorSet(at::zeros({0, 2}), at::zeros({0}, at::kLong), type), ValueError);
}

TEST_CASE("samples of a set of tensors that are damaged can't be made") {
  const TensorSet set(
      at::zeros({5, 2}), at::zeros({5}, at::kLong), class_sample({2}, 3), {},
      {.reasons = {{1, "one is cut"}}, .others = {2, 4}, .reason_of_others = "others are, too"});
  const auto error = [&](const std::vector<std::int64_t>& samples) {
    return testing::message_of<DataError>([&] { (void)set.batch(samples); });
  };
  CHECK_NOTHROW(set.batch(std::vector<std::int64_t>{0, 3}));
  CHECK(error({0, 1}) == "one is cut");
  CHECK(error({3, 4}) == "others are, too");
  CHECK(error({2}) == "others are, too");
}

TEST_CASE("a set of tensors without targets says so, and has none") {
  const TensorSet values(at::zeros({4, 2}), std::nullopt, value_sample({2}, 3));
  CHECK_FALSE(values.has_targets());
  const at::Tensor none = values.batch(std::vector<std::int64_t>{1, 2}).targets;
  CHECK(none.sizes().vec() == std::vector<std::int64_t>{2, 3});
  CHECK(none.isnan().all().item<bool>());
  const auto classes =
      std::make_shared<const TensorSet>(at::zeros({4, 2}), std::nullopt, class_sample({2}, 3));
  const Subset part(classes, {3});
  CHECK_FALSE(part.has_targets());
  CHECK(testing::integers_of(part.batch(std::vector<std::int64_t>{0}).targets) ==
        std::vector<std::int64_t>{-1});
  CHECK(TensorSet(at::zeros({4, 2}), at::zeros({4, 3}), value_sample({2}, 3)).has_targets());
}

}  // namespace lockstep
