#include "tests/comm/words.h"

#include <cstring>
#include <numeric>

#include "framework/reduce/reduce.h"

namespace lockstep::testing {

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

bool same(std::span<const float> a, std::span<const float> b) {
  return same(std::as_bytes(a), std::as_bytes(b));
}

Words values_of(int rank, std::size_t count, std::size_t salt) {
  Words words(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto mixed =
        (i * 2654435761U + static_cast<std::size_t>(rank) * 40503U + salt) % 1000003U;
    words[i] = static_cast<float>(mixed) * (i % 3 == 0 ? 1e-3F : 1.7F);
  }
  return words;
}

Words sum_of(const std::vector<int>& ranks, std::size_t count, std::size_t salt) {
  std::vector<Words> inputs;
  std::vector<const std::byte*> pointers;
  for (const int rank : ranks) inputs.push_back(values_of(rank, count, salt));
  for (const Words& input : inputs) pointers.push_back(bytes(input).data());
  Words output(count);
  reduce::reduce(pointers, bytes(output), kFloat, kSum);
  return output;
}

std::vector<int> everyone(int replicas) {
  std::vector<int> ranks(static_cast<std::size_t>(replicas));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Words slice(const Words& words, std::size_t start, std::size_t count) {
  const auto first = words.begin() + static_cast<std::ptrdiff_t>(start);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace lockstep::testing
