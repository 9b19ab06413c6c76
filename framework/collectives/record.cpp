#include "framework/collectives/record.h"

#include <algorithm>
#include <utility>

#include "framework/base/random.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// Of more leaves only the number is told.
constexpr std::size_t kLeavesInText = 3;

thread_local const AxisCall* current_forward = nullptr;

void append_leaf(std::string& text, const at::Tensor& leaf, const AxisCall& call) {
  text += '(';
  for (std::int64_t d = 0; d < leaf.dim(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(leaf.size(d));
  }
  text += ") ";
  text += name_of(element_type(leaf.scalar_type(), call));
}

Key fingerprint_of(const AxisCall& call, const Leaves& leaves, const std::string& detail,
                   bool differentiated) {
  Key key = Key(differentiated ? 1 : 0).fold(std::string_view(call.operation)).fold(detail);
  if (current_forward != nullptr) key = key.fold(std::string_view(current_forward->operation));
  for (const std::string& name : call.axes.names()) key = key.fold(name);
  for (const at::Tensor& leaf : leaves) {
    key = key.fold(static_cast<std::uint64_t>(leaf.scalar_type()))
              .fold(static_cast<std::uint64_t>(leaf.dim()));
    for (const std::int64_t size : leaf.sizes()) key = key.fold(static_cast<std::uint64_t>(size));
  }
  return key;
}

}  // namespace

CallRecord record_of(const AxisCall& call, const Leaves& leaves, const std::string& detail,
                     bool differentiated) {
  std::string text;
  if (current_forward != nullptr) {
    text += "the backward of ";
    text += current_forward->operation;
    text += " over " + current_forward->axes.text() + " at " + text_of(current_forward->where);
    text += ", which is ";
    text += call.operation;
  } else {
    text += call.operation;
    text += " over " + call.axes.text() + " at " + text_of(call.where);
  }
  text += " with ";
  for (std::size_t i = 0; i < std::min(leaves.size(), kLeavesInText); ++i) {
    if (i > 0) text += ", ";
    append_leaf(text, leaves[i], call);
  }
  if (leaves.empty()) text += "no leaves";
  if (leaves.size() > kLeavesInText) {
    text += lockstep::str(" and ", leaves.size() - kLeavesInText, " more leaves");
  }
  if (!detail.empty()) text += (detail[0] == ',' ? "" : ", ") + detail;
  if (differentiated) text += ", differentiated";
  return CallRecord::of(fingerprint_of(call, leaves, detail, differentiated).bits(), text);
}

std::string group_text(const AxisIndexGroups& groups) {
  return groups.empty() ? "" : ", groups " + text_of(groups);
}

BackwardOf::BackwardOf(const AxisCall& forward) noexcept
    : outer_(std::exchange(current_forward, &forward)) {}

BackwardOf::~BackwardOf() {
  current_forward = outer_;
}

}  // namespace lockstep
