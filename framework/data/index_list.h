#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "framework/base/random.h"

namespace lockstep::data {

/// Numbers of samples in an order of their own. Each takes four bytes, or eight where some are 2^32
/// or more: there may be as many as samples, on each replica.
class IndexList {
 public:
  IndexList() = default;
  /// A copy of `numbers`. Numbers below 0, which no sample has, stay what they are.
  explicit IndexList(const std::vector<std::int64_t>& numbers);
  /// 0 … count-1 in the order of permutation(key, count).
  [[nodiscard]] static IndexList permuted(const Key& key, std::int64_t count);
  /// What a list of 0 … count-1 takes.
  [[nodiscard]] static std::int64_t bytes(std::int64_t count) noexcept;

  [[nodiscard]] std::int64_t size() const noexcept {
    return std::visit([](const auto& numbers) { return std::ssize(numbers); }, numbers_);
  }
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const;

  /// Cuts the first `count` off.
  [[nodiscard]] IndexList take(std::int64_t count);
  void sort();

 private:
  std::variant<std::vector<std::uint32_t>, std::vector<std::int64_t>> numbers_;
};

}  // namespace lockstep::data
