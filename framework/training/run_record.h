#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "framework/base/non_copyable.h"
#include "framework/base/random.h"
#include "framework/base/scoped_value.h"

namespace lockstep::training {

/// What the first run of a block tells its second one, which must do the same (recompute.h).
struct RunRecord {
  std::vector<Key> keys;  // of its KeyedModules, in the order of their calls
  bool are_samples_uncounted = false;
};

/// While one lives, it is a run of a block that this thread does twice. Runs nest.
class RecordedRun : private NonCopyable {
 public:
  enum class Which { first, second };
  /// The first run fills `record`, the second one follows it.
  RecordedRun(RunRecord& record, Which which);

  /// Throws Error unless the second run has drawn as many keys as the first one.
  void check_end() const;

  /// The next key of a KeyedModule: fresh(), or in a second run that of the first one. Error if it
  /// had no more.
  [[nodiscard]] static Key next_key(const std::function<Key()>& fresh);
  /// Whether one lives in this thread.
  [[nodiscard]] static bool is_here() noexcept;
  /// Whether this thread runs what has run before.
  [[nodiscard]] static bool is_repeated() noexcept;

 private:
  RunRecord& record_;
  Which which_;
  std::size_t used_ = 0;  // keys, in a second run
  RecordedRun* outer_;
  ScopedValue<RecordedRun*> here_;
  ScopedValue<bool> uncounted_;
};

}  // namespace lockstep::training
