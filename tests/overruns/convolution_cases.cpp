#include "tests/overruns/convolution_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "framework/training/safe_convolutions.h"
#include "tests/overruns/guarded_memory.h"

namespace lockstep::testing {
namespace {

using Random = std::mt19937_64;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

std::int64_t draw(Random& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

at::MemoryFormat layout(bool last) {
  return last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

// Whole numbers from -2 to 2, of which float32 and bfloat16 keep products and most sums.
at::Tensor whole_numbers(const std::vector<std::int64_t>& sizes, at::ScalarType type, bool last,
                         std::uint64_t seed) {
  return at::empty(sizes, at::TensorOptions().dtype(type).memory_format(layout(last)))
      .random_(-2, 3, at::detail::createCPUGenerator(seed));
}

std::vector<std::int64_t> strides(const ConvolutionCase& c) {
  return {c.stride_rows, c.stride_columns};
}

std::vector<std::int64_t> weight_sizes(const ConvolutionCase& c) {
  return {c.transposed ? c.in : c.out, (c.transposed ? c.out : c.in) / c.groups, c.kernel_rows,
          c.kernel_columns};
}

// LibTorch's own, or with `safe` the one that training uses, as in backward().
at::Tensor forward(const ConvolutionCase& c, const at::Tensor& input, const at::Tensor& weight,
                   const at::Tensor& bias, bool safe) {
  const auto call = [&](const auto& function) -> at::Tensor {
    return function(input, weight, bias, strides(c),
                    std::vector<std::int64_t>{c.padding, c.padding},
                    std::vector<std::int64_t>{c.dilation, c.dilation}, c.transposed,
                    std::vector<std::int64_t>{0, 0}, c.groups);
  };
  if (safe) return call([](const auto&... all) { return at::convolution(all...); });
  return call(
      [](const auto&... all) { return at::compositeexplicitautograd::convolution(all...); });
}

Gradients backward(const ConvolutionCase& c, const at::Tensor& gradient, const at::Tensor& input,
                   const at::Tensor& weight, bool safe) {
  const std::vector<std::int64_t> bias{c.out};
  const auto call = [&](const auto& function) -> Gradients {
    return function(gradient, input, weight, at::OptionalIntArrayRef(bias), strides(c),
                    std::vector<std::int64_t>{c.padding, c.padding},
                    std::vector<std::int64_t>{c.dilation, c.dilation}, c.transposed,
                    std::vector<std::int64_t>{0, 0}, c.groups,
                    std::array<bool, 3>{true, true, c.bias});
  };
  if (safe) return call([](const auto&... all) { return at::convolution_backward(all...); });
  return call([](const auto&... all) {
    return at::compositeexplicitautograd::convolution_backward(all...);
  });
}

// What of `values` is far from `expected`, or nothing.
std::string difference(const char* name, const at::Tensor& values, const at::Tensor& expected) {
  if (!expected.defined()) return {};
  if (values.sizes() != expected.sizes()) return std::string(name) + " has another shape";
  const at::Tensor found = values.to(at::kDouble).contiguous();
  const at::Tensor right = expected.contiguous();
  const double* const numbers = found.data_ptr<double>();
  const double* const rights = right.data_ptr<double>();
  // LibTorch's own kernels for bfloat16 round sums again and again.
  const double unit = values.scalar_type() == at::kBFloat16 ? 0.1 : 1e-4;
  double largest = 1;
  for (std::int64_t i = 0; i < right.numel(); ++i) {
    largest = std::max(largest, std::abs(rights[i]));
  }
  for (std::int64_t i = 0; i < right.numel(); ++i) {
    if (std::abs(numbers[i] - rights[i]) <= unit * largest) continue;
    std::ostringstream text;
    text << name << " has " << numbers[i] << " for " << rights[i] << " at " << i << " of "
         << right.numel();
    return text.str();
  }
  return {};
}

std::string compare(const ConvolutionCase& c, bool safe) {
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  const at::ScalarType type = c.half ? at::kBFloat16 : at::kFloat;
  at::set_num_threads(c.threads);
  at::Tensor input = whole_numbers({c.batch, c.in, c.rows, c.columns}, type, c.input_last, 1);
  at::Tensor weight = whole_numbers(weight_sizes(c), type, c.weight_last, 2);
  at::Tensor bias = c.bias ? whole_numbers({c.out}, type, false, 3) : at::Tensor();
  at::Tensor output = forward(c, input, weight, bias, safe);
  at::Tensor gradient = whole_numbers(output.sizes().vec(), type, c.gradient_last, 4);
  Gradients gradients = backward(c, gradient, input, weight, safe);

  guard_memory(false);
  at::set_num_threads(1);
  const auto exact = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(at::kDouble).contiguous() : tensor;
  };
  const at::Tensor exact_output =
      forward(c, exact(input), exact(weight), exact(bias), /*safe=*/false);
  const Gradients exact_gradients =
      backward(c, exact(gradient), exact(input), exact(weight), /*safe=*/false);
  guard_memory(true);
  for (const std::string& text :
       {difference("the output", output, exact_output),
        difference("the input's gradient", std::get<0>(gradients), std::get<0>(exact_gradients)),
        difference("the weight's gradient", std::get<1>(gradients), std::get<1>(exact_gradients)),
        difference("the bias's gradient", std::get<2>(gradients), std::get<2>(exact_gradients))}) {
    if (!text.empty()) return text;
  }
  return {};
}

// A parameter of cases: a name's values, of which the pairwise sample takes one each.
struct Parameter {
  std::int64_t values;
  void (*set)(ConvolutionCase&, std::int64_t);
};

template <typename Value, std::size_t n>
constexpr Value pick(const std::array<Value, n>& values, std::int64_t i) {
  return values[static_cast<std::size_t>(i)];
}

using Pair = std::pair<std::int64_t, std::int64_t>;
constexpr std::array<Pair, 7> kKernels{{{1, 1}, {1, 1}, {2, 2}, {3, 3}, {5, 5}, {1, 3}, {7, 7}}};
constexpr std::array<Pair, 5> kStrides{{{1, 1}, {2, 2}, {3, 3}, {2, 1}, {1, 2}}};
constexpr std::array<std::int64_t, 5> kGroups{1, 1, 2, 4, 0};  // 0: one a channel
constexpr std::array<std::int64_t, 9> kColumns{1, 2, 4, 5, 7, 8, 9, 12, 16};
constexpr std::array<std::int64_t, 10> kRows{1, 2, 4, 5, 7, 8, 9, 12, 16, 67};

// In the order in which they are set: groups follow channels.
const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all{
      {kKernels.size(),
       [](ConvolutionCase& c, std::int64_t i) {
         std::tie(c.kernel_rows, c.kernel_columns) = pick(kKernels, i);
       }},
      {kStrides.size(),
       [](ConvolutionCase& c, std::int64_t i) {
         std::tie(c.stride_rows, c.stride_columns) = pick(kStrides, i);
       }},
      {3, [](ConvolutionCase& c, std::int64_t i) { c.padding = i; }},
      {2, [](ConvolutionCase& c, std::int64_t i) { c.dilation = 1 + i; }},
      {40, [](ConvolutionCase& c, std::int64_t i) { c.in = 1 + i; }},
      {40, [](ConvolutionCase& c, std::int64_t i) { c.out = 1 + i; }},
      {9, [](ConvolutionCase& c, std::int64_t i) { c.batch = 1 + i; }},
      {kRows.size(), [](ConvolutionCase& c, std::int64_t i) { c.rows = pick(kRows, i); }},
      {kColumns.size(), [](ConvolutionCase& c, std::int64_t i) { c.columns = pick(kColumns, i); }},
      {kGroups.size(),
       [](ConvolutionCase& c, std::int64_t i) {
         const std::int64_t groups = pick(kGroups, i);
         c.groups = groups == 0 ? c.in : groups;
         const auto rounded = [&](std::int64_t n) {
           return (n + c.groups - 1) / c.groups * c.groups;
         };
         c.in = rounded(c.in);
         c.out = rounded(c.out);
       }},
      {2, [](ConvolutionCase& c, std::int64_t i) { c.input_last = i != 0; }},
      {2, [](ConvolutionCase& c, std::int64_t i) { c.weight_last = i != 0; }},
      {2, [](ConvolutionCase& c, std::int64_t i) { c.gradient_last = i != 0; }},
      {2, [](ConvolutionCase& c, std::int64_t i) { c.bias = i != 0; }},
      {4, [](ConvolutionCase& c, std::int64_t i) { c.transposed = i == 3; }},
      {2, [](ConvolutionCase& c, std::int64_t i) { c.half = i != 0; }},
      {2, [](ConvolutionCase& c, std::int64_t i) { c.threads = 1 + static_cast<int>(i); }}};
  return all;
}

// Images of at least a kernel's extent.
void make_valid(ConvolutionCase& c) {
  if (c.transposed) return;
  const auto least = [&](std::int64_t kernel) {
    return std::max<std::int64_t>(1, c.dilation * (kernel - 1) + 1 - 2 * c.padding);
  };
  c.rows = std::max(c.rows, least(c.kernel_rows));
  c.columns = std::max(c.columns, least(c.kernel_columns));
}

// Of the results of a transposed one, which the padding cuts.
std::int64_t transposed_extent(const ConvolutionCase& c, std::int64_t size, std::int64_t stride,
                               std::int64_t kernel) {
  return (size - 1) * stride - 2 * c.padding + c.dilation * (kernel - 1) + 1;
}

}  // namespace

std::string describe(const ConvolutionCase& c) {
  std::ostringstream text;
  text << c.kernel_rows << 'x' << c.kernel_columns << (c.transposed ? " transposed" : "")
       << ", stride " << c.stride_rows << 'x' << c.stride_columns << ", padding " << c.padding
       << ", dilation " << c.dilation << ", groups " << c.groups << ", " << c.in << " to " << c.out
       << " channels of " << c.rows << 'x' << c.columns << ", batch " << c.batch
       << (c.bias ? ", bias" : "") << ", " << (c.half ? "bfloat16" : "float32")
       << ", channels_last:" << (c.input_last ? " input" : "") << (c.weight_last ? " weight" : "")
       << (c.gradient_last ? " gradient" : "") << ", threads " << c.threads;
  return text.str();
}

bool is_possible(const ConvolutionCase& c) {
  const auto is_there = [&](std::int64_t size, std::int64_t stride, std::int64_t kernel) {
    if (c.transposed) return transposed_extent(c, size, stride, kernel) > 0;
    return size + 2 * c.padding > c.dilation * (kernel - 1);
  };
  return is_there(c.rows, c.stride_rows, c.kernel_rows) &&
         is_there(c.columns, c.stride_columns, c.kernel_columns);
}

bool is_known(const ConvolutionCase& c) {
  const auto extent = [&](std::int64_t size, std::int64_t stride, std::int64_t kernel) {
    return c.transposed ? transposed_extent(c, size, stride, kernel) : size;
  };
  return training::is_unsafe({.images = {c.batch, c.transposed ? c.out : c.in,
                                         extent(c.rows, c.stride_rows, c.kernel_rows),
                                         extent(c.columns, c.stride_columns, c.kernel_columns)},
                              .weight = weight_sizes(c),
                              .stride = strides(c),
                              .padding = {c.padding, c.padding},
                              .dilation = {c.dilation, c.dilation},
                              .groups = c.groups,
                              .transposed = c.transposed,
                              .type = c.half ? at::kBFloat16 : at::kFloat},
                             /*backward=*/true);
}

std::string run_convolution(const ConvolutionCase& c, bool safe) {
  try {
    return compare(c, safe);
  } catch (const c10::Error& error) {
    // Not every version has every type.
    if (std::string_view(error.what()).find("not implemented for") != std::string_view::npos) {
      return {};
    }
    throw;
  }
}

std::vector<ConvolutionCase> model_convolutions(std::mt19937_64& random) {
  std::vector<std::int64_t> widths{48, 56, 64, 72, 100, 128};
  for (std::int64_t width = 1; width <= 40; ++width) widths.push_back(width);
  const auto with = [](std::int64_t kernel, std::int64_t stride, std::int64_t in, std::int64_t out,
                       bool bias) {
    ConvolutionCase c;
    c.kernel_rows = c.kernel_columns = kernel;
    c.stride_rows = c.stride_columns = stride;
    c.padding = kernel / 2;
    c.in = in;
    c.out = out;
    c.bias = bias;
    return c;
  };
  std::vector<ConvolutionCase> cases;
  for (const std::int64_t width : widths) {
    for (const ConvolutionCase& kind :
         {with(1, 1, 9, width, true), with(3, 1, draw(random, 2, 4), width, true),
          with(3, 1, width, draw(random, 1, 64), true), with(3, 1, width, width, false),
          with(3, 2, width, 2 * width, false), with(1, 2, width, 2 * width, false)}) {
      for (std::int64_t batch = 1; batch <= 9; ++batch) {
        for (const int threads : {1, 2}) {
          ConvolutionCase c = kind;
          c.batch = batch;
          c.rows = draw(random, 1, width > 40 ? 5 : 17);
          c.columns = draw(random, 0, 3) == 0 ? draw(random, 1, width > 40 ? 5 : 17) : c.rows;
          c.input_last = true;
          c.weight_last = draw(random, 0, 3) == 0;
          c.gradient_last = draw(random, 0, 2) != 0;
          c.half = draw(random, 0, 3) == 0;
          c.threads = threads;
          cases.push_back(c);
        }
      }
    }
  }
  std::shuffle(cases.begin(), cases.end(), random);
  return cases;
}

std::vector<ConvolutionCase> pairwise_convolutions(std::mt19937_64& random) {
  constexpr int kCandidates = 20;
  const std::vector<Parameter>& all = parameters();
  const std::size_t count = all.size();
  // Pairs of values that no case has yet: by parameter and value of both, the first being smaller.
  std::vector<std::size_t> begins{0};
  for (const Parameter& parameter : all) {
    begins.push_back(begins.back() + static_cast<std::size_t>(parameter.values));
  }
  const std::size_t values = begins.back();
  std::vector<bool> is_open(values * values, false);
  std::vector<std::size_t> open;
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t first = begins[a]; first < begins[a + 1]; ++first) {
      for (std::size_t second = begins[a + 1]; second < values; ++second) {
        is_open[first * values + second] = true;
        open.push_back(first * values + second);
      }
    }
  }
  std::shuffle(open.begin(), open.end(), random);
  std::vector<ConvolutionCase> cases;
  while (true) {
    while (!open.empty() && !is_open[open.back()]) open.pop_back();
    if (open.empty()) return cases;
    // Of some candidates that have an open pair, the one with the most.
    std::vector<std::size_t> best;
    std::ptrdiff_t most = 0;
    const auto for_pairs = [&](const std::vector<std::size_t>& chosen, const auto& act) {
      for (std::size_t a = 0; a < count; ++a) {
        for (std::size_t b = a + 1; b < count; ++b) act(chosen[a] * values + chosen[b]);
      }
    };
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      std::vector<std::size_t> chosen;
      for (std::size_t a = 0; a < count; ++a) {
        std::size_t value =
            begins[a] + static_cast<std::size_t>(draw(random, 0, all[a].values - 1));
        for (const std::size_t forced : {open.back() / values, open.back() % values}) {
          if (forced >= begins[a] && forced < begins[a + 1]) value = forced;
        }
        chosen.push_back(value);
      }
      std::ptrdiff_t gained = 0;
      for_pairs(chosen, [&](std::size_t pair) { gained += is_open[pair] ? 1 : 0; });
      if (gained > most) {
        most = gained;
        best = chosen;
      }
    }
    for_pairs(best, [&](std::size_t pair) { is_open[pair] = false; });
    ConvolutionCase c;
    for (std::size_t a = 0; a < count; ++a) {
      all[a].set(c, static_cast<std::int64_t>(best[a] - begins[a]));
    }
    make_valid(c);
    if (is_possible(c)) cases.push_back(c);
  }
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> sets;
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.1")) sets.emplace_back("SSE41");
  if (__builtin_cpu_supports("avx")) sets.emplace_back("AVX");
  if (__builtin_cpu_supports("avx2")) sets.emplace_back("AVX2");
  if (__builtin_cpu_supports("avx512bw")) sets.emplace_back("AVX512_CORE");
  if (__builtin_cpu_supports("avx512vnni")) sets.emplace_back("AVX512_CORE_VNNI");
  if (__builtin_cpu_supports("avx512bf16")) sets.emplace_back("AVX512_CORE_BF16");
  if (sets.size() > 3) sets.emplace_back("DEFAULT");  // newer ones, too
#else
  sets.emplace_back("DEFAULT");
#endif
  return sets;
}

std::string run_held_to(const std::string& instruction_set, const ConvolutionCase& c, bool safe) {
  const bool is_newest = instruction_set == "DEFAULT" || instruction_set.starts_with("AVX512");
  if (c.half && !is_newest && instruction_sets().back() == "DEFAULT") return "";
  if (instruction_set != "DEFAULT") {
    for (const char* const name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
      setenv(name, instruction_set.c_str(), 1);
    }
  }
  if (instruction_set == "SSE41" || instruction_set == "AVX") {
    setenv("ATEN_CPU_CAPABILITY", "default", 1);
  }
  if (instruction_set == "AVX2") setenv("ATEN_CPU_CAPABILITY", "avx2", 1);
  return run_convolution(c, safe);
}

}  // namespace lockstep::testing
