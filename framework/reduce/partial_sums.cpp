#include "framework/reduce/partial_sums.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/reduce/reduce.h"

namespace lockstep::reduce {
namespace {

// A subtree and its inputs reduced by partial_op(), or its only input.
struct PartialSum {
  Subtree of;
  const std::byte* data;
};

void add_subtrees(std::span<const int> own, Subtree node, std::vector<Subtree>& found) {
  const auto begin = std::ranges::lower_bound(own, node.first);
  const auto end = std::ranges::lower_bound(own, node.first + node.count);
  if (begin == end) return;
  if (end - begin == node.count) {
    found.push_back(node);
    return;
  }
  add_subtrees(own, node.left(), found);
  add_subtrees(own, node.right(), found);
}

std::int64_t first_place(const PartialSum& sum) {
  return sum.of.first;
}

// Returns the number of parts that lie in the node's left half. `parts` cover the whole node.
std::size_t split(std::span<const PartialSum> parts, Subtree node) {
  const std::int64_t middle = node.right().first;
  const auto right = std::ranges::lower_bound(parts, middle, {}, first_place);
  return static_cast<std::size_t>(right - parts.begin());
}

// True if the tree above the parts is the canonical tree over as many inputs.
bool is_canonical(std::span<const PartialSum> parts, Subtree node) {
  if (parts.size() == 1) return true;
  const std::size_t left = split(parts, node);
  const Subtree places{0, static_cast<std::int64_t>(parts.size())};
  return static_cast<std::int64_t>(left) == places.left().count &&
         is_canonical(parts.first(left), node.left()) &&
         is_canonical(parts.subspan(left), node.right());
}

// Reduces parts that have all of the node's places. `output` is written last: it may be one of
// them.
void reduce_parts(std::span<const PartialSum> parts, Subtree node, std::span<std::byte> output,
                  ElementType type, ReduceOp op) {
  std::vector<const std::byte*> data;
  if (is_canonical(parts, node)) {
    for (const PartialSum& part : parts) data.push_back(part.data);
    return reduce(data, output, type, op);
  }
  std::vector<std::unique_ptr<std::byte[]>> made;
  const auto add = [&](std::span<const PartialSum> half, Subtree below) {
    if (half.size() == 1) return data.push_back(half[0].data);
    made.push_back(std::make_unique_for_overwrite<std::byte[]>(output.size()));
    reduce_parts(half, below, {made.back().get(), output.size()}, type, op);
    data.push_back(made.back().get());
  };
  const std::size_t left = split(parts, node);
  add(parts.first(left), node.left());
  add(parts.subspan(left), node.right());
  reduce(data, output, type, op);
}

template <typename T>
void divide_by(std::span<std::byte> sum, double divisor) {
  for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, &sum[at], sizeof(T));
    value /= static_cast<T>(divisor);
    std::memcpy(&sum[at], &value, sizeof(T));
  }
}

}  // namespace

bool has_partial_sums(ElementType type, ReduceOp op) {
  const bool is_half = type == ElementType::float16 || type == ElementType::bfloat16;
  return op == ReduceOp::max || op == ReduceOp::min || !(is_half || op == ReduceOp::safe_mean);
}

ReduceOp partial_op(ReduceOp op) {
  return is_mean(op) ? ReduceOp::sum : op;
}

ReductionPlan::ReductionPlan(const std::vector<std::vector<int>>& places, ElementType type,
                             ReduceOp op) {
  for (const auto& there : places) places_ += static_cast<int>(there.size());
  for (const auto& there : places) {
    std::vector<Subtree>& found = subtrees_.emplace_back();
    if (has_partial_sums(type, op)) {
      add_subtrees(there, {0, places_}, found);
    } else {
      for (const int place : there) found.push_back({place, 1});
    }
  }
  std::vector<PartialSum> all;
  for (const auto& of_one : subtrees_) {
    if (of_one.size() == 1) all.push_back({of_one[0], nullptr});
  }
  is_one_sum_each_ = all.size() == subtrees_.size() &&
                     std::ranges::is_sorted(all, {}, first_place) &&
                     is_canonical(all, {0, places_});
}

void ReductionPlan::combine(const std::vector<std::vector<ConstBytes>>& sums, std::size_t part,
                            std::size_t stride, std::span<std::byte> output, ElementType type,
                            ReduceOp op) const {
  std::vector<PartialSum> parts;
  for (std::size_t worker = 0; worker < subtrees_.size(); ++worker) {
    for (std::size_t i = 0; i < subtrees_[worker].size(); ++i) {
      parts.push_back({subtrees_[worker][i], sums[worker][i * stride + part].data()});
    }
  }
  std::ranges::sort(parts, {}, first_place);
  const bool are_inputs = parts.size() == static_cast<std::size_t>(places_);
  reduce_parts(parts, {0, places_}, output, type, are_inputs ? op : partial_op(op));
  if (!are_inputs) divide(output, places_, type, op);
}

void divide(std::span<std::byte> sum, int places, ElementType type, ReduceOp op) {
  if (!is_mean(op)) return;
  const double divisor = op == ReduceOp::mean ? places : places * mean_scale(places);
  if (type == ElementType::float32) return divide_by<float>(sum, divisor);
  if (type == ElementType::float64) return divide_by<double>(sum, divisor);
  throw ValueError(str("divide: sums of ", name_of(type), " are not divided"));
}

}  // namespace lockstep::reduce
