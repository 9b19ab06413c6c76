#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/data/data.h"
#include "framework/data/loader.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep::testing {

inline std::vector<std::int64_t> all_of(const Dataset& data) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// All samples of a set, in their order.
inline Batch whole(const Dataset& data, std::int64_t epoch = kUnaugmented) {
  return data.batch(all_of(data), epoch);
}

/// What the error of a sample that is damaged says.
inline std::string damage_of(const Dataset& data, std::int64_t index) {
  return message_of<DataError>([&] { (void)data.batch(std::span(&index, 1)); });
}

/// How many samples the sets to train on, to validate and to test have: 0 where there is none.
inline std::vector<std::int64_t> sizes_of(const DataSets& sets) {
  std::vector<std::int64_t> sizes;
  for (const auto& set : {sets.train, sets.validation, sets.test}) {
    sizes.push_back(set ? set->size() : 0);
  }
  return sizes;
}

inline std::vector<float> floats_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel()};
}

inline std::vector<std::int64_t> integers_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<std::int64_t>(), tensor.data_ptr<std::int64_t>() + tensor.numel()};
}

/// Checks that each sample of an epoch is the same whether it is asked for alone, in order, or in a
/// batch of any order by one of several threads.
inline void check_same_batches(const Dataset& data) {
  for (const std::int64_t epoch : {kUnaugmented, std::int64_t{0}, std::int64_t{1}}) {
    const Batch expected = whole(data, epoch);
    for (const std::int64_t threads : {0, 1, 3}) {
      CAPTURE(epoch, threads);
      const std::vector<std::int64_t> order = permutation(Key(7).fold("order"), data.size());
      Loader loader(data, {.threads = threads, .ahead = 3});
      std::vector<std::vector<std::int64_t>> asked;
      for (std::size_t i = 0; i < order.size(); ++i) {
        asked.push_back(i % 2 == 0 ? std::vector{order[i]}
                                   : std::vector{order[i], order[i - 1], order[0], order[i]});
      }
      for (const auto& indices : asked) loader.request(indices, epoch);
      bool same = true;
      for (const auto& indices : asked) {
        const Batch batch = loader.next();
        for (std::size_t row = 0; row < indices.size(); ++row) {
          const auto place = static_cast<std::int64_t>(row);
          same = same && at::equal(batch.inputs[place], expected.inputs[indices[row]]) &&
                 at::equal(batch.targets[place], expected.targets[indices[row]]);
        }
      }
      CHECK(same);
    }
  }
}

}  // namespace lockstep::testing
