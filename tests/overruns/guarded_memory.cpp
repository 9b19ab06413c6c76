#include "tests/overruns/guarded_memory.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
// The allocator that this program's own stands on.
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* block);
}

namespace lockstep::testing {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = std::size_t{1} << 24;  // 64 GiB of addresses
constexpr std::size_t kSmall = 1024;  // smaller blocks without alignment are C++ objects
constexpr std::uint32_t kFill = 0xFFA5FFA5;
constexpr unsigned kLongest = 120;  // seconds: others may have the processors

struct Block {
  std::size_t size;    // as asked for
  std::size_t pages;   // 0: no block begins here
  std::size_t offset;  // from the first page's begin to the first byte
};

// What a child tells its parent.
struct Told {
  std::atomic<std::size_t> next;  // the run that goes on, or count
  char text[512];                 // what was found in it
};

char* arena = nullptr;
Block* blocks = nullptr;           // by their first page
std::atomic<std::size_t> used{1};  // pages of the arena
std::atomic<bool> guarding{false};
Told* told = nullptr;

bool is_ours(const void* address) {
  const char* const byte = static_cast<const char*>(address);
  return arena != nullptr && byte >= arena && byte < arena + kPages * kPage;
}

std::size_t page_of(const void* address) {
  return static_cast<std::size_t>(static_cast<const char*>(address) - arena) / kPage;
}

unsigned char fill_at(std::size_t i) {
  return static_cast<unsigned char>(kFill >> 8 * (i % sizeof kFill));
}

void fill(char* begin, std::size_t bytes) {
  auto* const words = reinterpret_cast<std::uint32_t*>(begin);
  std::fill_n(words, bytes / sizeof kFill, kFill);
}

// Only the first finding of a run counts. The process ends at once: its memory is damaged.
template <typename... Args>
[[noreturn]] void found(const char* format, Args... args) {
  if (told != nullptr) std::snprintf(told->text, sizeof told->text, format, args...);
  _exit(1);
}

void* allocate(std::size_t size, std::size_t alignment) {
  const std::size_t rounded = (std::max<std::size_t>(size, 1) + alignment - 1) & ~(alignment - 1);
  const std::size_t pages = (rounded + kPage - 1) / kPage;
  const std::size_t first = used.fetch_add(pages + 1);
  if (first + pages >= kPages) found("the test has used up its addresses");
  char* const begin = arena + first * kPage;
  if (mprotect(begin, pages * kPage, PROT_READ | PROT_WRITE) != 0) {
    found("the test cannot get %zu pages of memory", pages);
  }
  fill(begin, pages * kPage);
  const std::size_t offset = pages * kPage - rounded;
  blocks[first] = {size, pages, offset};
  return begin + offset;
}

void check_filled(const Block& block, const char* begin, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i) {
    if (static_cast<unsigned char>(begin[i]) == fill_at(i)) continue;
    if (i < block.offset) {
      found("wrote %zu bytes before a block of %zu bytes", block.offset - i, block.size);
    }
    found("wrote %zu bytes behind the end of a block of %zu bytes", i - block.offset - block.size,
          block.size);
  }
}

void release(void* address) {
  const std::size_t first = page_of(address);
  const Block block = blocks[first];
  char* const begin = arena + first * kPage;
  if (block.pages == 0 || begin + block.offset != address) {
    found("freed an address where no block begins");
  }
  check_filled(block, begin, 0, block.offset);
  check_filled(block, begin, block.offset + block.size, block.pages * kPage);
  madvise(begin, block.pages * kPage, MADV_DONTNEED);
  mprotect(begin, block.pages * kPage, PROT_NONE);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (signal == SIGALRM) found("hangs");
  const char* const name = strsignal(signal);
  if (signal != SIGSEGV || !is_ours(info->si_addr)) found("%s", name);
#ifdef __x86_64__
  const bool is_write = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
  const char* const verb = is_write ? "writes" : "reads";
#else
  const char* const verb = "touches";
  static_cast<void>(context);
#endif
  std::size_t first = page_of(info->si_addr);
  while (first > 0 && blocks[first].pages == 0) --first;
  const Block& block = blocks[first];
  const char* const end = arena + first * kPage + block.offset + block.size;
  const char* const address = static_cast<const char*>(info->si_addr);
  if (address < end) found("%s a freed block of %zu bytes", verb, block.size);
  found("%s %zu bytes behind the end of a block of %zu bytes", verb,
        static_cast<std::size_t>(address - end), block.size);
}

void catch_faults() {
  static char stack[64 << 10];
  const stack_t alternate{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) {
    sigaction(signal, &action, nullptr);
  }
}

void* reserve(std::size_t bytes, int protection, int sharing) {
  void* const memory =
      mmap(nullptr, bytes, protection, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no addresses for guarded memory");
  return memory;
}

// The child: runs from `first` on, and exits.
[[noreturn]] void run_from(std::size_t first, std::size_t end,
                           const std::function<std::string(std::size_t)>& run) {
  blocks =
      static_cast<Block*>(reserve(kPages * sizeof(Block), PROT_READ | PROT_WRITE, MAP_PRIVATE));
  arena = static_cast<char*>(reserve(kPages * kPage, PROT_NONE, MAP_PRIVATE));
  catch_faults();
  for (std::size_t i = first; i < end; ++i) {
    alarm(kLongest);
    std::string wrong;
    try {
      guard_memory(true);
      wrong = run(i);
      guard_memory(false);
    } catch (const std::exception& error) {
      wrong = error.what();
      wrong = wrong.substr(0, wrong.find('\n'));
    }
    if (!wrong.empty()) found("%s", wrong.c_str());
    told->next = i + 1;
  }
  _exit(0);
}

}  // namespace

void guard_memory(bool on) {
  guarding = on;
}

void run_guarded(std::size_t count, const std::function<std::string(std::size_t)>& run,
                 const std::function<bool(std::size_t, const std::string&)>& report) {
  constexpr std::size_t kRunsAChild = 100;
  told = static_cast<Told*>(reserve(sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED));
  for (std::size_t first = 0; first < count;) {
    const std::size_t end = std::min(count, first + kRunsAChild);
    told->next = first;
    told->text[0] = '\0';
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process for guarded runs");
    if (child == 0) run_from(first, end, run);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const std::size_t next = told->next;
    for (; first < next; ++first) {
      if (!report(first, "")) return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    std::string text = told->text;
    if (text.empty()) {
      text = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ends the process";
    }
    if (!report(first, text)) return;
    ++first;
  }
}

}  // namespace lockstep::testing

// The program's allocator, in place of the C library's.

namespace {
using namespace lockstep::testing;  // NOLINT(google-build-using-namespace)

bool is_to_guard(std::size_t size, std::size_t alignment) {
  return guarding && alignment <= kPage && (size >= kSmall || alignment > sizeof(void*) * 2);
}
}  // namespace

extern "C" {

void* malloc(std::size_t size) {
  return is_to_guard(size, 1) ? allocate(size, 16) : __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes) || !is_to_guard(bytes, 1)) {
    return __libc_calloc(count, size);
  }
  return std::memset(allocate(bytes, 16), 0, bytes);
}

void* memalign(std::size_t alignment, std::size_t size) {
  return is_to_guard(size, alignment) ? allocate(size, alignment)
                                      : __libc_memalign(alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return memalign(alignment, size);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

void free(void* block) {
  if (!is_ours(block)) return __libc_free(block);
  const int error = errno;
  release(block);
  errno = error;
}

void* realloc(void* block, std::size_t size) {
  if (!is_ours(block)) return __libc_realloc(block, size);
  void* const moved = malloc(size);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(size, blocks[page_of(block)].size));
  free(block);
  return moved;
}

void* reallocarray(void* block, std::size_t count, std::size_t size) {
  return realloc(block, count * size);
}
}
