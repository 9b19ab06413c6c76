#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

namespace lockstep::training {

/// The shape of a convolution, as at::convolution takes it. `images` are the sizes of what the
/// kernel slides over: the input, or of a transposed convolution the output.
struct ConvolutionShape {
  c10::IntArrayRef images;
  c10::IntArrayRef weight;  // (out, in / groups, kernel…); transposed: (in, out / groups, kernel…)
  c10::IntArrayRef stride;
  c10::IntArrayRef padding;
  c10::IntArrayRef dilation;
  std::int64_t groups;
  bool transposed;
  c10::ScalarType type;
};

/// Whether oneDNN, with which LibTorch computes on CPUs, may fail in this convolution or, with
/// `backward`, in its gradients. In bfloat16 with LibTorch 1.13, on CPUs with AVX-512, these may:
/// transposed ones are computed as if they were not, gradients are wrong of dilated ones and of
/// 1x1 ones of fewer than 16 channels, and with AMX those whose padding is a kernel's span or more
/// write behind their results. With each version strided ones in channels_last may:
///
///   - 1x1, fewer than 16 channels: up to 3.12 the backward writes past its scratch memory on CPUs
///     with AVX2 or AVX-512 (github.com/uxlfoundation/oneDNN/issues/6035). The heap is damaged, or
///     gradients of the weight are wrong without a word.
///   - 1x1 with padding: it reads outside of small images.
///   - A result of one column: with AVX-512 gradients of weights that meet nothing but padding are
///     what memory held before (bfloat16), and with AMX results are wrong (bfloat16; float32
///     seldom).
///
/// Beside these, results and gradients are wrong where a dimension of size one has another stride
/// than a layout gives it, as slices leave it: each convolution gets such tensors with the
/// layout's.
[[nodiscard]] bool is_unsafe(const ConvolutionShape& shape, bool backward);

/// A program that calls this anywhere computes these convolutions, from its start on, in another
/// way on CPUs, whatever the layout and the CPU, and also for modules of its own: pixels that the
/// kernel meets are copied, and those need no stride, or none of columns; where bfloat16 is unsafe
/// it is converted to float32, and the result back. Trainers and models call it; it does nothing
/// when called. Results' bits may differ from those of LibTorch alone.
void keep_convolutions_safe();

}  // namespace lockstep::training
