#pragma once

namespace lockstep {

/// Whether gradients are reduced in the midst of the backward: `automatic` does so over a network,
/// where bytes take time but no work; in shared memory a reduction is work.
enum class Overlap { automatic, on, off };

/// In what type gradients travel between replicas: bf16 sends float32 ones as bfloat16, and adds
/// what each replica's rounding leaves out to its next gradient (error feedback).
enum class Compression { none, bf16 };

/// What each step makes of a module's buffers that replicas have changed apart, such as the running
/// statistics of BatchNorm: floating ones become their mean or replica 0's. All others (numbers of
/// batches, masks) are replica 0's.
enum class Buffers { mean, first };

/// What a draw from LibTorch's process-wide generator in training is, which lets the same bits come
/// no longer from threads, processes and fewer workers: a warning, said once, or a ValueError.
enum class Randomness { warn, strict };

}  // namespace lockstep
