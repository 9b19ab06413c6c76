#include "framework/training/forward_place.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/nn/module.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/training/evaluation_mode.h"
#include "framework/training/run_record.h"

namespace lockstep::training {
namespace {

// What a second run has shown.
struct Seen {
  std::unordered_map<const void*, std::string> names = {};  // of parameters and buffers
  std::string last = {};    // the last of them that an operator has had
  std::string failed = {};  // the operator that has failed, the outermost of several
  std::string owner = {};   // the name among its inputs
};
thread_local Seen* seen = nullptr;

struct BegunOperator final : at::ObserverContext {
  int exceptions = std::uncaught_exceptions();
  std::vector<at::Tensor> inputs = {};
  std::string owner = {};
};

// The parameter's name, also where the tensor is a view of it.
std::string name_of(const at::TensorBase& tensor) {
  if (!tensor.defined()) return {};
  const auto found = seen->names.find(tensor.unsafeGetTensorImpl());
  if (found != seen->names.end()) return found->second;
  return tensor.is_view() ? name_of(tensor._base()) : std::string();
}

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  seen->failed.clear();  // what has failed before was caught
  auto begun = std::make_unique<BegunOperator>();
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor() && input.toTensor().defined()) begun->inputs.push_back(input.toTensor());
    if (!input.isTensorList()) continue;
    for (const at::Tensor& each : input.toTensorVector()) begun->inputs.push_back(each);
  }
  for (const at::Tensor& input : begun->inputs) {
    if (begun->owner.empty()) begun->owner = name_of(input);
  }
  if (!begun->owner.empty()) seen->last = begun->owner;
  return begun;
}

// Also where an exception leaves the operator: then there is one more on its way than before.
void end_operator(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* const begun = static_cast<const BegunOperator*>(context);
  if (begun == nullptr || std::uncaught_exceptions() <= begun->exceptions) return;
  std::string_view name = function.name();
  if (name.starts_with("aten::")) name.remove_prefix(6);
  seen->failed = lockstep::str(name, " of ", forms_of(begun->inputs));
  seen->owner = begun->owner;
}

class Observer : private NonCopyable {
 public:
  explicit Observer(Seen& all)
      : here_(seen, &all),
        handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(begin_operator, end_operator)
                                               .needsInputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {}
  ~Observer() { at::removeCallback(handle_); }

 private:
  ScopedValue<Seen*> here_;
  at::CallbackHandle handle_;
};

// "'fc2'" of the parameter "fc2.weight", "the model's 'weight'".
std::string module_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "the model's '" + name + "'" : "'" + name.substr(0, dot) + "'";
}

std::string text_of(const Seen& all) {
  const std::string after = all.last.empty() ? "" : "after " + module_of(all.last);
  if (all.failed.empty()) return after;
  if (!all.owner.empty()) return lockstep::str("in ", module_of(all.owner), ": ", all.failed);
  return lockstep::str("in ", all.failed, after.empty() ? "" : ", ", after);
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return message_text(known);
  } catch (...) {
    return {};
  }
}

// Whether the exception tells of the forward itself.
bool is_of_forward(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError&) {
    return false;
  } catch (const std::exception& known) {
    return !is_out_of_memory(known);
  } catch (...) {
    return false;
  }
}

// Where forward() fails if it throws this message again.
std::optional<std::string> place_in_second_run(Seen names, const std::function<void()>& forward,
                                               const std::string& message) {
  const CallsRefused refused("not in a second run, which looks for the place of an exception");
  const ScopedValue looks(looks_for_place, true);
  // In place of the first run's keys: draws change no shapes.
  constexpr std::size_t kMostDraws = 4096;
  RunRecord record{.keys = std::vector<Key>(kMostDraws, Key(0))};
  const RecordedRun again(record, RecordedRun::Which::second);
  std::exception_ptr error;
  {
    const Observer observer(names);
    error = thrown_by(forward);
  }
  if (!error || message_of(error) != message) return std::nullopt;
  return text_of(names);
}

std::unordered_map<const void*, std::string> names_in(const torch::nn::Module& module) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& all : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& each : all) {
      if (each.value().defined()) names.emplace(each.value().unsafeGetTensorImpl(), each.key());
    }
  }
  return names;
}

}  // namespace

std::string place_of_failure(torch::nn::Module& module, const std::function<void()>& forward,
                             const std::vector<at::Tensor>& inputs) {
  const std::exception_ptr error = std::current_exception();
  if (looks_for_place || !is_of_forward(error)) return {};
  const std::string message = message_of(error);
  const std::string given = inputs.empty() ? "" : "inputs " + forms_of(inputs);
  std::optional<std::string> place;
  // What goes wrong here must not take the place of the exception that is looked for.
  (void)thrown_by([&] {
    const Seen names{.names = names_in(module)};
    {
      const EvaluationMode evaluation(module);
      place = place_in_second_run(names, forward, message);
    }
    if (!place) place = place_in_second_run(names, forward, message);
  });
  if (!place || place->empty()) return given;
  return lockstep::str(*place, given.empty() ? "" : "; ", given);
}

}  // namespace lockstep::training
