#pragma once

#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace lockstep::testing {

/// File systems that lack something, for one thread: there is no way back.

inline void filter_calls(std::vector<sock_filter> program) {
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    throw std::runtime_error("seccomp failed");
  }
}

/// From now on these system calls of the calling thread fail with `error`.
inline void refuse_calls(const std::vector<int>& numbers, int error) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int number : numbers) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  filter_calls(program);
}

/// As a file system that can't exchange two names, nor keep one that is there.
inline void refuse_exchange() {
  refuse_calls({SYS_renameat2}, EINVAL);
}

/// As a file system that has no files without names (O_TMPFILE).
inline void refuse_nameless_files() {
  constexpr auto kNameless = static_cast<unsigned>(O_TMPFILE & ~O_DIRECTORY);
  filter_calls({
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNameless, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  });
}

/// As a file system without links of any kind, nor files without names, which get one by a link:
/// FAT, SMB, an object store.
inline void refuse_links() {
  refuse_nameless_files();
  refuse_calls({SYS_symlinkat, SYS_linkat,
#ifdef SYS_symlink
                SYS_symlink, SYS_link
#endif
               },
               EPERM);
}

}  // namespace lockstep::testing
