// Programs whose output tests/outputs.py keeps: programs NAME. They use public names alone, so that
// they compile with earlier trees, too.

#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include "framework/lockstep.h"

namespace {

using at::Tensor;
using namespace lockstep;

void print(const std::string& name, const Tensor& values) {
  std::string line = name + ":";
  const Tensor flat = values.detach().to(at::kDouble).flatten().contiguous();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    char text[32];
    (void)std::snprintf(text, sizeof(text), " %.9g", flat.data_ptr<double>()[i]);
    line += text;
  }
  std::puts(line.c_str());
}

void print_error(const std::string& name, const std::function<void()>& body) {
  try {
    body();
    std::printf("%s: nothing is thrown\n", name.c_str());
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", name.c_str(), error.what());
  }
}

Tensor numbers(std::int64_t rows, std::int64_t columns) {
  return at::arange(rows * columns, at::kFloat).reshape({rows, columns}) / 7;
}

void show_maps() {
  const auto softmax = [](const Tensor& x) {
    const Tensor e = at::exp(x - pmax(x, "i"));
    return e / psum(e, "i");
  };
  print("vmap of a softmax", vmap(softmax, {.axis_name = "i"})(numbers(5, 2)));
  print("pmap of a softmax", pmap(softmax, {.axis_name = "i"})(numbers(5, 2)));
  print("all_gather", pmap([](const Tensor& x) { return all_gather(x, "i"); },
                           {.axis_name = "i"})(numbers(3, 2)));
  print("psum_scatter", pmap([](const Tensor& x) { return psum_scatter(x, "i"); },
                             {.axis_name = "i"})(numbers(3, 3)));
  print("all_to_all", pmap([](const Tensor& x) { return all_to_all(x, "i", 0, 0); },
                           {.axis_name = "i"})(numbers(3, 3)));
  print("ppermute", vmap(
                        [](const Tensor& x) {
                          return ppermute(x, "i", {{0, 1}, {1, 2}});
                        },
                        {.axis_name = "i"})(numbers(3, 1)));
  const auto loss = [](const Tensor& w, const Tensor& x) {
    return pmean((w * x).pow(2).sum(), "i");
  };
  print("a gradient inside of a pmap",
        pmap(grad(loss), {.axis_name = "i", .in_axes = {std::nullopt, 0}})(at::full({2}, 0.5),
                                                                           numbers(4, 2)));
  const auto outside = [&](const Tensor& w) {
    return pmap(loss, {.axis_name = "i", .in_axes = {std::nullopt, 0}})(w, numbers(4, 2)).sum();
  };
  print("a gradient around a pmap", grad(outside)(at::full({2}, 0.5)));
}

void show_meshes() {
  const Mesh mesh({{"row", 2}, {"column", 2}});
  const auto product =
      shard_map([](const Tensor& a, const Tensor& b) { return psum(at::matmul(a, b), "column"); },
                mesh, {P("row", "column"), P("column", std::nullopt)}, P("row", std::nullopt));
  print("a product of sharded matrices", product(numbers(4, 4), numbers(4, 3)));
}

void train(bool zero, int stage) {
  torch::manual_seed(0);
  auto model = torch::nn::Linear(3, 2);
  const auto replica = static_cast<double>(axis_index("data"));
  const Tensor inputs = numbers(4, 3) + replica;
  const Tensor targets = inputs.slice(1, 0, 2) * 2;
  if (zero) {
    ZeroTrainer trainer(*model, ZeroOptions{.stage = stage});
    for (int step = 0; step < 3; ++step) {
      trainer.backward(at::mse_loss(model->forward(inputs), targets));
      (void)trainer.step(0.01);
    }
    const auto whole = trainer.whole_parameters();
    if (replica == 0)
      print("stage " + std::to_string(stage),
            at::cat({model->weight.flatten(), model->bias.flatten()}));
  } else {
    DataParallel parallel(*model);
    parallel.backward(at::mse_loss(model->forward(inputs), targets));
    if (replica == 0)
      print("DataParallel",
            at::cat({model->weight.grad().flatten(), model->bias.grad().flatten()}));
  }
}

void show_launched() {
  (void)launch([] { train(false, 0); }, {.replicas = 3});
  for (int stage = 0; stage < 4; ++stage)
    (void)launch([=] { train(true, stage); }, {.replicas = 3});
}

// Calls that can never end.
void show_out_of_step() {
  const auto each = [](const std::string& name, const std::function<void(std::int64_t)>& body) {
    print_error(name, [&] {
      (void)pmap(
          [&](const Tensor& x) {
            body(axis_index("i"));
            return x;
          },
          {.axis_name = "i"})(at::ones({3}));
    });
  };
  const Tensor two = at::ones({2});
  each("another shape", [&](std::int64_t i) { (void)psum(at::ones({i == 1 ? 3 : 2}), "i"); });
  each("another type",
       [&](std::int64_t i) { (void)psum(i == 1 ? two.to(at::kDouble) : two, "i"); });
  each("another call", [&](std::int64_t i) { (void)(i == 1 ? pmax(two, "i") : psum(two, "i")); });
  each("a replica that returns", [&](std::int64_t i) {
    if (i != 1) (void)psum(two, "i");
  });
  each("a replica that throws", [&](std::int64_t i) {
    if (i == 1) throw std::runtime_error("no more data");
    (void)psum(two, "i");
  });
  each("groups that cross", [&](std::int64_t i) {
    const AxisIndexGroups pair =
        i == 2 ? AxisIndexGroups{{0, 2}, {1}} : AxisIndexGroups{{0, 1}, {2}};
    (void)psum(two, "i", {.axis_index_groups = pair});
  });
  print_error("a job", [] {
    (void)launch([] { (void)psum(at::ones({axis_index("data") == 2 ? 1 : 2}), "data"); },
                 {.replicas = 3});
  });
}

void show_misuse() {
  const Tensor x = at::ones({2, 2});
  print_error("no such axis", [&] { (void)psum(x, "i"); });
  print_error("no axis of the argument",
              [&] { (void)vmap([](const Tensor& y) { return y; }, {.in_axes = {2}})(x); });
  print_error("sizes that differ", [&] {
    (void)vmap([](const Tensor& a, const Tensor& b) { return a + b; })(x, at::ones({3}));
  });
  print_error("a mesh of nothing", [] { (void)Mesh({{"row", 0}}); });
  print_error("a spec of no axis", [&] {
    (void)shard_map([](const Tensor& a) { return a; }, Mesh({{"row", 2}}), {P("line")},
                    P("row"))(x);
  });
  print_error("no replicas", [] { (void)launch([] {}, {.replicas = 0}); });
  print_error("psum_scatter of a size that can't be cut", [] {
    (void)pmap([](const Tensor& a) { return psum_scatter(a, "i", {.tiled = true}); },
               {.axis_name = "i"})(at::ones({2, 3}));
  });
  print_error("a stage that is none",
              [] { (void)ZeroTrainer(*torch::nn::Linear(1, 1), ZeroOptions{.stage = 4}); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> programs{{"maps", show_maps},
                                                              {"meshes", show_meshes},
                                                              {"launched", show_launched},
                                                              {"out_of_step", show_out_of_step},
                                                              {"misuse", show_misuse}};
  const auto found = programs.find(argc > 1 ? argv[1] : "");
  if (found == programs.end()) return 2;
  found->second();
  return 0;
}
