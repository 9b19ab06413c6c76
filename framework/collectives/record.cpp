#include "framework/collectives/record.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// What is said of leaves must fit into a record's text beside the rest of it, and as much be said
// of leaves that are alike.
constexpr std::size_t kListedText = 150;
constexpr std::size_t kDigests = 6;

thread_local const ForwardCall* current_forward = nullptr;

// Every call is announced: no streams here, which cost more than the rest of it.
std::string text_of_leaf(const at::Tensor& leaf, const AxisCall& call) {
  std::string text = "(";
  for (std::int64_t d = 0; d < leaf.dim(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(leaf.size(d));
  }
  text += ") ";
  text += name_of(element_type(leaf.scalar_type(), call));
  return text;
}

Key fold_leaf(const Key& key, const at::Tensor& leaf) {
  Key folded = key.fold(static_cast<std::uint64_t>(leaf.scalar_type()))
                   .fold(static_cast<std::uint64_t>(leaf.dim()));
  for (const std::int64_t size : leaf.sizes()) {
    folded = folded.fold(static_cast<std::uint64_t>(size));
  }
  return folded;
}

// "; leaves 12 to 15: 3fa2, 16 to 19: 81bc": so much of leaves that are not listed that one sees
// where those of two calls begin to differ.
std::string digests_of(const Leaves& leaves, std::size_t begin) {
  const std::size_t length = (leaves.size() - begin + kDigests - 1) / kDigests;
  std::vector<std::string> digests;
  for (; begin < leaves.size(); begin += length) {
    const std::size_t end = std::min(begin + length, leaves.size());
    Key key(0);
    for (std::size_t i = begin; i < end; ++i) key = fold_leaf(key, leaves[i]);
    constexpr char kDigits[] = "0123456789abcdef";
    std::string digest;
    for (int shift = 12; shift >= 0; shift -= 4) digest += kDigits[key.bits() >> shift & 15];
    digests.push_back(lockstep::str(begin, end - begin > 1 ? " to " + std::to_string(end - 1) : "",
                                    ": ", digest));
  }
  return "; leaves " + join(digests);
}

// "(4, 2) float32, 3 x (2) float32", and of the leaves for which there is no room digests.
std::string text_of_leaves(const Leaves& leaves, const AxisCall& call) {
  if (leaves.empty()) return "no leaves";
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < leaves.size(); begin = end) {
    const at::Tensor& first = leaves[begin];
    for (end = begin; end < leaves.size() && leaves[end].sizes() == first.sizes() &&
                      leaves[end].scalar_type() == first.scalar_type();) {
      ++end;
    }
    const std::string times = end - begin > 1 ? std::to_string(end - begin) + " x " : "";
    const std::string run = times + text_of_leaf(first, call);
    if (begin > 0 && text.size() + run.size() > kListedText) {
      return lockstep::str(text, " and ", leaves.size() - begin, " more leaves",
                           digests_of(leaves, begin));
    }
    if (begin > 0) text += ", ";
    text += run;
  }
  return text;
}

// "psum over 'data' at model.cpp:44", or which call's backward it is of.
std::string title_of(const AxisCall& call) {
  if (current_forward != nullptr) return "the backward of " + current_forward->text;
  const AxisCall& shown = call.shown();
  return shown.operation + (" over " + shown.axes.text() + " at " + text_of(shown.where));
}

Key fingerprint_of(const AxisCall& call, const Leaves& leaves, const std::string& detail,
                   bool differentiated) {
  Key key = Key(differentiated ? 1 : 0).fold(std::string_view(call.operation)).fold(detail);
  if (current_forward != nullptr) key = key.fold(current_forward->id);
  for (const std::string& name : call.axes.names()) key = key.fold(name);
  for (const at::Tensor& leaf : leaves) key = fold_leaf(key, leaf);
  return key;
}

}  // namespace

CallRecord record_of(const AxisCall& call, const Leaves& leaves, const std::string& detail,
                     bool differentiated) {
  std::string text = title_of(call);
  if (current_forward != nullptr || &call.shown() != &call) {
    text += ", which is ";
    text += call.operation;
  }
  text += " with " + text_of_leaves(leaves, call);
  if (!detail.empty()) text += (detail[0] == ',' ? "" : ", ") + detail;
  if (differentiated) text += kDifferentiated;
  return CallRecord{fingerprint_of(call, leaves, detail, differentiated).bits(), std::move(text)};
}

ForwardCall forward_call(const AxisCall& call, const CallRecord& record,
                         const Environment::CallNumber& number) {
  return {call, Key(record.fingerprint).fold(number.key).bits(),
          title_of(call) + " (call " + std::to_string(number.number) + ")"};
}

std::string group_text(const AxisIndexGroups& groups) {
  return groups.empty() ? "" : ", groups " + text_of(groups);
}

BackwardOf::BackwardOf(const ForwardCall& forward) noexcept
    : ScopedValue(current_forward, &forward) {}

}  // namespace lockstep
