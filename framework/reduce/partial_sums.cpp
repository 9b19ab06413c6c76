#include "framework/reduce/partial_sums.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/reduce/reduce.h"

namespace lockstep {
namespace {

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

// How many of the parts, which have all of the node's places, are in its left part.
std::size_t split(std::span<const Subtree> parts, Subtree node) {
  const std::int64_t middle = node.right().first;
  const auto right = std::ranges::find_if(parts, [&](Subtree s) { return s.first >= middle; });
  return static_cast<std::size_t>(right - parts.begin());
}

// Whether the tree above the parts is the canonical one over so many.
bool is_canonical(std::span<const Subtree> parts, Subtree node) {
  if (parts.size() == 1) return true;
  const std::size_t left = split(parts, node);
  const Subtree places{0, static_cast<std::int64_t>(parts.size())};
  return static_cast<std::int64_t>(left) == places.left().count &&
         is_canonical(parts.first(left), node.left()) &&
         is_canonical(parts.subspan(left), node.right());
}

// A reduction above its partial sums. `output` is written last: it may be one of them.
class Combination {
 public:
  Combination(std::span<const Subtree> parts, std::span<const std::byte* const> data,
              ElementType type, ReduceOp op)
      : parts_(parts), data_(data), type_(type), op_(op) {}

  void reduce_to(std::span<std::byte> output, Subtree node) {
    reduce_to(output, node, 0, parts_.size());
  }

 private:
  // Of parts `begin` to `end`, which have all of the node's places.
  void reduce_to(std::span<std::byte> output, Subtree node, std::size_t begin, std::size_t end) {
    const auto parts = parts_.subspan(begin, end - begin);
    if (is_canonical(parts, node)) {
      return reduce(data_.subspan(begin, end - begin), output, type_, op_);
    }
    const std::size_t middle = begin + split(parts, node);
    const auto of_left = reduced(node.left(), begin, middle, output.size());
    const auto of_right = reduced(node.right(), middle, end, output.size());
    const std::byte* const both[] = {of_left, of_right};
    reduce(both, output, type_, op_);
  }

  const std::byte* reduced(Subtree node, std::size_t begin, std::size_t end, std::size_t bytes) {
    if (end - begin == 1) return data_[begin];
    made_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    std::byte* const result = made_.back().get();
    reduce_to({result, bytes}, node, begin, end);
    return result;
  }

  std::span<const Subtree> parts_;
  std::span<const std::byte* const> data_;
  ElementType type_;
  ReduceOp op_;
  std::vector<std::unique_ptr<std::byte[]>> made_;
};

template <typename T>
void divide_by(std::span<std::byte> sum, int places) {
  for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, &sum[at], sizeof(T));
    value /= static_cast<T>(places);
    std::memcpy(&sum[at], &value, sizeof(T));
  }
}

}  // namespace

std::vector<Subtree> subtrees_of(std::span<const int> own, int places) {
  std::vector<Subtree> found;
  add_subtrees(own, {0, places}, found);
  return found;
}

bool has_partial_sums(ElementType type, ReduceOp op) {
  const bool is_half = type == ElementType::float16 || type == ElementType::bfloat16;
  return !is_half || op == ReduceOp::max || op == ReduceOp::min;
}

ReduceOp partial_op(ReduceOp op) {
  return op == ReduceOp::mean ? ReduceOp::sum : op;
}

ReductionPlan::ReductionPlan(const std::vector<std::vector<int>>& places, ElementType type,
                             ReduceOp op) {
  for (const auto& there : places) places_ += static_cast<int>(there.size());
  for (const auto& there : places) {
    if (has_partial_sums(type, op)) {
      subtrees_.push_back(subtrees_of(there, places_));
    } else {
      subtrees_.emplace_back();
      for (const int place : there) subtrees_.back().push_back({place, 1});
    }
  }
}

bool ReductionPlan::is_one_sum_each() const {
  std::vector<Subtree> all;
  for (const auto& of_one : subtrees_) {
    if (of_one.size() != 1) return false;
    all.push_back(of_one[0]);
  }
  return std::ranges::is_sorted(all, {}, &Subtree::first) && is_canonical(all, {0, places_});
}

std::vector<PartialSum> ReductionPlan::in_order(const std::vector<std::vector<ConstBytes>>& pieces,
                                                std::size_t part, std::size_t stride) const {
  std::vector<PartialSum> sums;
  for (std::size_t worker = 0; worker < subtrees_.size(); ++worker) {
    for (std::size_t i = 0; i < subtrees_[worker].size(); ++i) {
      sums.push_back({subtrees_[worker][i], pieces[worker][i * stride + part].data()});
    }
  }
  std::ranges::sort(sums, {}, [](const PartialSum& sum) { return sum.of.first; });
  return sums;
}

void combine(std::span<const PartialSum> parts, int places, std::span<std::byte> output,
             ElementType type, ReduceOp op) {
  std::vector<Subtree> subtrees;
  std::vector<const std::byte*> data;
  for (const PartialSum& part : parts) {
    subtrees.push_back(part.of);
    data.push_back(part.data);
  }
  if (subtrees.size() == static_cast<std::size_t>(places)) return reduce(data, output, type, op);
  Combination(subtrees, data, type, partial_op(op)).reduce_to(output, {0, places});
  if (op == ReduceOp::mean) divide(output, places, type);
}

void divide(std::span<std::byte> sum, int places, ElementType type) {
  if (type == ElementType::float32) return divide_by<float>(sum, places);
  if (type == ElementType::float64) return divide_by<double>(sum, places);
  throw ValueError(str("divide: sums of ", name_of(type), " are not divided"));
}

}  // namespace lockstep
