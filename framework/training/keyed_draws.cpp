#include "framework/training/keyed_draws.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include "framework/axes/environment.h"
#include "framework/base/random.h"
#include "framework/training/run_record.h"

namespace lockstep::training {
namespace {

struct Trainer {
  TrainerPosition position;
  const torch::nn::Module* module;
  std::uint64_t generator_seed;  // of LibTorch's, when this was made
  std::uint64_t clock;           // all trainers' steps and microbatches at the last draw …
  std::map<std::uint64_t, std::uint64_t> calls;  // … and by key the draws of these
};

thread_local std::vector<std::weak_ptr<Trainer>> made_here;

// This replica's, in the order in which they were made.
std::vector<std::shared_ptr<Trainer>> trainers_here() {
  std::erase_if(made_here, [](const auto& each) { return each.expired(); });
  std::vector<std::shared_ptr<Trainer>> trainers;
  for (const auto& each : made_here) {
    auto trainer = each.lock();
    if (trainer && trainer->position.identity == current_identity()) {
      trainers.push_back(std::move(trainer));
    }
  }
  return trainers;
}

// Of LibTorch's process-wide generator, as the program has set it.
std::uint64_t generator_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return Seeding::outer_seed.value_or(generator.current_seed());
}

std::uint64_t drawn_from_generator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// What is drawn.
struct Draw {
  const std::string& op;
  std::int64_t numbers = 0;
  bool is_alike = false;
};

std::optional<Key> trainers_key(const Draw& draw) {
  const auto trainers = trainers_here();
  if (trainers.empty() || trainers.back()->generator_seed != generator_seed()) return {};
  Trainer& last = *trainers.back();
  Key clock = Key(last.position.seed).fold("torch");
  for (const auto& each : trainers) {
    clock = clock.fold(each->position.step).fold(each->position.microbatch);
  }
  if (std::exchange(last.clock, clock.bits()) != clock.bits()) last.calls.clear();
  Key key = clock.fold(draw.op).fold(draw.numbers);
  for (const auto& each : trainers) {
    key = key.fold(each->module == nullptr || each->module->is_training());
  }
  if (!draw.is_alike) {
    for (const auto& each : trainers) key = key.fold(each->position.replica);
  }
  return key.fold(last.calls[key.bits()]++);
}

// The key of a draw, unless it is from LibTorch's process-wide generator.
std::optional<Key> next_key(const Draw& draw) {
  if (Seeding::here > 0 || draw_keys == DrawKeys::none) return {};
  if (!RecordedRun::is_here()) return trainers_key(draw);
  return RecordedRun::next_key([&] {
    const auto key = trainers_key(draw);
    return key ? *key : Key(drawn_from_generator());
  });
}

// The index of the argument, or the number of arguments.
std::size_t generator_of(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto found = std::ranges::find(arguments, "generator", &c10::Argument::name);
  return static_cast<std::size_t>(found - arguments.begin());
}

Draw draw_of(const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  Draw draw{.op = schema.name()};
  draw.is_alike = draw_keys == DrawKeys::alike || draw.op == "aten::randperm";
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!arguments[i].isTensor()) continue;
    const at::Tensor& first = arguments[i].toTensor();
    const auto* const alias = schema.arguments()[i].alias_info();
    const bool is_written = alias != nullptr && alias->isWrite();
    draw.numbers = first.numel();
    draw.is_alike = draw.is_alike || (is_written && first.requires_grad() && first.is_leaf());
    break;
  }
  return draw;
}

void pass_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  c10::IValue* const arguments = stack->data() + stack->size() - schema.arguments().size();
  c10::IValue& generator = arguments[generator_of(schema)];
  const bool has_own = !generator.isNone() && generator.toGenerator().defined();
  if (!has_own && keys.has(c10::DispatchKey::CPU)) {
    const auto key = next_key(draw_of(schema, arguments));
    if (key) generator = at::detail::createCPUGenerator(key->bits());
    if (!key && is_in_data_set) ++draws_of_data;
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect),
      stack);
}

// All of LibTorch's CPU kernels with a Generator. BackendSelect is just above these and below
// autograd, in all calls, and has no kernel for operators that take a tensor; for all others it
// costs nothing. Before main(), since the dispatcher's tables must not change under calls. Kept for
// ever: at the program's end other threads may still draw.
const auto* const registered = [] {
  using c10::DispatchKey;
  auto* const library = new torch::Library(torch::Library::IMPL, "aten", DispatchKey::BackendSelect,
                                           __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || generator_of(op->schema()) == op->schema().arguments().size()) continue;
    if (!op->hasKernelForDispatchKey(DispatchKey::CPU) ||
        op->hasKernelForDispatchKey(DispatchKey::BackendSelect)) {
      continue;
    }
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&pass_generator>());
  }
  return library;
}();

}  // namespace

std::shared_ptr<TrainerPosition> key_draws(TrainerPosition position,
                                           const torch::nn::Module* module) {
  keep_draws_keyed();
  auto trainer = std::make_shared<Trainer>(Trainer{.position = std::move(position),
                                                   .module = module,
                                                   .generator_seed = generator_seed(),
                                                   .clock = 0,
                                                   .calls = {}});
  made_here.push_back(trainer);
  return {trainer, &trainer->position};
}

void keep_draws_keyed() {
  (void)registered;
}

}  // namespace lockstep::training
