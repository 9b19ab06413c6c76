#include "framework/comm/network/secret.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"
#include "framework/base/user_folder.h"
#include "framework/storage/file.h"

namespace fs = std::filesystem;

namespace lockstep::comm {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::size_t kFileBytes = 2 * Secret::kBytes + 1;  // with the newline

[[noreturn]] void refuse(const fs::path& file, const std::string& why) {
  throw DataError(str("the secret ", file.string(), " ", why));
}

bool is_own_group(::gid_t group) {
  std::vector<::gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(0, count)));
  return group == ::getegid() || std::ranges::count(groups, group) > 0;
}

// True for a volume of Kubernetes, whose kubelet leaves this link there.
bool is_in_secrets_volume(const fs::path& file) {
  std::error_code error;
  return fs::is_symlink(file.parent_path() / "..data", error);
}

// Administrators of the system write root's files, and the kubelet writes a Secret's volume.
void check_readers(const fs::path& file, const struct stat& status) {
  const bool is_roots = status.st_uid == 0;
  if (!is_roots && status.st_uid != ::geteuid()) refuse(file, "belongs to another user");
  const ::mode_t mode = status.st_mode & 0777;
  if ((mode & 077) == 0) return;
  if (is_roots && mode == 0440 && is_own_group(status.st_gid)) return;
  refuse(file, str("may be read by others: ",
                   is_in_secrets_volume(file)
                       ? "give the Secret's volume `defaultMode: 0400` in the manifest"
                       : "chmod 600 it"));
}

// Makes each folder that is missing, for this user alone.
void make_folders(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error)) return;
  make_folders(folder.parent_path());
  require_done<DataError>(::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST, folder.string(),
                          " can't be made");
}

}  // namespace

bool is_same(const Mac& a, const Mac& b) noexcept {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_randomly(Bytes bytes) {
  const int count = static_cast<int>(bytes.size());
  require<Error>(::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), count) == 1,
                 "the system has no random bytes");
}

Secret::~Secret() {
  ::OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

Secret Secret::read(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0)
    refuse(file, str("can't be read: ", text_of_errno(errno)));
  if (!S_ISREG(status.st_mode)) refuse(file, "is no regular file");
  check_readers(file, status);
  std::string text;
  try {
    const File opened(file, O_RDONLY);
    const std::size_t size = opened.size();
    if (size == kFileBytes || size == kFileBytes - 1) text.resize(size);
    opened.read(0, std::as_writable_bytes(std::span(text)));
  } catch (const Error& error) {
    throw DataError(
        str(error.what(), !is_in_secrets_volume(file)
                              ? ""
                              : ": a pod whose user is not root needs an fsGroup in its "
                                "securityContext"));
  }
  std::array<std::byte, kBytes> bytes{};
  bool is_right = !text.empty() && (text.size() < kFileBytes || text.back() == '\n');
  for (std::size_t i = 0; is_right && i < kBytes; ++i) {
    const std::size_t high = kDigits.find(text[2 * i]);
    const std::size_t low = kDigits.find(text[2 * i + 1]);
    is_right = high < kDigits.size() && low < kDigits.size();
    if (is_right) bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  ::OPENSSL_cleanse(text.data(), text.size());
  if (!is_right) refuse(file, str("has not ", 2 * kBytes, " hexadecimal digits and a newline"));
  return Secret(bytes);
}

Secret Secret::read_or_make(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error))) {
    make_folders(file.parent_path());
    std::array<std::byte, kBytes> bytes{};
    fill_randomly(bytes);
    std::string text;
    for (const std::byte byte : bytes) text += hexadecimal(std::to_integer<std::uint64_t>(byte), 2);
    NewFile made(file, 0600);
    made.write(text + '\n');
    (void)made.publish();  // or another process has made it meanwhile
  }
  return read(file);
}

fs::path Secret::default_file() {
  const fs::path folder = user_folder("XDG_CONFIG_HOME", ".config");
  require<DataError>(!folder.empty(),
                     "neither XDG_CONFIG_HOME nor HOME says where the user's secret is: "
                     "--secret-file FILE or LOCKSTEP_SECRET_FILE does");
  return folder / "secret";
}

Secret Secret::of_job(ConstBytes job) const {
  constexpr std::string_view kLabel = "job      ";
  return Secret(mac({std::as_bytes(std::span(kLabel)), job}));
}

Mac Secret::mac(std::initializer_list<ConstBytes> parts) const {
  std::string text;
  for (const ConstBytes part : parts) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  Mac mac{};
  unsigned size = 0;
  const auto* const made = ::HMAC(::EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
                                  reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                  reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (made == nullptr || size != mac.size()) throw Error("libcrypto can't make an HMAC");
  return mac;
}

}  // namespace lockstep::comm
