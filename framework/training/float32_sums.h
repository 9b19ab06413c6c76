#pragma once

namespace lockstep::training {

/// On CPUs LibTorch adds up some bfloat16 and float16 numbers in these types: a sum of ones stops
/// at 256 or 2048. Errors found, in bfloat16's roundings of the exact result, mostly of 4,096
/// terms:
///
///   operators                                                1.13    2.6    2.14, 2.15
///   products of up to 4,096 multiplications (mm, bmm, …)      224      1             1
///   any product or convolution, without AVX-512               252      4             4
///   backward of LayerNorm (bias), Embedding, indexing         224    224           224
///   backward of overlapping pools, resizing, padding          187    223           223
///   backward of attention, 512 positions                        -     13            13
///
/// A program that calls this anywhere computes these in float32, from its start on, and rounds each
/// result once, also in modules of its own: by operator, type and, of products, shape, never by
/// version. Larger products stay oneDNN's, which adds in float32. Where LibTorch leaves it no
/// bfloat16 (no AVX-512, or it is off), all products and convolutions take float32. Statistics that
/// native_layer_norm and its like return are float32. keep_convolutions_safe() calls this.
void keep_sums_in_float32();

/// Returns true once one has been computed so in this process. Any thread.
[[nodiscard]] bool have_summed_in_float32();

/// Returns true if LibTorch leaves bfloat16 to oneDNN on this CPU.
[[nodiscard]] bool has_bfloat16_kernels();

}  // namespace lockstep::training
