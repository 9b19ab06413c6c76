#include "framework/telemetry/digest.h"

#include <array>

#include <openssl/evp.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

void check_done(int status) {
  if (status != 1) throw Error("parameters_sha256: OpenSSL can't compute SHA-256");
}

}  // namespace

ParametersDigest::ParametersDigest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  check_done(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void ParametersDigest::add(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) throw ValueError(str("parameters_sha256: '", name, "' is undefined"));
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  check_done(EVP_DigestUpdate(context_.get(), bytes.data_ptr(), bytes.nbytes()));
}

std::string ParametersDigest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check_done(EVP_DigestFinal_ex(context_.get(), digest.data(), &size));

  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += hexadecimal(digest[i], 2);
  return text;
}

std::string parameters_sha256(const std::map<std::string, at::Tensor>& named) {
  ParametersDigest digest;
  for (const auto& [name, tensor] : named) digest.add(name, tensor);
  return digest.finish();
}

}  // namespace lockstep
