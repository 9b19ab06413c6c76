#pragma once

#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace lockstep {

/// parameters_sha256() of tensors that are not there at one time.
class ParametersDigest {
 public:
  ParametersDigest();

  /// The next one, in the order of names. Throws ValueError for an undefined tensor.
  void add(const std::string& name, const at::Tensor& tensor);
  /// The digest of all. Nothing can be added after it.
  [[nodiscard]] std::string finish();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

/// The SHA-256, as 64 lowercase hexadecimal digits, of the raw bytes of all tensors, each in
/// row-major order, one after another in the order of their names. Names, shapes and dtypes are not
/// part of it: it compares runs of one model. Throws ValueError for an undefined tensor.
[[nodiscard]] std::string parameters_sha256(const std::map<std::string, at::Tensor>& named);

}  // namespace lockstep
