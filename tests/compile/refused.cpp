// Mistakes, one a CASE. check.cmake compiles each of them alone: it must be refused with the text
// behind its number, if there is one, and in few lines. Without a CASE, what is meant compiles.

#include "tests/compile/refused.h"

#if CASE == 17  // train_main() is in the CMake target lockstep::trainer: link that
#include "trainers/train_main.h"
#endif

using namespace lockstep;

struct Unnamed {
  Tensor weight;
};

const Mesh mesh({{"i", 2}});

Tensor same(const Tensor& x) {
  return x;
}

void refused(const Tensor& x, const std::map<std::string, Tensor>& parameters) {
  const auto takes_unnamed = [](const Unnamed& unnamed) { return unnamed.weight; };
#if CASE == 1  // this class is neither a tree nor static: name its members with LOCKSTEP_TREE(
  auto y = pmap(takes_unnamed)(Unnamed{x});
#elif CASE == 2   // the mapped function cannot be called with these arguments: there are too few
  auto y = pmap(same)(x, x);
#elif CASE == 3   // a mapped function takes its arguments by value or const reference: a Tensor&
  auto y = vmap([](const Tensor&, Tensor& b) { return b; })(x, x);
#elif CASE == 4   // a mapped function returns a tree of tensors or nothing: a struct needs
  auto y = shard_map([](const Tensor& a) { return Unnamed{a}; }, mesh, P("i"), P())(x);
#elif CASE == 5   // a collective needs the name of an axis: psum(x, "i")
  auto y = psum(x);
#elif CASE == 6   // axis_index needs the name of an axis
  auto y = axis_index();
#elif CASE == 7   // a differentiated function takes its arguments by value or const reference
  auto y = grad([](Tensor& w) { return w; })(x);
#elif CASE == 8   // argnums<0> differentiates by the first argument, argnums<0, 2> by the first and
                  // the third
  auto [a, b] = grad(same, argnums<0, 1>)(x);
#elif CASE == 9   // grad differentiates by a Tensor or a tree of them: make a number a Tensor
  auto y = grad([](const Tensor& a, int n) { return a * n; }, argnums<1>)(x, 3);
#elif CASE == 10  // P has an entry for each dimension: the name of an axis, several as
  auto y = shard_map(same, mesh, {P(0, "i")}, P())(x);
#elif CASE == 11  // P has an entry for each dimension: the name of an axis, several as
  auto y = shard_map(same, mesh, P("i"), P(nullptr, "i"))(x);
#elif CASE == 12  //
  auto y = axis_index("i").item<int>();
#elif CASE == 13  //
  auto y = pmap([](const std::map<std::string, Tensor>& p) { return p["w"]; })(parameters);
#elif CASE == 14  //
  auto specs = {{P("i")}};
  auto y = shard_map(same, mesh, specs, P())(x);
#elif CASE == 15  // grad differentiates by a Tensor or a tree of them: make a number a Tensor, name
  auto y = grad(takes_unnamed)(Unnamed{x});
#elif CASE == 16  // this class is neither a tree nor static: name its members with LOCKSTEP_TREE(
  auto y = psum(Unnamed{x}, "i");
#else
  auto y = pmap(takes_unnamed)(static_argument(Unnamed{x}));
  y = pmap(same)(x);
  y = vmap([](const Tensor&, Tensor b) { return b; })(x, x);
  y = psum(x, "i") * axis_index("i");
  y = grad([](Tensor w) { return w; })(x);
  auto [a, b] = grad([](const Tensor& v, const Tensor& w) { return v * w; }, argnums<0, 1>)(x, x);
  y = pmap([](const auto& p) { return p.at("w"); })(parameters);
  auto specs = {P(none, "i")};
  y = shard_map(same, mesh, specs, P())(x);
#endif
}
