// Each function is refused by one static_assert, and by nothing else: check.cmake compiles this
// file, and has the messages. What compiles beside them shows that it is they that are refused.

#include "framework/lockstep.h"

using lockstep::P;
using lockstep::Tensor;

namespace {

struct Unnamed {
  Tensor weight;
};

Tensor same(const Tensor& x) {
  return x;
}

}  // namespace

void refused(const Tensor& x) {
  const auto takes_unnamed = [](const Unnamed& unnamed) { return unnamed.weight; };
  (void)lockstep::pmap(takes_unnamed)(Unnamed{x});  // a class of which nothing is said
  (void)lockstep::pmap(same)(x, x);                 // too many arguments
  (void)lockstep::vmap([](const Tensor&, Tensor& b) { return b; })(x,
                                                                   x);  // a reference that changes
  (void)lockstep::shard_map([](const Tensor&) { return 3; }, lockstep::Mesh({{"i", 2}}), P("i"),
                            P())(x);  // a result that is no tree
  (void)lockstep::psum(x);            // no axis
  (void)lockstep::axis_index();
  (void)lockstep::grad([](Tensor& w) { return w; })(x);
}

void compiles(const Tensor& x) {
  const auto takes_unnamed = [](const Unnamed& unnamed) { return unnamed.weight; };
  (void)lockstep::pmap(takes_unnamed)(lockstep::static_argument(Unnamed{x}));
  (void)lockstep::pmap(same)(x);
  (void)lockstep::vmap([](const Tensor&, Tensor b) { return b; })(x, x);
  (void)lockstep::psum(x, "i");
  (void)lockstep::axis_index("i");
  (void)lockstep::grad(same)(x);
  lockstep::set_quiet(true);
}
