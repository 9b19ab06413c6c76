#include "framework/training/random_draws.h"

#include <functional>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/loader.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/training/data_parallel.h"
#include "framework/training/process_generator.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/message_of.h"
#include "tests/training/random_models.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Where a forward runs.
using Thread = std::function<at::Tensor(const std::function<at::Tensor()>&)>;

at::Tensor in_own_thread(const std::function<at::Tensor()>& forward) {
  return forward();
}

// What a strict trainer says of a module whose output is `forward` in a step.
template <typename Module>
std::string refusal(const Thread& thread, const std::function<Module()>& make,
                    const std::function<at::Tensor(Module&)>& forward) {
  return message_of<ValueError>([&] {
    pmap(
        [&] {
          Module module = seeded(1, make);
          DataParallel parallel(*module, "i", {.randomness = Randomness::strict});
          parallel.backward(thread([&] { return forward(module); }).sum());
        },
        {.axis_size = 2})();
  });
}

using torch::nn::Sequential;

std::string refusal_of(const Thread& thread, const std::function<Sequential()>& make) {
  return refusal<Sequential>(thread, make, [](Sequential& net) {
    return net->forward(at::linspace(-9, 9, 64).view({4, 4, 4}));  // RReLU draws below 0 alone
  });
}

Sequential after_linear(const std::function<void(Sequential&)>& add) {
  Sequential net(torch::nn::Linear(4, 4));
  add(net);
  return net;
}

}  // namespace

TEST_CASE("strict trainers name a data set that draws, not the model's dropout") {
  const auto data = made_set({.size = 8, .type = value_sample({4}, 1), .make = [](auto& sample) {
                                sample.input.copy_(at::rand({4}));
                              }});
  const Thread loading = [&](const std::function<at::Tensor()>& forward) {
    Loader loader(*data, {.threads = 1});
    loader.request({0}, 0);
    (void)loader.next();
    return forward();
  };
  const auto dropping = [] {
    return after_linear([](Sequential& net) { net->push_back(torch::nn::Dropout(0.5)); });
  };
  CHECK_THAT(refusal_of(loading, dropping),
             ContainsSubstring("process-wide generator (in gather() of a data set): threads"));
}

TEST_CASE("strict trainers name the modules that draw from LibTorch's generator, not by keys") {
  const auto with = [](const auto& layer) {
    const auto make = [&] {
      return after_linear([&](Sequential& net) { net->push_back(layer()); });
    };
    CHECK(refusal_of(in_own_thread, make) == "no error");
    return refusal_of(in_another_thread, make);
  };
  CHECK_THAT(
      with([] { return torch::nn::Dropout(0.5); }),
      ContainsSubstring(
          "step 1: training draws at random from LibTorch's process-wide generator (it has '1', a "
          "torch::nn::Dropout): threads, processes and fewer workers no longer give the same "
          "bits. Draws have the trainer's keys in the replica's own thread, unless "
          "torch::manual_seed() is called after the trainer is made; in other threads, as a data "
          "set's, and in maps inside the replica draw from a lockstep::Key, as "
          "lockstep::dropout(input, p, key) does, or give the operator a Generator; the option "
          "randomness is strict, as always in train"));
  CHECK_THAT(with([] { return torch::nn::AlphaDropout(0.5); }),
             ContainsSubstring("(it has '1', a torch::nn::AlphaDropout)"));
  CHECK_THAT(with([] { return torch::nn::RReLU(); }),
             ContainsSubstring("(it has '1', a torch::nn::RReLU)"));
  CHECK_THAT(with([] { return torch::nn::TransformerEncoderLayer(4, 2); }),
             ContainsSubstring("'1.self_attn', a torch::nn::MultiheadAttention, '1.dropout', a "
                               "torch::nn::Dropout"));
  CHECK_THAT(with([] {
               return torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                   torch::nn::TransformerEncoderLayerOptions(4, 2), 3));
             }),
             ContainsSubstring(" and 6 more): threads"));
  CHECK_THAT(
      with([] { return torch::nn::Functional([](at::Tensor x) { return x + at::rand({4}); }); }),
      ContainsSubstring("process-wide generator: threads"));
  const auto with_lstm = [](const Thread& thread) {
    return refusal<torch::nn::LSTM>(
        thread,
        [] { return torch::nn::LSTM(torch::nn::LSTMOptions(4, 4).num_layers(2).dropout(0.1)); },
        [](torch::nn::LSTM& net) {
          return std::get<0>(net->forward(at::ones({3, 2, 4})));
        });
  };
  CHECK(with_lstm(in_own_thread) == "no error");
  CHECK_THAT(with_lstm(in_another_thread),
             ContainsSubstring("(it has the module, a torch::nn::LSTM)"));
}

TEST_CASE("what does not draw is no draw") {
  for (const auto& layer : std::vector<std::function<void(Sequential&)>>{
           [](Sequential& net) { net->push_back(torch::nn::Dropout(0.0)); },
           [](Sequential& net) {
             net->push_back(torch::nn::Dropout(0.5));
             net[1]->eval();
           },
           [](Sequential& net) { net->push_back(torch::nn::ReLU()); }}) {
    CHECK(refusal_of(in_another_thread, [&] { return after_linear(layer); }) == "no error");
  }
}

TEST_CASE("a trainer knows of draws: of its replica, and in the first step of any") {
  pmap(
      [] {
        torch::nn::Linear net(4, 4);
        ZeroTrainer trainer(*net, {.axis_name = "i"});
        torch::nn::Linear other(4, 4);  // whose initialization is no draw in training
        const DataParallel parallel(*other, "i");
        const auto step = [&] {
          trainer.backward(net->forward(at::ones({2, 4})).sum());
          trainer.step(0.1);
        };
        step();
        if (trainer.has_random_draws()) throw Error("it has not drawn");
        (void)at::rand({1});  // has a key
        step();
        if (trainer.has_random_draws()) throw Error("it has drawn from its keys");
        if (axis_index("i") == 1) (void)in_another_thread([] { return at::rand({1}); });
        step();
        if (parallel.has_random_draws()) throw Error("it has not looked");
        if (axis_index("i") == 1 && !trainer.has_random_draws()) throw Error("it has drawn");
      },
      {.axis_size = 2})();
}

TEST_CASE(
    "draws of any thread of the process are refused in each strict replica, with a job's status") {
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const std::int64_t workers : {3, 1}) {
      CHECK(launch(
                [] {
                  auto net = seeded(1, [] { return torch::nn::Linear(4, 4); });
                  ZeroTrainer trainer(*net, {.randomness = Randomness::strict});
                  at::Tensor values = at::ones({2, 4});
                  if (axis_index("data") == 1) {
                    values = in_another_thread([&] { return at::dropout(values, 0.5, true); });
                  }
                  trainer.backward(net->forward(values).sum());
                  trainer.step(0.1);
                },
                {.replicas = 3,
                 .workers = workers,
                 .mode = LaunchMode::threads,
                 .backend = backend}) == 2);
    }
  }
}
