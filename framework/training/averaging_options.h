#pragma once

#include "framework/keys/key.h"

namespace lockstep {

/// Whether gradients are reduced while the backward runs. `automatic` does so over a network, where
/// bytes take time but no work; in shared memory a reduction is work.
enum class Overlap { automatic, on, off };

/// What it takes to average gradients over a network: `call_s` seconds a call, and the time of its
/// bytes. As it stands here, what is assumed before the links are known.
struct LinkCost {
  double call_s = 5e-4;
  double bytes_per_s = 1e8;
};

/// What an option called bucket_mb may be: how many MB of gradients travel together. Without a
/// value bucket_sizes() chooses (training/bucket_sizes.h).
inline const keys::Rule<double> kBucketMbRule{"greater than 0 and at most 1000000",
                                              [](double mb) { return mb > 0 && mb <= 1e6; }};

/// The type in which gradients travel between replicas. bf16 sends float32 gradients as bfloat16,
/// and adds each replica's rounding error to its next gradient (error feedback).
enum class Compression { none, bf16 };

/// What each step does to buffers that differ between replicas, such as the running statistics of
/// torch::nn::BatchNorm. Floating ones become their mean, or replica 0's. All others (numbers of
/// batches, masks) become replica 0's.
enum class Buffers { mean, first };

/// What happens if training draws from LibTorch's process-wide generator: a warning, once, or a
/// ValueError. After such a draw threads, processes and fewer workers may give other bits.
enum class Randomness { warn, strict };

}  // namespace lockstep
