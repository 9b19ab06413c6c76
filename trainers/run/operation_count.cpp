#include "trainers/run/operation_count.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace lockstep {
namespace {

thread_local std::int64_t tally = 0;
// Whether a counted operator runs: those that it calls itself are a part of it.
thread_local bool is_inside = false;

using OperatorInputs = c10::ArrayRef<const c10::IValue>;

// Operators that multiply two operands, by the index of the first of them.
const std::map<std::string_view, std::size_t> kProducts{
    {"aten::mm", 0},     {"aten::bmm", 0},
    {"aten::mv", 0},     {"aten::dot", 0},
    {"aten::vdot", 0},   {"aten::addmm", 1},
    {"aten::addmv", 1},  {"aten::baddbmm", 1},
    {"aten::addbmm", 1}, {"aten::_addmm_activation", 1}};

at::Tensor operand(const OperatorInputs& inputs, std::size_t index) {
  return inputs.size() > index && inputs[index].isTensor() ? inputs[index].toTensor()
                                                           : at::Tensor();
}

// An operator that is counted: what is known before it runs, and what its output adds.
struct CountedOperator final : at::ObserverContext {
  std::int64_t multiply_adds = 0;
  std::int64_t for_each_output = 0;
};

// (…, m, k) times (…, k, n), or a vector.
std::int64_t product_adds(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() * (b.dim() == 1 ? 1 : b.size(-1));
}

// The weight is (out, in / groups, kernel…), transposed (in, out / groups, kernel…).
void add_convolution(const at::Tensor& input, const at::Tensor& weight, bool is_transposed,
                     CountedOperator& its) {
  const std::int64_t each = weight.size(0) > 0 ? weight.numel() / weight.size(0) : 0;
  if (is_transposed) {
    its.multiply_adds = input.numel() * each;
  } else {
    its.for_each_output = each;
  }
}

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  if (is_inside) return nullptr;
  const std::string_view name = function.name();
  const OperatorInputs inputs = function.inputs();
  const auto product_of = kProducts.find(name);
  const std::size_t index = product_of == kProducts.end() ? 0 : product_of->second;
  const at::Tensor first = operand(inputs, index);
  const at::Tensor second = operand(inputs, index + 1);
  if (!first.defined() || !second.defined()) return nullptr;
  auto its = std::make_unique<CountedOperator>();
  if (product_of != kProducts.end()) {
    its->multiply_adds = product_adds(first, second);
  } else if (name == "aten::convolution" || name == "aten::_convolution") {
    constexpr std::size_t kTransposed = 6;
    add_convolution(first, second, inputs[kTransposed].toBool(), *its);
  } else if (name == "aten::scaled_dot_product_attention") {
    // Queries (…, l, e), keys (…, s, e) and values (…, s, v).
    const std::int64_t keys = second.size(-2);
    const std::int64_t queries = first.size(-1) > 0 ? first.numel() / first.size(-1) : 0;
    its->multiply_adds = first.numel() * keys + queries * keys * operand(inputs, 2).size(-1);
  } else if (name == "aten::mkldnn_rnn_layer") {
    // Inputs (…, features), and weights of each feature and of each hidden value.
    const std::int64_t steps = first.size(-1) > 0 ? first.numel() / first.size(-1) : 0;
    its->multiply_adds = steps * (second.numel() + operand(inputs, 2).numel());
  } else {
    return nullptr;
  }
  is_inside = true;
  return its;
}

void end_operator(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* const its = static_cast<const CountedOperator*>(context);
  if (its == nullptr) return;
  is_inside = false;
  tally += its->multiply_adds;
  if (its->for_each_output == 0 || function.outputs().empty()) return;
  tally += its->for_each_output * function.outputs()[0].toTensor().numel();
}

}  // namespace

OperationCount::OperationCount()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(begin_operator, end_operator)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  tally = 0;
}

OperationCount::~OperationCount() {
  at::removeCallback(handle_);
}

std::int64_t OperationCount::multiply_adds() const noexcept {
  return tally;
}

}  // namespace lockstep
