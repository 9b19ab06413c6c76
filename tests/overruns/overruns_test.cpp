#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/ones.h>
#include <c10/util/accumulate.h>
#include <torch/nn/modules/conv.h>
#include <torch/version.h>

#include "framework/replicas/pmap.h"
#include "framework/training/data_parallel.h"
#include "framework/training/safe_convolutions.h"
#include "framework/training/zero.h"
#include "models/layers.h"
#include "models/resnet.h"
#include "tests/catch.h"
#include "tests/overruns/convolution_cases.h"
#include "tests/overruns/guarded_memory.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// What a run with guarded memory finds, or nothing.
std::string found_in(const std::function<void()>& run) {
  std::string found;
  run_guarded(
      1, [&](std::size_t) { return run(), std::string(); },
      [&](std::size_t, const std::string& finding) { return found = finding, true; });
  return found;
}

// What many CPUs have, and what this one has beyond.
std::vector<std::string> newest_sets() {
  const std::vector<std::string> sets = instruction_sets();
  if (sets.size() > 3) return {"AVX2", sets.back()};
  return {sets.back()};
}

bool has_avx2() {
  const std::vector<std::string> sets = instruction_sets();
  return std::find(sets.begin(), sets.end(), "AVX2") != sets.end();
}

// What is found in each of `cases`, as lines.
std::vector<std::string> found_in(const std::vector<ConvolutionCase>& cases, bool safe,
                                  const std::string& instruction_set) {
  std::vector<std::string> found;
  const auto run = [&](std::size_t i) { return run_held_to(instruction_set, cases[i], safe); };
  run_guarded(cases.size(), run, [&](std::size_t i, const std::string& finding) {
    if (!finding.empty()) found.push_back(describe(cases[i]) + ": " + finding);
    return true;
  });
  return found;
}

// Nothing is found where they are computed as training does.
void check_safe(const std::vector<ConvolutionCase>& cases) {
  for (const std::string& set : newest_sets()) {
    CHECK(found_in(cases, /*safe=*/true, set) == std::vector<std::string>());
  }
}

// Draws numbers, by a seed of its own.
struct Draw {
  std::int64_t operator()(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  }
  void layouts(ConvolutionCase& c) {
    for (bool* const each : {&c.input_last, &c.weight_last, &c.gradient_last, &c.bias}) {
      *each = (*this)(0, 1) != 0;
    }
  }

  std::uint64_t seed = std::random_device()();
  std::mt19937_64 random{seed};
};

// The strided 1x1 convolution of a residual block's shortcut.
ConvolutionCase shortcut(std::int64_t in) {
  ConvolutionCase c;
  c.stride_rows = c.stride_columns = 2;
  c.in = in;
  c.out = 2 * in;
  c.batch = 4;
  c.rows = c.columns = 8;
  c.input_last = c.gradient_last = true;
  return c;
}

}  // namespace

TEST_CASE("guarded memory notices accesses outside of blocks") {
  const auto with_block = [](std::size_t size, const std::function<void(volatile char*)>& use) {
    return found_in([&] {
      void* block = nullptr;
      if (posix_memalign(&block, 64, size) != 0) std::abort();
      use(static_cast<volatile char*>(block));
      std::free(block);
    });
  };
  CHECK(with_block(100, [](volatile char* block) { block[99] = block[0]; }).empty());
  CHECK(with_block(100, [](volatile char* block) { block[101] = 1; }) ==
        "wrote 1 bytes behind the end of a block of 100 bytes");
  CHECK(with_block(100, [](volatile char* block) { block[-3] = 1; }) ==
        "wrote 3 bytes before a block of 100 bytes");
#ifdef __x86_64__
  CHECK(with_block(128, [](volatile char* block) { (void)block[128]; }) ==
        "reads 0 bytes behind the end of a block of 128 bytes");
  CHECK(with_block(128, [](volatile char* block) { block[130] = 1; }) ==
        "writes 2 bytes behind the end of a block of 128 bytes");
#endif
  CHECK(found_in([] { throw std::runtime_error("wrong"); }) == "wrong");
  CHECK(found_in([] { std::abort(); }) == "Aborted");
}

TEST_CASE("LibTorch's own backward overruns memory for a narrow shortcut") {
  std::vector<ConvolutionCase> cases;
  for (const std::int64_t in : {2, 3, 4, 5, 16, 24}) cases.push_back(shortcut(in));
  const std::vector<std::string> found =
      found_in(cases, /*safe=*/false, has_avx2() ? "AVX2" : "DEFAULT");
  for (const ConvolutionCase& each : cases) {
    const std::string name = describe(each) + ": ";
    INFO(name);
    const bool is_found = std::any_of(found.begin(), found.end(), [&](const std::string& text) {
      return text.substr(0, name.size()) == name;
    });
    if (!is_known(each)) CHECK(!is_found);
#if TORCH_VERSION_MAJOR == 1
    if (is_known(each) && has_avx2()) CHECK(is_found);
#endif
  }
}

TEST_CASE("training's backward stays inside of its memory, with the right gradients") {
  Draw draw;
  INFO("seed " << draw.seed);
  std::vector<ConvolutionCase> cases;
  for (std::int64_t in = 1; in <= 16; ++in) {
    for (const bool transposed : {false, true}) {
      for (int i = 0; i < 2; ++i) {
        ConvolutionCase c = shortcut(in);
        c.stride_rows = draw(1, 3);
        c.stride_columns = c.stride_rows == 1 ? 2 : draw(1, 3);
        c.transposed = transposed;
        if (transposed) std::swap(c.in, c.out);
        c.batch = draw(1, 9);
        c.rows = draw(1, 12);
        c.columns = draw(1, 12);
        draw.layouts(c);
        c.half = !transposed && draw(0, 3) == 0;
        c.threads = static_cast<int>(draw(1, 2));
        cases.push_back(c);
      }
      if (!transposed) cases.push_back(shortcut(in));
    }
  }
  check_safe(cases);
}

TEST_CASE("strided convolutions with one column of results, or of padded points, are right") {
  Draw draw;
  INFO("seed " << draw.seed);
  std::vector<ConvolutionCase> cases;
  while (cases.size() < 150) {
    ConvolutionCase c;
    c.kernel_rows = draw(1, 3);
    c.kernel_columns = draw(1, 5);
    c.stride_rows = draw(1, 3);
    c.stride_columns = draw(2, 9);
    c.padding = draw(0, 4);
    c.dilation = draw(1, 2);
    c.groups = draw(1, 2);
    c.in = c.groups * draw(1, 20);
    c.out = c.groups * draw(1, 20);
    c.batch = draw(1, 3);
    c.rows = draw(5, 9);
    c.transposed = draw(0, 3) == 0;
    c.columns = c.transposed ? 1 : draw(1, 10);
    draw.layouts(c);
    c.half = draw(0, 1) != 0;
    if (is_possible(c) && is_known(c)) cases.push_back(c);
  }
  check_safe(cases);
}

TEST_CASE("bfloat16 results of padding alone stay inside of their memory") {
  ConvolutionCase c;
  c.kernel_rows = c.kernel_columns = 2;
  c.stride_rows = 3;
  c.stride_columns = 7;
  c.padding = 3;
  c.dilation = 2;
  c.in = 18;
  c.out = 7;
  c.rows = 5;
  c.columns = 10;
  c.half = c.weight_last = true;
  check_safe({c});
}

TEST_CASE("dimensions of size one may have any stride, as slices leave them") {
  ConvolutionCase strided;  // of one column, of which every fifth is taken
  strided.stride_columns = 5;
  strided.groups = 2;
  strided.in = 16;
  strided.out = 26;
  strided.rows = 6;
  strided.input_last = strided.weight_last = true;
  ConvolutionCase half = strided;
  half.half = true;
  check_safe({strided, half});

  const auto with = [](const std::vector<std::int64_t>& sizes, std::int64_t stride) {
    const at::Tensor numbers =
        at::arange(c10::multiply_integers(sizes), at::kFloat).remainder(5).sub(2).view(sizes);
    const at::Tensor last = numbers.contiguous(at::MemoryFormat::ChannelsLast);
    std::vector<std::int64_t> strides = last.strides().vec();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 1) strides[i] = stride;
    }
    return std::pair(numbers, last.as_strided(sizes, strides));
  };
  CHECK(found_in([&] {
          training::keep_convolutions_safe();
          for (const std::vector<std::int64_t>& kernel : std::vector<std::vector<std::int64_t>>{
                   {18, 7, 1, 3}, {18, 7, 3, 1}, {18, 7, 1, 1}}) {
            const auto [plain_images, images] = with({3, 14, 9, 1}, 14);
            const auto [plain_weight, weight] = with(kernel, 186);
            const std::vector<std::int64_t> ones{1, 1};
            if (at::conv2d(images, weight, {}, ones, ones, ones, 2)
                    .equal(at::conv2d(plain_images, plain_weight, {}, ones, ones, ones, 2))) {
              continue;
            }
            throw std::runtime_error("the output is wrong");
          }
        }) == "");
}

TEST_CASE("a resnet of any width trains inside of its memory") {
  const std::vector<std::int64_t> widths{1, 2, 3, 4, 5, 6, 7, 8, 12};
  std::vector<std::string> found;
  const auto run = [&](std::size_t i) {
    at::set_num_threads(1);
    pmap(
        [&] {
          const auto model = std::make_shared<Resnet>(ResnetOptions{.depth = 8, .width = widths[i]},
                                                      3, 8, 8, 10, Key(1));
          ZeroTrainer trainer(*model, {.axis_name = "i", .optimizer = {.name = "sgd"}});
          for (std::uint64_t step = 0; step < 2; ++step) {
            const at::Tensor images = uniform({4, 3, 8, 8}, 1, Key(2).fold(step));
            trainer.backward(model->forward(images).square().mean());
            trainer.step(0.1);
          }
        },
        {.axis_name = "i", .axis_size = 1})();
    return std::string();
  };
  run_guarded(widths.size(), run, [&](std::size_t i, const std::string& finding) {
    if (!finding.empty()) found.push_back(std::to_string(widths[i]) + ": " + finding);
    return true;
  });
  CHECK(found == std::vector<std::string>());
}

TEST_CASE("a convolution that can't be is LibTorch's error") {
  const auto error_of = [](const at::Tensor& weight, std::vector<std::int64_t> padding) {
    return found_in([&] {
      training::keep_convolutions_safe();
      const auto dimensions = static_cast<std::size_t>(weight.dim());
      std::vector<std::int64_t> sizes(dimensions, 5);
      sizes[1] = 16;
      const std::vector<std::int64_t> ones(dimensions - 2, 1);
      at::convolution(at::ones(sizes), weight, {}, {2}, padding, ones, false, {0}, 1);
    });
  };
  CHECK_THAT(error_of(at::ones({8, 16, 1, 1}), {-1}), ContainsSubstring("negative padding"));
  for (const std::int64_t kernel : {1, 5}) {
    CHECK_THAT(error_of(at::ones({8, 16, kernel, kernel, kernel}), {1, 1}),
               ContainsSubstring("list of 3 values"));
  }
}

TEST_CASE("a module of a user's own trains inside of its memory") {
  const auto last = at::MemoryFormat::ChannelsLast;
  CHECK(found_in([&] {
          at::set_num_threads(1);
          pmap(
              [&] {
                torch::nn::Conv2d module(torch::nn::Conv2dOptions(4, 8, 1).stride(2).bias(false));
                const at::Tensor images = at::ones({4, 4, 8, 8}).contiguous(last);
                DataParallel parallel(*module, "i");
                const auto check = [&](const at::Tensor& output, double expected) {
                  module->zero_grad();
                  parallel.backward(output.sum());
                  if (module->weight.grad().eq(expected).all().item<bool>()) return;
                  throw std::runtime_error("the weight's gradient is wrong");
                };
                check(module->forward(images), 64);
                check(at::conv2d(images, module->weight, {}, 2), 64);  // what no module knows of
                // Sequences whose channels lie beside each other.
                const at::Tensor sequences = at::ones({4, 8, 4}).permute({0, 2, 1});
                check(at::conv1d(sequences, module->weight.squeeze(3), {}, 2), 16);
                // One result, in one dimension and in three.
                const at::Tensor kernel = module->weight.expand({8, 4, 3, 1}).squeeze(3);
                check(at::conv1d(at::ones({4, 4, 3}), kernel, {}, 2), 12);
                const at::Tensor volumes = at::ones({2, 4, 3, 3, 2});
                check(at::conv3d(volumes, kernel.unsqueeze(2).unsqueeze(2), {}, 2, {0, 0, 1}), 16);
              },
              {.axis_name = "i", .axis_size = 1})();
        }) == "");
}
