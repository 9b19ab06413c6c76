#pragma once

#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace lockstep {

/// Computes parameters_sha256() of tensors that are not all in memory at one time.
class ParametersDigest {
 public:
  ParametersDigest();

  /// Adds the next tensor, in the order of names. Throws ValueError for an undefined tensor.
  void add(const std::string& name, const at::Tensor& tensor);
  /// The digest of all. Nothing can be added after it.
  [[nodiscard]] std::string finish();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

/// The SHA-256, as 64 lowercase hexadecimal digits, of the raw bytes of all tensors, each in
/// row-major order, end to end in the order of their names. Names, shapes and dtypes do not count:
/// the digest compares runs of one model. Throws ValueError for an undefined tensor.
[[nodiscard]] std::string parameters_sha256(const std::map<std::string, at::Tensor>& named);

}  // namespace lockstep
