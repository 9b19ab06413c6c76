#include "framework/collectives/tracked_operations.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "framework/base/errors.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/collectives/varying.h"
#include "framework/tree/error_place.h"

namespace lockstep::collectives {
namespace {

using c10::IValue;
using Stack = torch::jit::Stack;

// Calls visit(tensor&) for every tensor in the value. A tensor that it changes is put back.
void for_each_tensor(IValue& value, const std::function<void(at::Tensor&)>& visit) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    if (!tensor.defined()) return;
    visit(tensor);
    if (!tensor.is_same(value.toTensor())) value = std::move(tensor);
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    c10::List<IValue> list = value.toList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) {
      IValue element = list.get(i);
      for_each_tensor(element, visit);
      list.set(i, std::move(element));
    }
    value = std::move(list);
  }
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
}

// One operation that the dispatcher hands over, with its arguments on the stack.
class Operation {
 public:
  Operation(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack& stack,
            tree::Variance& variance)
      : op_(op),
        below_(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, tree::kVarianceKey)),
        stack_(stack),
        variance_(variance),
        begin_(stack.size() - op.schema().arguments().size()) {}

  void run() {
    for_each_operand([&](at::Tensor& tensor, const auto& argument) {
      axes_ |= variance_.of(tensor);
      if (is_written(argument)) written_.push_back(tensor);
    });
    if (is_composite()) {
      run_parts();
    } else {
      run_whole();
    }
  }

 private:
  template <typename Visit>
  void for_each_operand(const Visit& visit) {
    const auto& arguments = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      for_each_tensor(stack_[begin_ + i], [&](at::Tensor& tensor) { visit(tensor, arguments[i]); });
    }
  }

  void for_each_result(const std::function<void(const at::Tensor&)>& visit) {
    for (std::size_t i = begin_; i < stack_.size(); ++i) for_each_tensor(stack_[i], visit);
  }

  [[nodiscard]] const std::string& name() const { return op_.schema().name(); }

  // Running statistics are written although the schema does not say so.
  [[nodiscard]] static bool is_written(const c10::Argument& argument) {
    const auto* alias = argument.alias_info();
    return (alias != nullptr && alias->isWrite()) ||
           is_one_of(argument.name(), {"running_mean", "running_var"});
  }

  // True if LibTorch makes it of its other operations, for autograd, too: each of them passes here.
  [[nodiscard]] bool is_composite() const {
    using c10::DispatchKey;
    if (name() == "aten::_backward") return true;
    return name().rfind("aten::", 0) == 0 &&
           op_.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
           !op_.hasKernelForDispatchKey(DispatchKey::Autograd) &&
           !op_.hasKernelForDispatchKey(DispatchKey::AutogradCPU);
  }

  void run_parts() {
    if (variance_.depth == 0) variance_.escaped = 0;
    {
      const ScopedValue deeper(variance_.depth, variance_.depth + 1);
      op_.redispatchBoxed(below_, &stack_);
    }
    // A number that a part of the operation has read may be in all results.
    if (const tree::AxisSet escaped = variance_.escaped; variance_.depth == 0 && escaped != 0) {
      refuse_number(escaped);
      for (const at::Tensor& tensor : written_) variance_.add_written(tensor, escaped);
      for_each_result([&](const at::Tensor& result) { variance_.add(result, escaped); });
    }
    for_each_result([&](const at::Tensor& result) {
      if (!variance_.knows(result)) variance_.add(result, axes_);
    });
  }

  void run_whole() {
    refuse_random();
    refuse_lists();
    refuse_escaping();
    unify();
    {
      const c10::impl::ExcludeDispatchKeyGuard not_within(tree::kVarianceKey);
      op_.redispatchBoxed(below_, &stack_);
    }
    for (const at::Tensor& tensor : written_) variance_.add_written(tensor, axes_);
    for_each_result([&](const at::Tensor& result) { variance_.add(result, axes_); });
  }

  // Makes operands vary over all axes of the result, where a gradient flows.
  void unify() {
    if (!c10::GradMode::is_enabled()) return;
    for_each_operand([&](at::Tensor& tensor, const auto& argument) {
      if (!tensor.requires_grad() || (axes_ & ~variance_.of(tensor)) == 0) return;
      if (!is_written(argument)) {
        tensor = varying_over(axes_, {tensor})[0];
      } else if (tensor.grad_fn() != nullptr) {  // autograd refuses a write into a leaf
        make_vary(tensor.is_view() ? at::Tensor(tensor._base()) : tensor);
      }
    });
  }

  // Runs pvary on a tensor that is to be written: all of its memory varies then.
  void make_vary(const at::Tensor& tensor) const {
    const at::Tensor varying = varying_over(axes_, {tensor})[0];
    torch::autograd::impl::rebase_history(tensor, torch::autograd::impl::gradient_edge(varying));
    torch::autograd::impl::bump_version(tensor);  // views look at their base's history anew
  }

  void refuse_random() const {
    const auto& arguments = op_.schema().arguments();
    bool draws = op_.hasTag(at::Tag::nondeterministic_seeded);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const IValue& value = stack_[begin_ + i];
      draws |= arguments[i].name() == "generator";
      const bool none = is_one_of(arguments[i].name(), {"p", "dropout_p"}) && value.isDouble() &&
                        value.toDouble() == 0;
      const bool evaluates = is_one_of(arguments[i].name(), {"train", "training"}) &&
                             value.isBool() && !value.toBool();
      if (none || evaluates) return;
    }
    if (draws) {
      refuse(
          "draws from a generator: whether its numbers are the same on all replicas cannot be "
          "known; pass them as an argument");
    }
  }

  // Refuses several results of several operands that differ: each could be made of any.
  void refuse_lists() {
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const bool several = std::any_of(begin, stack_.end(), [](const IValue& value) {
      return value.isTensorList() && value.toTensorList().size() > 1;
    });
    const bool lists = std::ranges::any_of(op_.schema().returns(), [](const auto& result) {
      return result.type()->kind() == c10::TypeKind::ListType;
    });
    if (!several || !(lists || written_.size() > 1)) return;
    for_each_operand([&](at::Tensor& tensor, const auto&) {
      if (variance_.of(tensor) != axes_) {
        refuse(
            "gives several tensors of several, of which some vary over other axes than others; "
            "call it for each alone");
      }
    });
  }

  // The size of a mask's result depends on the mask's values.
  [[nodiscard]] bool is_mask_index() {
    bool any = false;
    for_each_operand([&](at::Tensor& tensor, const auto& argument) {
      any |= argument.name() == "indices" &&
             (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
    });
    return any;
  }

  // Numbers and sizes that are read from a varying tensor are followed no more. Autograd's formulas
  // use them only for results that vary anyway.
  void refuse_escaping() {
    if (axes_ == 0 || torch::autograd::get_current_graph_task_exec_info() != nullptr) return;
    const bool number = op_.hasTag(at::Tag::data_dependent_output) ||
                        is_one_of(name(), {"aten::item", "aten::_local_scalar_dense", "aten::equal",
                                           "aten::is_nonzero"});
    const bool size =
        name() == "aten::index" ? is_mask_index() : op_.hasTag(at::Tag::dynamic_output_shape);
    if (!number && !size) return;
    if (variance_.depth > 0) {
      variance_.escaped |= axes_;
    } else if (size) {
      refuse(lockstep::str("gives a tensor whose size depends on values that vary over ",
                           text_of(axes_)));
    } else {
      refuse_number(axes_);
    }
  }

  void refuse_number(tree::AxisSet axes) const {
    const auto& returns = op_.schema().returns();
    const bool tensors = std::all_of(returns.begin(), returns.end(), [](const auto& result) {
      const auto kind = result.type()->kind();
      return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType;
    });
    if (tensors && !returns.empty()) return;
    refuse(lockstep::str("reads a number from a tensor that varies over ", text_of(axes),
                         ", and what is made of it cannot be followed; reduce it first (psum), or "
                         "compute with tensors (at::where)"));
  }

  [[nodiscard]] std::string text_of(tree::AxisSet axes) const {
    return AxisNames(variance_.names_of(axes)).text();
  }

  [[noreturn]] void refuse(const std::string& what) const {
    const std::size_t space = name().find("::");
    throw ValueError(lockstep::str("shard_map (", place_of(variance_.where()),
                                   ") with check_vma: ", name().substr(space + 2), " ", what));
  }

  const c10::OperatorHandle& op_;
  c10::DispatchKeySet below_;
  Stack& stack_;
  tree::Variance& variance_;
  std::size_t begin_;
  tree::AxisSet axes_ = 0;  // of all operands
  Leaves written_;
};

void track(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  Operation(op, keys, *stack, *tree::current_variance()).run();
}

}  // namespace

void track_operations() {
  // Kept for ever: at the program's end other threads may still call operations.
  static const auto* const registered = [] {
    auto* const library =
        new torch::Library(torch::Library::IMPL, "_", tree::kVarianceKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&track>());
    return library;
  }();
  (void)registered;
}

}  // namespace lockstep::collectives
