#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep::testing {

/// A convolution of images, forward and backward.
struct ConvolutionCase {
  std::int64_t kernel_rows = 1, kernel_columns = 1;
  std::int64_t stride_rows = 1, stride_columns = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  std::int64_t in = 1, out = 1;  // channels, multiples of groups
  std::int64_t batch = 1;
  std::int64_t rows = 1, columns = 1;
  bool input_last = false, weight_last = false, gradient_last = false;  // channels_last
  bool bias = false;
  bool transposed = false;
  bool half = false;  // bfloat16
  int threads = 1;
};

/// "1x1 stride 2 …, batch 4, 4 to 8 channels of 8x8, …"
[[nodiscard]] std::string describe(const ConvolutionCase& convolution);

/// Whether it has a result: a kernel fits in the padded images.
[[nodiscard]] bool is_possible(const ConvolutionCase& convolution);

/// Whether Lockstep takes another way for it (training/safe_convolutions.h).
[[nodiscard]] bool is_known(const ConvolutionCase& convolution);

/// Computes it and compares with float64. Returns what differs, or nothing. `safe`: as training
/// computes it, otherwise in LibTorch's own way.
[[nodiscard]] std::string run_convolution(const ConvolutionCase& convolution, bool safe);

/// For each width that `models/` may have (1 to 40, and larger ones), each of their kinds of
/// convolutions, batch 1 to 9, with 1 and 2 threads, in an order, in sizes and types that are
/// drawn.
[[nodiscard]] std::vector<ConvolutionCase> model_convolutions(std::mt19937_64& random);

/// Cases in which each pair of values of two parameters comes together at least once: kernel,
/// stride, padding, dilation, groups, channels 1 to 40, batch 1 to 9, sizes, layouts, threads,
/// types.
[[nodiscard]] std::vector<ConvolutionCase> pairwise_convolutions(std::mt19937_64& random);

/// The instruction sets that this CPU has and that oneDNN can be held to, as its variable
/// ONEDNN_MAX_CPU_ISA names them; "DEFAULT" holds it to none.
[[nodiscard]] std::vector<std::string> instruction_sets();

/// run_convolution() with oneDNN and LibTorch held to one of them, in a process that has not yet
/// used either. bfloat16 is left out where they are held below the AVX-512 that this CPU has:
/// LibTorch asks the CPU alone whether oneDNN can compute with it, which then refuses.
[[nodiscard]] std::string run_held_to(const std::string& instruction_set, const ConvolutionCase& c,
                                      bool safe);

}  // namespace lockstep::testing
