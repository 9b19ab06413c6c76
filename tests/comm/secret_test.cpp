#include "framework/comm/network/secret.h"

#include <filesystem>
#include <span>
#include <string>

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;
using comm::Mac;
using comm::Secret;

namespace {

unsigned mode_of(const fs::path& path) {
  return static_cast<unsigned>(fs::status(path).permissions());
}

std::string hex(const Mac& mac) {
  std::string text;
  for (const std::byte byte : mac) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    text += digits;
  }
  return text;
}

ConstBytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("a secret's Mac is HMAC-SHA-256 of all parts") {
  // This is RFC 4231, test case 1, whose key of 20 bytes counts as filled up with zeros.
  std::array<std::byte, Secret::kBytes> key{};
  std::fill_n(key.begin(), 20, std::byte{0x0b});
  const Secret secret(key);
  const Mac mac = secret.mac({bytes_of("Hi "), bytes_of("There")});
  CHECK(hex(mac) == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  Mac other = mac;
  CHECK(comm::is_same(mac, other));
  other[31] ^= std::byte{1};
  CHECK_FALSE(comm::is_same(mac, other));
}

TEST_CASE("a user's secret is made once, for nobody else") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "config" / "lockstep" / "secret";
  CHECK_THAT(message_of<DataError>([&] { (void)Secret::read(file); }),
             ContainsSubstring(file.string() + " can't be read: No such file"));
  const Secret made = Secret::read_or_make(file);
  CHECK(mode_of(file) == 0600);
  CHECK(mode_of(file.parent_path()) == 0700);
  CHECK(read_text(file).size() == 65);
  const std::string text = "text";
  CHECK(Secret::read_or_make(file).mac({bytes_of(text)}) == made.mac({bytes_of(text)}));
  CHECK(Secret::read(file).mac({bytes_of(text)}) == made.mac({bytes_of(text)}));
  CHECK(entries(file.parent_path()) == 1);
}

TEST_CASE("a file that is no secret, or that others may read, is refused with the reason") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "secret";
  const std::string right = std::string(64, 'a') + "\n";
  const auto refusal = [&](const std::string& text, ::mode_t mode) {
    write_text(file, text);
    REQUIRE(::chmod(file.c_str(), mode) == 0);
    return message_of<DataError>([&] { (void)Secret::read_or_make(file); });
  };
  for (const std::string& text : {std::string(), right.substr(1), right + "a", std::string(65, 'a'),
                                  std::string(64, 'A') + "\n", std::string(63, 'a') + "g\n",
                                  std::string(63, 'a') + "\n", right + "\n"}) {
    INFO(text);
    CHECK_THAT(refusal(text, 0600), ContainsSubstring("hexadecimal digits"));
  }
  CHECK_THAT(refusal(right, 0640), ContainsSubstring("chmod 600"));
  CHECK_THAT(refusal(right, 0604), ContainsSubstring("chmod 600"));
  fs::remove(file);
  fs::create_directory(file);
  CHECK_THAT(message_of<DataError>([&] { (void)Secret::read_or_make(file); }),
             ContainsSubstring("is no regular file"));
}

namespace {

// Makes a volume as the kubelet does for a Secret: `secret` is a link to ..data/secret, and ..data
// is one to a folder with a date.
fs::path secrets_volume(const TemporaryFolder& folder) {
  const fs::path volume = folder.path() / "volume";
  fs::create_directories(volume / "..2026_01_01");
  fs::create_directory_symlink("..2026_01_01", volume / "..data");
  fs::create_symlink("..data/secret", volume / "secret");
  write_text(volume / "..data/secret", std::string(64, 'a'));  // by --from-literal, without newline
  return volume / "secret";
}

// While it lives, this process is a user with a group, and no longer root.
class AsUser {
 public:
  AsUser(::uid_t user, ::gid_t group) {
    if (::setgroups(1, &group) != 0 || ::seteuid(user) != 0) throw Error("can't be another user");
  }
  ~AsUser() {
    (void)!::seteuid(0);
    (void)!::setgroups(0, nullptr);
  }
};

// While it lives, the folder is the working one.
class InFolder {
 public:
  explicit InFolder(const fs::path& folder) { fs::current_path(folder); }
  ~InFolder() { fs::current_path(before_); }

 private:
  fs::path before_ = fs::current_path();
};

}  // namespace

TEST_CASE("a file of a Kubernetes Secret is a secret if nobody else may read it") {
  const TemporaryFolder folder;
  const fs::path file = secrets_volume(folder);
  const auto read_with = [&](::mode_t mode) {
    REQUIRE(::chmod(file.c_str(), mode) == 0);
    return message_of<DataError>([&] { (void)Secret::read(file); });
  };
  CHECK(read_with(0400) == "no error");
  for (const ::mode_t mode : {0644U, 0444U, 0640U, 0460U}) {
    INFO(mode);
    CHECK_THAT(read_with(mode), ContainsSubstring("give the Secret's volume `defaultMode: 0400`"));
  }
  if (::geteuid() != 0) return;  // the kubelet's files are root's
  constexpr ::uid_t kUser = 12345;
  constexpr ::gid_t kFsGroup = 23456;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chown(file.c_str(), 0, kFsGroup) == 0);
  CHECK_THAT(read_with(0440), ContainsSubstring("may be read by others"));  // we don't know by whom
  REQUIRE(::chmod(file.c_str(), 0440) == 0);
  // The way to the folder may be closed to other users.
  const InFolder reading(folder.path());
  const auto read_as = [&](::gid_t group) {
    const AsUser user(kUser, group);
    return message_of<DataError>([&] { (void)Secret::read("volume/secret"); });
  };
  CHECK(read_as(kFsGroup) == "no error");
  CHECK_THAT(read_as(kFsGroup + 1), ContainsSubstring("may be read by others"));
  REQUIRE(::chmod(file.c_str(), 0400) == 0);
  CHECK_THAT(read_as(kFsGroup),
             ContainsSubstring("Permission denied") && ContainsSubstring("needs an fsGroup"));
  REQUIRE(::chown(file.c_str(), kUser + 1, kFsGroup) == 0);
  CHECK_THAT(read_as(kFsGroup), ContainsSubstring("belongs to another user"));
}
