// Preloaded into a program, gives it a second thread: launch() can't fork it then.

#include <pthread.h>
#include <unistd.h>

namespace {

void* wait_forever(void*) {
  for (;;) ::pause();
}

[[gnu::constructor]] void start() {
  pthread_t thread{};
  (void)::pthread_create(&thread, nullptr, wait_forever, nullptr);
}

}  // namespace
