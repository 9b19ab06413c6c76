#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/collectives/axis_index.h"
#include "framework/optim/optimizers.h"
#include "framework/training/block.h"
#include "framework/training/data_parallel.h"
#include "framework/training/dropout.h"
#include "tests/catch.h"
#include "tests/support/settings.h"
#include "tests/training/placements.h"
#include "tests/training/random_models.h"
#include "tests/training/zero_jobs.h"

// Random small programs of a user's own, each run by plain LibTorch, one replica's part after the
// other, and by replicas in several placements: what comes out is equal, or all of them say the
// same error. LOCKSTEP_ROUNDS=50 runs 2,000 of them.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int kPrograms = 40;  // a round
constexpr std::int64_t kSamples = 3;
constexpr double kLearningRate = 0.01;
constexpr double kEps = 1e-3;

using Random = std::mt19937_64;

int draw(Random& random, int count) {
  return static_cast<int>(random() % static_cast<std::uint64_t>(count));
}

at::Tensor waves(at::IntArrayRef sizes, double phase) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) * 0.7 + phase).view(sizes);
}

enum class Action {
  none,
  replace,         // set_data on all parameters
  edit,            // edit_parameters
  evaluate,        // in evaluation mode, under whole_parameters
  differentiate,   // autograd::grad of the loss
  freeze,          // a parameter requires no gradient from now on
  second_trainer,  // refused; training goes on
  write,           // in place: refused, the end
  unfreeze,        // refused, the end
};

struct Program {
  explicit Program(std::uint64_t number)
      : seed(number), random(number), replicas(1 + draw(random, 4)), stage(draw(random, 5) - 1) {
    const std::vector<std::string> optimizers{"sgd", "adam", "adamw", "rmsprop", "adagrad"};
    optimizer = optimizers[random() % optimizers.size()];
    accumulate = 1 + draw(random, 3);
    if (draw(random, 3) == 0) clip_norm = 0.05;
    backward_is_plain = draw(random, 2) == 0;
    const int steps = 2 + draw(random, 4);
    for (int step = 0; step < steps; ++step) {
      // The last two end the program: seldom.
      const int action = draw(random, 12);
      actions.push_back(action < 7             ? static_cast<Action>(action)
                        : action < 11          ? Action::none
                        : draw(random, 2) == 0 ? Action::write
                                               : Action::unfreeze);
    }
    model = random();
    if (draw(random, 2) == 0) dampening = 0.3;
    amsgrad = draw(random, 2) == 0;
  }
  [[nodiscard]] bool is_data_parallel() const { return stage < 0; }

  std::uint64_t seed;
  Random random;
  std::int64_t replicas;
  int stage;  // -1: DataParallel with an optimizer of LibTorch's
  std::string optimizer;
  double dampening = 0;  // of sgd
  bool amsgrad = false;  // of adam and adamw
  std::int64_t accumulate = 1;
  std::optional<double> clip_norm;
  bool backward_is_plain = false;
  std::vector<Action> actions;
  std::uint64_t model = 0;
};

// Where the serial run is, for the masks of its dropouts.
struct Place {
  std::uint64_t seed;
  std::int64_t replica;
  std::int64_t step;
  std::int64_t microbatch;
};

class LinearBlock : public Block {
 public:
  LinearBlock(std::int64_t in, std::int64_t out)
      : inner_(register_module("inner", torch::nn::Linear(in, out))) {}
  at::Tensor forward(const at::Tensor& values) override { return at::tanh(inner_(values)); }

 private:
  torch::nn::Linear inner_;
};

class RandomNet : public torch::nn::Module {
 public:
  explicit RandomNet(std::uint64_t seed) {
    Random random(seed);
    const int count = 2 + draw(random, 5);
    for (int i = 0; i < count; ++i) add_layer(random);
    if (draw(random, 8) == 0) register_module("unused", torch::nn::Linear(2, 3));
    if (draw(random, 4) == 0) {
      odd_only_ = register_parameter("odd_only", at::zeros({width_}));
    }
    if (draw(random, 3) == 0) frozen_ = register_parameter("frozen", at::zeros({width_}), false);
    to(at::kDouble);
    const c10::AutoGradMode no_grad(false);
    double phase = 0.3;
    for (const at::Tensor& parameter : parameters()) {
      parameter.copy_(waves(parameter.sizes(), phase += 1.1).mul(0.4));
    }
  }

  // Outputs of `replica`; dropouts are told by a trainer, or by `place`.
  at::Tensor forward(at::Tensor values, std::int64_t replica, const Place* place) {
    for (const Layer& layer : layers_) values = layer(values, place);
    if (odd_only_.defined() && replica % 2 == 1) values = values + odd_only_;
    if (frozen_.defined()) values = values + frozen_;
    return values;
  }
  static constexpr std::int64_t kInputs = 5;

 private:
  using Layer = std::function<at::Tensor(const at::Tensor&, const Place*)>;

  void add_layer(Random& random) {
    const std::string name = "layer" + std::to_string(layers_.size());
    const std::int64_t width = width_;
    switch (layers_.empty() ? 0 : draw(random, 10)) {
      case 0:
      case 1: {
        width_ = 3 + draw(random, 7);
        auto linear = register_module(name, torch::nn::Linear(width, width_));
        return plain([linear](const at::Tensor& x) { return linear->forward(x); });
      }
      case 2: {
        width_ = 3 + draw(random, 7);
        auto block = register_module(name, std::make_shared<LinearBlock>(width, width_));
        return plain([block](const at::Tensor& x) { return (*block)(x); });
      }
      case 3: {
        auto norm = register_module(
            name, torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector{width})));
        return plain([norm](const at::Tensor& x) { return norm->forward(x); });
      }
      case 4: {
        auto norm = register_module(name, torch::nn::BatchNorm1d(width));
        return plain([norm](const at::Tensor& x) { return norm->forward(x); });
      }
      case 5: {
        auto activation = register_module(name, torch::nn::PReLU());
        return plain([activation](const at::Tensor& x) { return activation->forward(x); });
      }
      case 6: {
        auto convolution =
            register_module(name, torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 2, 3).padding(1)));
        width_ = 2 * width;
        return plain([convolution](const at::Tensor& x) {
          return at::tanh(convolution->forward(x.unsqueeze(1)).flatten(1));
        });
      }
      case 7: {
        auto cell = register_module(name, torch::nn::GRU(width, width));
        return plain([cell](const at::Tensor& x) {
          return std::get<0>(cell->forward(x.unsqueeze(0))).squeeze(0);
        });
      }
      case 8: {
        auto shared = register_module(name, torch::nn::Linear(width, width));
        register_parameter("same_as_" + name, shared->weight);
        return plain([shared](const at::Tensor& x) {
          return shared->forward(at::tanh(shared->forward(x)));
        });
      }
      default: {
        const double p = 0.25;
        auto module = register_module(name, Dropout(p));
        layers_.push_back([module, p, name](const at::Tensor& x, const Place* place) {
          if (place == nullptr || !module->is_training()) return module->forward(x);
          return dropout(x, p,
                         Key(place->seed)
                             .fold("dropout")
                             .fold(static_cast<std::uint64_t>(place->replica))
                             .fold(static_cast<std::uint64_t>(place->step))
                             .fold(static_cast<std::uint64_t>(place->microbatch))
                             .fold(name)
                             .fold(std::uint64_t{0}));
        });
      }
    }
  }
  void plain(std::function<at::Tensor(const at::Tensor&)> run) {
    layers_.push_back([run = std::move(run)](const at::Tensor& x, const Place*) { return run(x); });
  }

  std::vector<Layer> layers_;
  std::int64_t width_ = kInputs;
  at::Tensor odd_only_;
  at::Tensor frozen_;
};

at::Tensor inputs_of(std::int64_t replica, std::size_t step, std::int64_t microbatch) {
  return waves({kSamples, RandomNet::kInputs},
               static_cast<double>(replica * 31 + microbatch * 7) + static_cast<double>(step));
}

at::Tensor loss_of(const Program& program, RandomNet& net, const at::Tensor& inputs,
                   std::int64_t replica, const Place* place) {
  const at::Tensor outputs = net.forward(inputs, replica, place);
  return at::mse_loss(outputs, waves(outputs.sizes(), 2.5)) /
         static_cast<double>(program.accumulate);
}

// The parameters that are trained, each once.
std::vector<at::Tensor> trained(const RandomNet& net) {
  std::vector<at::Tensor> parameters;
  for (const auto& item : net.named_parameters()) {
    const bool is_again = item.key().rfind("same_as_", 0) == 0;
    if (item.value().requires_grad() && !is_again) parameters.push_back(item.value());
  }
  return parameters;
}

void clip_gradients(const Program& program, const RandomNet& net) {
  if (program.clip_norm) {
    (void)torch::nn::utils::clip_grad_norm_(trained(net), *program.clip_norm);
  }
}

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const Program& program,
                                                         const RandomNet& net) {
  const std::vector<at::Tensor> parameters = trained(net);
  if (program.optimizer == "sgd") {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(kLearningRate)
                                                               .momentum(0.9)
                                                               .dampening(program.dampening)
                                                               .weight_decay(0.1));
  }
  if (program.optimizer == "adam") {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(kLearningRate)
                                                                .eps(kEps)
                                                                .amsgrad(program.amsgrad)
                                                                .weight_decay(0.1));
  }
  if (program.optimizer == "rmsprop") {
    return std::make_unique<torch::optim::RMSprop>(
        parameters,
        torch::optim::RMSpropOptions(kLearningRate).eps(kEps).momentum(0.9).weight_decay(0.1));
  }
  if (program.optimizer == "adagrad") {
    return std::make_unique<torch::optim::Adagrad>(
        parameters, torch::optim::AdagradOptions(kLearningRate).eps(kEps).weight_decay(0.1));
  }
  return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(kLearningRate)
                                                               .eps(kEps)
                                                               .amsgrad(program.amsgrad)
                                                               .weight_decay(0.1));
}

ZeroOptions zero_options(const Program& program) {
  ZeroOptions options;
  options.local_batch_norm = true;
  options.stage = program.stage;
  options.accumulate = program.accumulate;
  options.clip_norm = program.clip_norm;
  options.seed = program.seed;
  options.bucket_mb = 1e-4;
  options.optimizer.name = program.optimizer;
  options.optimizer.weight_decay = 0.1;
  if (program.optimizer == "sgd") {
    options.optimizer.momentum = 0.9;
    options.optimizer.dampening = program.dampening;
  } else if (program.optimizer == "rmsprop") {
    options.optimizer.own.of<RMSpropOptions>("rmsprop") = {.eps = kEps, .momentum = 0.9};
  } else if (program.optimizer == "adagrad") {
    options.optimizer.own.of<AdagradOptions>("adagrad").eps = kEps;
  } else {
    options.optimizer.amsgrad = program.amsgrad;
    options.optimizer.eps = kEps;
  }
  return options;
}

// What the actions do to a parameter's values.
at::Tensor replaced(const at::Tensor& values) {
  return values.mul(0.75).contiguous();
}

// The one that Action::freeze takes. The first layer stays trained, so that the loss always depends
// on something.
at::Tensor to_freeze(RandomNet& net, std::size_t step) {
  std::vector<at::Tensor> trained;
  for (const auto& item : net.named_parameters()) {
    if (item.value().requires_grad() && item.key() != "layer0.weight") {
      trained.push_back(item.value());
    }
  }
  return trained.empty() ? at::Tensor() : trained[step % trained.size()];
}

// Plain LibTorch.
State run_serially(const Program& program) {
  RandomNet net(program.model);
  const auto optimizer = torch_optimizer(program, net);
  const auto n = static_cast<double>(program.replicas);
  for (std::size_t step = 0; step < program.actions.size(); ++step) {
    const c10::AutoGradMode no_grad(false);
    switch (program.actions[step]) {
      case Action::replace:
      case Action::edit:
        for (const at::Tensor& parameter : trained(net)) parameter.copy_(replaced(parameter));
        break;
      case Action::freeze:
        if (const at::Tensor parameter = to_freeze(net, step); parameter.defined()) {
          parameter.set_requires_grad(false);
        }
        break;
      default:
        break;
    }
    for (const at::Tensor& parameter : net.parameters()) parameter.mutable_grad().reset();
    State before;
    for (const auto& item : net.named_buffers()) before.emplace(item.key(), item.value().clone());
    State sums;
    for (std::int64_t replica = 0; replica < program.replicas; ++replica) {
      for (const auto& item : net.named_buffers()) item.value().copy_(before.at(item.key()));
      for (std::int64_t microbatch = 0; microbatch < program.accumulate; ++microbatch) {
        const Place place{program.seed, replica, static_cast<std::int64_t>(step), microbatch};
        const c10::AutoGradMode grad(true);
        const at::Tensor loss =
            loss_of(program, net, inputs_of(replica, step, microbatch), replica, &place);
        if (loss.requires_grad()) loss.backward();
      }
      for (const auto& item : net.named_buffers()) {
        if (replica == 0) {
          sums.emplace(item.key(), item.value().clone());
        } else if (item.value().is_floating_point()) {
          sums.at(item.key()).add_(item.value());
        }
      }
    }
    for (const auto& item : net.named_buffers()) {
      item.value().copy_(item.value().is_floating_point() ? sums.at(item.key()) / n
                                                          : sums.at(item.key()));
    }
    for (const at::Tensor& parameter : trained(net)) {
      if (parameter.grad().defined()) parameter.mutable_grad().div_(n);
    }
    clip_gradients(program, net);
    const c10::AutoGradMode grad(true);
    optimizer->step();
  }
  return state_of(net);
}

// What one of several replicas does: with a ZeroTrainer, or with DataParallel and an optimizer.
class Replica {
 public:
  explicit Replica(const Program& program)
      : program_(program), net_(program.model), index_(axis_index("data")) {
    if (program_.is_data_parallel()) {
      parallel_ = std::make_unique<DataParallel>(
          net_, "data", DataParallelOptions{.local_batch_norm = true, .seed = program_.seed});
      optimizer_ = torch_optimizer(program_, net_);
    } else {
      trainer_ = std::make_unique<ZeroTrainer>(net_, zero_options(program_));
    }
  }

  State run() {
    for (std::size_t step = 0; step < program_.actions.size(); ++step) {
      act(program_.actions[step], step);
      for (std::int64_t microbatch = 0; microbatch < program_.accumulate; ++microbatch) {
        backward(loss_of(program_, net_, inputs_of(index_, step, microbatch), index_, nullptr),
                 microbatch);
      }
      update();
    }
    const auto whole = trainer_ ? trainer_->whole_parameters() : nullptr;
    return state_of(net_);
  }

 private:
  void backward(const at::Tensor& loss, std::int64_t microbatch) {
    const bool is_last = microbatch + 1 == program_.accumulate;
    if (parallel_ && !is_last) return parallel_->accumulate(loss);
    if (program_.backward_is_plain) return loss.backward();
    parallel_ ? parallel_->backward(loss) : trainer_->backward(loss);
  }

  void update() {
    if (trainer_) {
      (void)trainer_->step(kLearningRate);
      return;
    }
    clip_gradients(program_, net_);
    optimizer_->step();
    for (const at::Tensor& parameter : net_.parameters()) parameter.mutable_grad().reset();
  }

  // Calls `change(parameter)` for each that is trained.
  void change_parameters(const std::function<void(const at::Tensor&)>& change) {
    const c10::AutoGradMode no_grad(false);
    for (const at::Tensor& parameter : trained(net_)) change(parameter);
  }

  void act(Action action, std::size_t step) {
    const auto edit = [&](const std::function<void()>& write) {
      trainer_ ? trainer_->edit_parameters(write) : write();
    };
    switch (action) {
      case Action::none:
        return;
      case Action::replace: {
        const auto replace = [&] {
          change_parameters([](const at::Tensor& p) { p.set_data(replaced(p.detach())); });
        };
        // What is in shards is not there to be replaced.
        return program_.stage == 3 ? edit(replace) : replace();
      }
      case Action::edit:
        return edit(
            [&] { change_parameters([](const at::Tensor& p) { p.copy_(replaced(p.detach())); }); });
      case Action::evaluate: {
        const auto whole = trainer_ ? trainer_->whole_parameters() : nullptr;
        const c10::AutoGradMode no_grad(false);
        net_.eval();
        (void)net_.forward(inputs_of(index_, step, 9), index_, nullptr);
        return net_.train();
      }
      case Action::differentiate: {
        net_.eval();
        const at::Tensor inputs = inputs_of(index_, step, 9).set_requires_grad(true);
        const at::Tensor loss = loss_of(program_, net_, inputs, index_, nullptr);
        (void)torch::autograd::grad({loss}, {inputs});
        return net_.train();
      }
      case Action::freeze:
        if (const at::Tensor parameter = to_freeze(net_, step); parameter.defined()) {
          parameter.set_requires_grad(false);
        }
        return;
      case Action::second_trainer:
        try {
          const ZeroTrainer second(net_, {});
        } catch (const ValueError&) {
          return;
        }
        throw Error("a second trainer was not refused");
      case Action::write:
        if (!trainer_) return;
        if (step == 0) return;  // until the first backward parameters are the replica's own
        change_parameters([&](const at::Tensor& p) {
          if (!p.is_meta()) p.mul_(0.5);
        });
        return expects_error("was written to since the last step", step);
      case Action::unfreeze:
        for (const auto& item : net_.named_parameters()) {
          if (item.key() != "frozen" || !trainer_) continue;
          item.value().set_requires_grad(true);
          return expects_error("required no gradient when its trainer was made", step);
        }
    }
  }

  // The next backward must say so: what it says ends the program.
  void expects_error(const std::string& text, std::size_t step) {
    const auto whole = trainer_->whole_parameters();
    const at::Tensor loss = loss_of(program_, net_, inputs_of(index_, step, 0), index_, nullptr);
    try {
      trainer_->backward(loss);
    } catch (const ValueError& error) {
      if (std::string(error.what()).find(text) == std::string::npos) throw;
      throw ValueError("as expected: " + text);
    }
    throw Error("nobody said: " + text);
  }

  const Program& program_;
  RandomNet net_;
  std::int64_t index_;
  std::unique_ptr<ZeroTrainer> trainer_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

struct Outcome {
  State state;
  std::string error;
};

// Of all replicas, which must be one.
Outcome run_replicas(const Program& program, const LaunchOptions& options) {
  const std::vector<Outcome> outcomes = results_of_job(options, [&] {
    Outcome own;
    try {
      own.state = Replica(program).run();
    } catch (const ValueError& error) {
      own.error = error.what();
    }
    return own;
  });
  for (const Outcome& outcome : outcomes) {
    if (outcome.error != outcomes[0].error) return {{}, "errors that differ"};
    const std::string different = first_difference(outcome.state, outcomes[0].state);
    if (!different.empty()) return {{}, "replicas differ in " + different};
  }
  return outcomes[0];
}

}  // namespace

TEST_CASE("random programs come out as plain LibTorch has them, in all placements", "[programs]") {
  const Quiet quiet;
  const std::uint64_t first = seed();
  std::cout << "random programs from seed " << first << "\n";
  for (int i = 0; i < rounds() * kPrograms; ++i) {
    const Program program(first + static_cast<std::uint64_t>(i));
    INFO("LOCKSTEP_SEED=" << program.seed << ": " << program.replicas << " replicas, stage "
                          << program.stage << ", " << program.optimizer);
    const auto run = [&](Backend backend, std::int64_t workers) {
      LaunchOptions job = threads(program.replicas, backend, workers);
      job.threads_per_replica = 1;
      return run_replicas(program, job);
    };
    const Outcome shared = run(Backend::automatic, 0);
    const Outcome gloo = run(Backend::gloo, 0);
    const Outcome in_turns = run(Backend::automatic, 1);
    const bool is_refused = shared.error.rfind("as expected", 0) == 0;
    CHECK((shared.error.empty() || is_refused));
    if (!shared.error.empty() && !is_refused) WARN(shared.error);
    CHECK(gloo.error == shared.error);
    CHECK(in_turns.error == shared.error);
    if (!shared.error.empty()) continue;
    CHECK(first_difference(gloo.state, shared.state) == "");
    CHECK(first_difference(in_turns.state, shared.state) == "");
    for (const auto& [name, value] : run_serially(program)) {
      INFO(name << " differs by " << (shared.state.at(name) - value).abs().max().item<double>());
      CHECK(shared.state.at(name).allclose(value, 1e-12, 1e-12));
    }
  }
}
