#pragma once

namespace lockstep::training {

/// On CPUs LibTorch adds up some bfloat16 and float16 numbers in these types: a sum of ones stops
/// at 256 (bfloat16) or 2048 (float16). Largest errors found, of 4,096 positive terms where nothing
/// else is said, in roundings of the exact result (0.4 % in bfloat16):
///
///   operators                                               1.13   2.6   2.14   2.15
///   products of up to 4,096 multiplications (mm, bmm, …)     224     1      1      1
///   any product or convolution, without AVX-512              252     4      4      4
///   backward of LayerNorm (bias), Embedding, indexing        224   224    224    224
///   backward of overlapping pools, resizing, padding         187   223    223    223
///   backward of attention, 512 positions                       -    13     13     13
///   vector norms                                             255     1      1      1
///
/// A program that calls this anywhere computes these operators, from its start on, in float32 and
/// rounds each result once, also for modules of its own: by operator, type and, of products, by
/// shape, never by LibTorch's version. Larger products stay oneDNN's, which adds in float32. Where
/// it is off, or the CPU has no AVX-512, LibTorch leaves it no bfloat16: then all products and
/// convolutions (safe_convolutions.h) take float32. Statistics that native_layer_norm and the like
/// return are float32. Other types keep their bits. keep_convolutions_safe() calls this.
void keep_sums_in_float32();

/// Whether one has been computed so in this process. Any thread.
[[nodiscard]] bool have_summed_in_float32();

/// Whether LibTorch leaves bfloat16 to oneDNN on this CPU.
[[nodiscard]] bool has_bfloat16_kernels();

}  // namespace lockstep::training
