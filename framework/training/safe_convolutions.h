#pragma once

#include <cstdint>

#include <c10/util/ArrayRef.h>

namespace lockstep::training {

/// Whether oneDNN may write past its scratch memory in the backward of a convolution with a weight
/// of `weight` sizes (out, in / groups, kernel…; transposed: (in, out / groups, kernel…)). Up to
/// 3.12 it does so on CPUs with AVX2 or AVX-512, where images are channels_last: for a strided 1x1
/// convolution of fewer than 16 channels it places rows of images as if they had as many channels
/// as a vector register has floats, in memory for the channels that there are
/// (github.com/uxlfoundation/oneDNN/issues/6035). The heap is damaged, or gradients of the weight
/// are wrong without a word. tests/overruns/search.cpp looks for more such shapes.
[[nodiscard]] bool may_overrun(c10::IntArrayRef weight, c10::IntArrayRef stride,
                               c10::IntArrayRef padding, std::int64_t groups);

/// A program that calls this anywhere has, from its start on, another backward for these shapes on
/// CPUs, whatever the layout and the CPU, and also for modules of its own: every stride-th pixel is
/// copied, and the convolution of those has stride 1. Trainers and models call it; it does nothing
/// when called. Results' bits for these shapes may differ from those of LibTorch alone, and of
/// Lockstep before it had this. A run that an older version began goes on with the new ones, and
/// `train` says so.
void keep_convolutions_safe();

/// Whether that backward has run in this process. Any thread.
[[nodiscard]] bool have_been_made_safe();

}  // namespace lockstep::training
