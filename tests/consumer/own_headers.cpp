// A project's own headers, of names that Lockstep's have in its tree, are found wherever they are
// searched, and none of them where Lockstep includes its own.

#define OWN_PROJECT
#include "base/errors.h"
#include "framework/lockstep.h"
#include "keys/key.h"
#include "models/model.h"
#include "trainers/train_main.h"
static_assert(own_base_errors_h + own_framework_lockstep_h + own_keys_key_h + own_models_model_h +
                  own_trainers_train_main_h ==
              5);
#undef OWN_PROJECT

#include <lockstep/framework/base/errors.h>

void fail() {
  throw lockstep::ValueError("the user's");
}
