// shard_map with check_vma: operations that are followed or refused. JAX's numbers are in jax/.

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/tree/grad.h"
#include "framework/tree/variance.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/message_of.h"
#include "trainers/bench/hosts/child_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const ShardMapOptions kVma{.check_vma = true};

Mesh line() {
  return Mesh({{"data", 2}});
}

Tensor shared() {
  return at::tensor({2.0}, at::kDouble);
}

Tensor batch() {
  return at::tensor({1.0, 3.0}, at::kDouble);
}

void check_close(const Tensor& found, const Tensor& expected) {
  INFO(lockstep::str(found, "\ninstead of\n", expected));
  CHECK(at::allclose(found, expected, 1e-12, 1e-12));
}

// A loss of a shared tensor, a matrix made of it, and a tensor that varies.
using LossOfParts = std::function<Tensor(const Tensor& p, const Tensor& a, const Tensor& x)>;

Tensor loss_of(const LossOfParts& loss, const Tensor& p, const Tensor& x) {
  const Tensor pattern = (at::arange(12, at::kDouble).view({3, 4}) + 1).sin();
  return loss(p, p.expand({3, 4}).contiguous() * pattern, x);
}

template <typename F>
Tensor derivative(const F& f, const Tensor& at, bool second) {
  if (!second) return grad(f)(at);
  return grad([&](const Tensor& inner) { return grad(f)(inner).sum(); })(at);
}

// Checks that derivatives of the mean loss, in the map and through it, are those of its two parts.
void check_mean_loss(const LossOfParts& loss) {
  for (const bool second : {false, true}) {
    Tensor serial = at::zeros({1}, at::kDouble);
    for (const Tensor& x : batch().split(1)) {
      serial = serial + derivative([&](const Tensor& p) { return loss_of(loss, p, x) / 2; },
                                   shared(), second);
    }
    const auto mean = [&](const Tensor& p, const Tensor& x) {
      return pmean(loss_of(loss, p, x), "data");
    };
    const auto inside = [&](const Tensor& p, const Tensor& x) {
      return derivative([&](const Tensor& inner) { return mean(inner, x); }, p, second);
    };
    check_close(shard_map(inside, line(), {P(), P("data")}, P(), kVma)(shared(), batch()), serial);
    const auto through = shard_map(mean, line(), {P(), P("data")}, P(), kVma);
    check_close(derivative([&](const Tensor& p) { return through(p, batch()); }, shared(), second),
                serial);
  }
}

// Returns the message with which a map over the batch is refused.
template <typename F>
std::string map_refusal(const F& f) {
  return message_of<ValueError>([&] {
    (void)shard_map([&](const Tensor& x) { return f(x); }, line(), {P("data")}, P("data"),
                    kVma)(batch());
  });
}

// A product with a derivative of its own: nobody sees that it mixes its operands.
struct Product : torch::autograd::Function<Product> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& a,
                        const Tensor& b) {
    context->save_for_backward({a, b});
    return a * b;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], gradients[0] * saved[0]};
  }
};

}  // namespace

TEST_CASE("check_vma: LibTorch's operations are followed, in derivatives too") {
  const Tensor none;
  const std::vector<std::pair<const char*, LossOfParts>> losses{
      {"products", [](auto& p, auto& a, auto& x) { return (a * x).sum() * p.sum() + a.prod(); }},
      {"shapes",
       [](auto&, auto& a, auto& x) {
         return a.t().reshape({2, 6}).unsqueeze(0).expand({2, 2, 6}).slice(1, 0, 1).pow(2).sum() *
                x;
       }},
      {"lists",
       [](auto&, auto& a, auto& x) {
         return at::cat({a, x.expand({1, 4})}).pow(2).sum() + at::stack({a, a * x}).tanh().sum();
       }},
      {"where",
       [](auto&, auto& a, auto& x) {
         return at::where(a > 1, a, x.expand({3, 4})).sum();
       }},
      {"matrices",
       [](auto& p, auto& a, auto& x) {
         return at::einsum("ij,kj->ik", {a, a * x}).sum() + at::matmul(a, p.expand({4, 2})).sum() +
                at::linear(a * x, p.expand({2, 4}), p.expand({2})).sum();
       }},
      {"softmax",
       [](auto&, auto& a, auto& x) { return at::log_softmax(a * x, 1).max() + a.sum(); }},
      {"norms",
       [](auto& p, auto& a, auto& x) {
         return at::layer_norm(a + x, {4}, p.expand({4}), p.expand({4})).sin().sum() + at::norm(a);
       }},
      {"batch norm",
       [](auto&, auto& a, auto& x) {
         const Tensor mean = at::zeros({4}, at::kDouble);
         const Tensor variance = at::ones({4}, at::kDouble);
         return (at::batch_norm(a * x + a.pow(2), a[0], a[1], mean, variance, true, 0.1, 1e-3,
                                false) *
                 a)
             .sum();
       }},
      {"convolution",
       [](auto& p, auto& a, auto& x) {
         return at::conv2d(a.view({1, 1, 3, 4}) * x, p.expand({2, 1, 2, 2}).contiguous(),
                           p.expand({2}).contiguous())
             .sin()
             .sum();
       }},
      {"recurrence",
       [](auto& p, auto& a, auto& x) {
         const std::vector<Tensor> weights{p.expand({8, 4}) * 0.1, p.expand({8, 2}) * 0.2,
                                           p.expand({8}) * 0.1, p.expand({8}) * 0.3};
         const std::vector<Tensor> state{at::zeros({1, 1, 2}, at::kDouble),
                                         at::zeros({1, 1, 2}, at::kDouble)};
         return std::get<0>(at::lstm((a * x).view({3, 1, 4}), state, weights, true, 1, 0., true,
                                     false, false))
             .sum();
       }},
      {"indices",
       [](auto&, auto& a, auto& x) {
         const Tensor row = x.to(at::kLong) - 1;
         return (a.index({row}) * x).sum() + at::embedding(a, row).sin().sum() +
                at::cross_entropy_loss(a * x, at::zeros({3}, at::kLong) + row);
       }},
      {"in place",
       [](auto& p, auto& a, auto& x) {
         Tensor varying = x * 2;
         varying.mul_(p).add_(p * 3);
         Tensor common = a * 2;
         common.select(0, 1).mul_(x);
         common.add_(x);
         return varying.pow(2).sum() + (common * a).sum();
       }},
      {"numbers within an operation",
       [](auto&, auto& a, auto& x) {
         return (at::one_hot(x.to(at::kLong).expand({3}), 4) * a).sum();
       }},
  };
  for (const auto& [name, loss] : losses) {
    INFO(name);
    check_mean_loss(loss);
  }
}

TEST_CASE("check_vma: one value and parts of it may share memory") {
  const auto f = [](const Tensor& whole, const Tensor& part) {
    return grad([&](const Tensor& at) { return psum((at * part).sum(), "data"); })(whole);
  };
  const Tensor x = batch();
  check_close(shard_map(f, line(), {P(), P("data")}, P(), kVma)(x, x),
              at::full({2}, 4.0, at::kDouble));
}

TEST_CASE("check_vma: what was written varies for all that shares the memory") {
  CHECK_THAT(message_of<ValueError>([] {
               (void)shard_map(
                   [](const Tensor& x) {
                     Tensor buffer = at::zeros({3}, at::kDouble);
                     const Tensor view = buffer.narrow(0, 0, 2);
                     view.narrow(0, 1, 1).copy_(x);
                     return buffer;
                   },
                   line(), {P("data")}, P(), kVma)(batch());
             }),
             ContainsSubstring("varies over 'data', which its out spec does not name"));
}

TEST_CASE("check_vma: a captured tensor is one value, as an argument with P()") {
  const auto loss = [](const Tensor& p) {
    return shard_map([&](const Tensor& x) { return pmean((p * p * x).sum(), "data"); }, line(),
                     {P("data")}, P(), kVma)(batch());
  };
  check_close(grad(loss)(shared()), at::tensor({8.0}, at::kDouble));
  check_close(derivative(loss, shared(), true), at::tensor({4.0}, at::kDouble));
}

TEST_CASE("check_vma: ragged_all_to_all and pmax have derivatives, too") {
  const auto f = [](const Tensor& p, const Tensor& x) {
    return grad([&](const Tensor& at) {
      const Tensor one = at::ones({2}, at::kLong);
      const Tensor offsets = at::arange(2);
      const Tensor mine = axis_index_tensor("data").expand({2}).contiguous();
      const Tensor moved =
          ragged_all_to_all(at * x * at::ones({2}, at::kDouble), at::zeros({2}, at::kDouble),
                            offsets, one, mine, one, "data");
      return pmean(moved.sum(), "data") + pmax((at * x).sum(), "data");
    })(p);
  };
  // The result is the mean of two rows of 1 and two of 3, halved by two replicas, plus the largest.
  check_close(shard_map(f, line(), {P(), P("data")}, P(), kVma)(shared(), batch()),
              at::tensor({4.0 + 3.0}, at::kDouble));
}

TEST_CASE("check_vma: without it nothing is another") {
  const auto inside = [](const Tensor& p, const Tensor& x) {
    return grad([&](const Tensor& at) { return psum((at * x).sum(), "data"); })(p);
  };
  const auto found = shard_map(inside, line(), {P(), P("data")}, P("data"))(shared(), batch());
  check_close(found, at::tensor({2.0, 6.0}, at::kDouble));
}

TEST_CASE("check_vma: what cannot be followed is refused") {
  CHECK_THAT(map_refusal([](const Tensor& x) { return x * axis_index("data"); }),
             ContainsSubstring("axis_index_tensor"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return x * x.item<double>(); }),
             ContainsSubstring("item reads a number from a tensor that varies over 'data'"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return x.equal(x) ? x : -x; }),
             ContainsSubstring("equal reads a number"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return at::allclose(x, x) ? x : -x; }),
             ContainsSubstring("reads a number"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return x * at::rand({1}); }),
             ContainsSubstring("rand draws from a generator"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return at::dropout(x, 0.5, true); }),
             ContainsSubstring("draws from a generator"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return x.nonzero(); }),
             ContainsSubstring("size depends on values that vary over 'data'"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return x.index({x > 0}); }),
             ContainsSubstring("size depends on values"));
  CHECK_THAT(map_refusal([](const Tensor& x) {
               const std::vector<Tensor> list{x, at::ones({1}, at::kDouble)};
               return at::_foreach_add(list, 1)[0];
             }),
             ContainsSubstring("several tensors of several"));
  CHECK_THAT(map_refusal([](const Tensor& x) { return x.to_sparse().to_dense(); }),
             ContainsSubstring("dense tensors only"));
  CHECK_THAT(map_refusal([](const Tensor& x) {
               psum_(x, "data");
               return x;
             }),
             ContainsSubstring("use what returns its result"));
  CHECK_THAT(map_refusal([](const Tensor& x) {
               return pmap([](const Tensor& y) { return y; }, {.axis_name = "inner"})(x);
             }),
             ContainsSubstring("is not followed"));
  CHECK_THAT(map_refusal([](const Tensor& x) {
               return grad([&](const Tensor& at) {
                        return psum(Product::apply(at, x), "data").sum();
                      })(at::ones({1}, at::kDouble)) *
                      x;
             }),
             ContainsSubstring("the gradient by leaf 0 varies over data, and the leaf does not"));
  // A tensor that does not vary has one value everywhere.
  const auto fine = [](const Tensor& x) {
    return x * psum(x, "data").item<double>() + at::dropout(x, 0.5, false);
  };
  check_close(shard_map(fine, line(), {P("data")}, P("data"), kVma)(batch()), batch() * 5);
}

// Runs in a process of its own: other cases may have asked for check_vma before.
TEST_CASE("a program that uses shard_map without check_vma, then with it", "[.vma_first_use]") {
  const auto dispatcher_has_it = [] {
    return c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(tree::kVarianceKey);
  };
  const auto sum = [](const Tensor& x) { return psum(x, "data"); };
  CHECK_FALSE(dispatcher_has_it());
  (void)shard_map(sum, line(), {P("data")}, P())(batch());
  CHECK_FALSE(dispatcher_has_it());
  (void)shard_map(sum, line(), {P("data")}, P(), kVma)(batch());
  CHECK(dispatcher_has_it());
  (void)shard_map(sum, line(), {P("data")}, P(), kVma)(batch());
}

TEST_CASE("LibTorch's dispatcher stays as it was until the first shard_map with check_vma") {
  const Ended end = run_program({"/proc/self/exe", "[vma_first_use]"});
  check_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("3 assertions"));
}
