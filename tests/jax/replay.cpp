#include "tests/jax/replay.h"

#include <cstddef>
#include <exception>
#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scalar_tensor.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/tree/grad.h"

namespace lockstep::testing {
namespace {

const Meanings& meanings() {
  static const Meanings all = [] {
    Meanings together;
    for (const auto& some :
         {arithmetic(), reductions(), exchanges(), pmap_steps(), vmap_steps(), shard_map_steps()}) {
      together.insert(some.begin(), some.end());
    }
    return together;
  }();
  return all;
}

std::string text(const Values& values) {
  std::string result;
  for (const Tensor& value : values) {
    const Tensor flat = value.detach().to(at::kDouble).contiguous();
    const std::vector<double> numbers(flat.data_ptr<double>(),
                                      flat.data_ptr<double>() + flat.numel());
    result +=
        lockstep::str(toString(value.scalar_type()), " ", value.sizes(), " [", join(numbers), "] ");
  }
  return result;
}

bool same(const Tensor& wanted, const Tensor& got, double tolerance) {
  return wanted.scalar_type() == got.scalar_type() && wanted.sizes() == got.sizes() &&
         at::allclose(wanted.to(at::kDouble), got.to(at::kDouble), tolerance, tolerance,
                      /*equal_nan=*/true);
}

std::string compare(const Outcome& wanted, const Values& got, double tolerance) {
  if (!wanted.raises.empty()) return "gave " + text(got) + "instead of a " + wanted.raises;
  bool equal = wanted.out.size() == got.size();
  for (std::size_t i = 0; equal && i < got.size(); ++i) {
    equal = same(wanted.out[i], got[i], tolerance);
  }
  return equal ? "" : "gave " + text(got) + "instead of " + text(wanted.out);
}

std::string compare(const RecordedCase& one, const Outcome& wanted, const Error& error) {
  if (wanted.raises != error.type()) {
    return lockstep::str("threw ", error.type(), " (", error.what(), ") instead of ",
                         wanted.raises.empty() ? "giving " + text(wanted.out) : wanted.raises);
  }
  const std::string message = error.what();
  for (const std::string& word : one.mentions) {
    if (message.find(word) == std::string::npos) {
      return "its message does not say " + word + ": " + message;
    }
  }
  return "";
}

// The sum over all results of the step's body, as a function of the first argument's leaves.
Values gradient(const Step& step, const Values& values, bool with_value) {
  const auto args = arguments_of(step, values);
  const auto loss = [&](const Values& first) {
    Values leaves = first;
    for (std::size_t i = 1; i < args.size(); ++i) {
      leaves.insert(leaves.end(), args[i].begin(), args[i].end());
    }
    const Values results = run(*step.body, std::move(leaves));
    Tensor total = results.at(0).sum();
    for (std::size_t i = 1; i < results.size(); ++i) total = total + results[i].sum();
    return total;
  };
  if (!with_value) return grad(loss)(args.at(0));
  auto [value, gradients] = value_and_grad(loss)(args.at(0));
  gradients.insert(gradients.begin(), value);
  return gradients;
}

template <typename Function>
Meaning of_operands(const Function& function) {
  return [function](const Step& step, const Values& values) -> Values {
    if constexpr (std::is_invocable_v<Function, const Step&, Tensor>) {
      return {function(step, values.at(step.x.at(0)))};
    } else {
      return {function(values.at(step.x.at(0)), values.at(step.x.at(1)))};
    }
  };
}

}  // namespace

Meanings arithmetic() {
  return {
      {"add", of_operands([](const Tensor& a, const Tensor& b) { return a + b; })},
      {"sub", of_operands([](const Tensor& a, const Tensor& b) { return a - b; })},
      {"mul", of_operands([](const Tensor& a, const Tensor& b) { return a * b; })},
      {"matmul", of_operands([](const Tensor& a, const Tensor& b) { return at::matmul(a, b); })},
      {"scale", of_operands([](const Step& step, const Tensor& x) { return x * step.number; })},
      {"sum", of_operands([](const Step&, const Tensor& x) { return x.sum(); })},
      {"sum_over",
       of_operands([](const Step& step, const Tensor& x) { return x.sum(step.dimension); })},
      {"grad", [](const Step& step,
                  const Values& values) { return gradient(step, values, /*with_value=*/false); }},
      {"value_and_grad",
       [](const Step& step, const Values& values) {
         return gradient(step, values, /*with_value=*/true);
       }},
  };
}

Tensor number(double value, at::ScalarType dtype) {
  return at::scalar_tensor(value, dtype);
}

std::vector<Values> arguments_of(const Step& step, const Values& values) {
  std::vector<Values> arguments;
  for (const auto& leaves : step.args) {
    Values& argument = arguments.emplace_back();
    for (const std::size_t i : leaves) argument.push_back(values.at(i));
  }
  return arguments;
}

Values run(const Body& body, Values values) {
  for (const Step& step : body.steps) {
    const auto meaning = meanings().find(step.op);
    if (meaning == meanings().end()) {
      throw std::runtime_error("the replay does not know the operation '" + step.op + "'");
    }
    const Values results = meaning->second(step, values);
    values.insert(values.end(), results.begin(), results.end());
  }
  Values results;
  for (const std::size_t i : body.results) results.push_back(values.at(i));
  return results;
}

std::string replay(const RecordedCase& one) {
  const Outcome& wanted = one.lockstep ? *one.lockstep : one.jax;
  try {
    return compare(wanted, run(one.program, one.inputs), one.tolerance);
  } catch (const Error& error) {
    return compare(one, wanted, error);
  } catch (const std::exception& error) {
    return lockstep::str("threw something that is not ours: ", error.what());
  }
}

}  // namespace lockstep::testing
