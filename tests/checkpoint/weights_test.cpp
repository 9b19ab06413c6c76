#include "framework/checkpoint/weights.h"

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <sys/stat.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include "framework/base/errors.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/storage/safetensors.h"
#include "framework/training/zero.h"
#include "models/gpt.h"
#include "models/mlp.h"
#include "models/model.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"
#include "tests/training/models.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

namespace lockstep {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

std::string dtype_name(at::ScalarType type) {
  const std::map<at::ScalarType, std::string> names{{at::kFloat, "F32"}, {at::kDouble, "F64"},
                                                    {at::kHalf, "F16"},  {at::kBFloat16, "BF16"},
                                                    {at::kLong, "I64"},  {at::kBool, "BOOL"}};
  return names.at(type);
}

// A safetensors file with these tensors.
std::string write(const testing::TemporaryFolder& folder, const std::string& name,
                  const Named& tensors) {
  storage::SafetensorsHeader header;
  std::string data;
  for (const auto& [key, tensor] : tensors) {
    header.tensors.push_back({.name = key,
                              .dtype = dtype_name(tensor.scalar_type()),
                              .shape = {tensor.sizes().begin(), tensor.sizes().end()}});
    const at::Tensor whole = tensor.detach().contiguous();
    data.append(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
  }
  return folder.write(name, storage::write_header(header) + data);
}

Named tensors_of(const torch::nn::Module& module) {
  Named all;
  for (const auto& item : module.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) all.emplace_back(item.key(), item.value());
  return all;
}

// A layer whose weight has two names, and a buffer.
struct Tied : torch::nn::Module {
  explicit Tied(float value) {
    weight = register_parameter("embedding", at::full({3, 2}, value));
    register_parameter("head", weight);
    count = register_buffer("count", at::full({}, std::int64_t{7}, at::kLong));
  }
  at::Tensor weight, count;
};

std::string refusal(const std::string& file, torch::nn::Module& module) {
  return testing::message_of<DataError>([&] { load_safetensors(file, module); });
}

}  // namespace

TEST_CASE("a program loads weights in three lines, and its model's output is the same") {
  const testing::TemporaryFolder folder;
  const keys::Picked options = keys::Picked("mlp", MlpOptions{.hidden = {7, 3}});
  const auto trained = make_model(options, value_sample({5}, 4), 1);
  const std::string file = write(folder, "model.safetensors", tensors_of(*trained));

  const auto model = make_model(options, value_sample({5}, 4), 2);
  load_safetensors(file, *model);
  const at::Tensor inputs = at::arange(10, at::kFloat).view({2, 5});
  CHECK(model->forward(inputs).equal(trained->forward(inputs)));
}

TEST_CASE("weights of other floating types become those of the parameters") {
  const testing::TemporaryFolder folder;
  const at::Tensor values =
      at::tensor({1.0, -2.5, 1.0 / 3, 1e-3, 0.0, std::numeric_limits<double>::infinity()});
  for (const at::ScalarType from : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const std::string file = write(folder, "w.safetensors", {{"w", values.to(from)}});
    for (const at::ScalarType to : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      torch::nn::Module module;
      const at::Tensor w = module.register_parameter("w", at::zeros({6}, to));
      load_safetensors(file, module);
      CHECK(w.detach().equal(values.to(from).to(to)));
    }
  }
}

TEST_CASE("weights of many elements are converted part by part, also into a transposed tensor") {
  const testing::TemporaryFolder folder;
  const at::Tensor values = at::arange(3 * 700'001, at::kDouble).view({3, 700'001});
  const std::string file = write(folder, "w.safetensors", {{"w", values}});
  const at::Tensor plain = at::zeros({3, 700'001});
  Weights(file).read("w", plain);
  CHECK(plain.equal(values.to(at::kFloat)));
  const at::Tensor transposed = at::zeros({700'001, 3}).t();
  Weights(file).read("w", transposed);
  CHECK(transposed.equal(plain));
}

TEST_CASE("what of weights does not fit a module is listed, and the module stays as it is") {
  const testing::TemporaryFolder folder;
  Tied module(1);
  const std::string file =
      write(folder, "w.safetensors",
            {{"head", at::zeros({2, 3})}, {"count", at::zeros({})}, {"other", at::zeros({1})}});
  CHECK(refusal(file, module) ==
        file +
            " does not fit the module: unexpected: other; of another shape or dtype: 'head' is F32 "
            "(2, 3), not F32 (3, 2), 'count' is F32 (), not I64 ()");
  CHECK(refusal(write(folder, "few.safetensors", {{"x", at::zeros({1})}}), module) ==
        folder.path("few.safetensors") +
            " does not fit the module: missing: embedding, count; unexpected: x");
  CHECK(module.weight.equal(at::ones({3, 2})));
  Named many;
  for (int i = 10; i < 40; ++i) many.emplace_back("t" + std::to_string(i), at::zeros({}));
  CHECK_THAT(refusal(write(folder, "many.safetensors", many), module),
             ContainsSubstring(", t28, t29 and 10 more"));
}

TEST_CASE("of a tensor with two names a file needs one") {
  const testing::TemporaryFolder folder;
  const at::Tensor values = at::arange(6, at::kFloat).view({3, 2});
  for (const std::string name : {"embedding", "head"}) {
    Tied module(1);
    load_safetensors(write(folder, "w.safetensors",
                           {{name, values}, {"count", at::full({}, std::int64_t{9}, at::kLong)}}),
                     module);
    CHECK(module.weight.equal(values));
    CHECK(module.count.item<std::int64_t>() == 9);
  }
  Tied module(1);
  load_safetensors(
      write(folder, "w.safetensors",
            {{"embedding", values}, {"head", values}, {"count", module.count.clone()}}),
      module);
  CHECK(module.weight.equal(values));
  const std::string file =
      write(folder, "w.safetensors",
            {{"embedding", values}, {"head", values + 1}, {"count", module.count.clone()}});
  const std::string differ =
      "weights: 'embedding' and 'head' are one tensor of the module, but their values differ";
  CHECK(refusal(file, module) == differ);
  CHECK(testing::message_of<DataError>(
            [&] { (void)weight_of(Weights(file), module, "embedding"); }) == differ);
}

TEST_CASE("a GPT-2 takes weights as they are published") {
  const testing::TemporaryFolder folder;
  const auto made = [](std::uint64_t seed) {
    return std::make_shared<Gpt>(GptOptions{.layers = 2, .heads = 2, .width = 4}, 3, 5, Key(seed));
  };
  const auto trained = made(1);
  // As Hugging Face's files have them: with the masks of attention, and as a part of a model whose
  // head is the embedding.
  const auto published = [&](const std::string& prefix) {
    Named all;
    for (const auto& [name, tensor] : tensors_of(*trained)) all.emplace_back(prefix + name, tensor);
    for (const std::string layer : {"h.0.", "h.1."}) {
      all.emplace_back(prefix + layer + "attn.bias", at::ones({1, 1, 3, 3}, at::kBool).tril());
      all.emplace_back(prefix + layer + "attn.masked_bias", at::full({}, -1e4, at::kFloat));
    }
    return all;
  };
  const at::Tensor tokens = at::tensor({1, 0, 4}, at::kLong).view({1, 3});
  Named headed = published("transformer.");
  headed.emplace_back("lm_head.weight", parameter_map(*trained).at("wte.weight"));
  Named only_head = headed;
  std::erase_if(only_head, [](const auto& each) { return each.first == "transformer.wte.weight"; });
  for (const Named& tensors : {published(""), published("transformer."), headed, only_head}) {
    const std::string file = write(folder, "model.safetensors", tensors);
    const auto model = made(2);
    CHECK(compare_weights(Weights(file), *model).text() == "");
    load_safetensors(file, *model);
    CHECK(model->forward(tokens).equal(trained->forward(tokens)));
    CHECK(weight_of(Weights(file), *made(2), "wte.weight")
              .equal(parameter_map(*trained).at("wte.weight")));
  }

  Named wrong = published("transformer.");
  std::erase_if(wrong, [](const auto& each) { return each.first.ends_with("ln_f.bias"); });
  wrong.emplace_back("transformer.h.2.ln_1.bias", at::zeros({4}));
  wrong.emplace_back("lm_head.weight", at::zeros({6, 4}));
  const std::string file = write(folder, "model.safetensors", wrong);
  CHECK(refusal(file, *made(2)) ==
        file +
            " does not fit the module: missing: ln_f.bias; unexpected: transformer.h.2.ln_1.bias; "
            "of another shape or dtype: 'lm_head.weight' is F32 (6, 4), not F32 (5, 4)");
}

TEST_CASE("weights are read from the files of an index") {
  const testing::TemporaryFolder folder;
  Tied module(1);
  const at::Tensor values = at::arange(6, at::kFloat).view({3, 2});
  (void)write(folder, "a.safetensors", {{"head", values}, {"count", at::zeros({})}});
  (void)write(folder, "b.safetensors", {{"count", at::full({}, std::int64_t{9}, at::kLong)}});
  const auto index = [&](const std::string& map) {
    return folder.write("model.safetensors.index.json", "{\"weight_map\": " + map + "}");
  };
  load_safetensors(index(R"({"head": "a.safetensors", "count": "b.safetensors"})"), module);
  CHECK(module.weight.equal(values));
  CHECK(module.count.item<std::int64_t>() == 9);
  const std::string file = index(R"({"head": "b.safetensors"})");
  CHECK(refusal(file, module) ==
        file + " says that 'head' is in b.safetensors, which does not have it");
  const std::string no_index = " is no index: expected JSON with a weight_map of tensors to files";
  for (const std::string map : {"{}", "[]", R"({"head": 1})", R"({"head": ""})", "{"}) {
    CHECK(refusal(index(map), module) == file + no_index);
  }
  for (const std::string outside : {"../b.safetensors", "/etc/passwd"}) {
    CHECK(refusal(index(R"({"head": ")" + outside + R"("})"), module) ==
          file + " names the file '" + outside + "': files must be beside the index");
  }
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);  // to open it would block
  CHECK(refusal(index(R"({"head": "pipe"})"), module) ==
        folder.path("pipe") + " is no regular file");
}

TEST_CASE("weights are read from a checkpoint, tied and frozen ones and other dtypes too") {
  const testing::Quiet quiet;
  const testing::TemporaryFolder folder;
  std::map<std::string, at::Tensor> expected;
  REQUIRE(launch(
              [&] {
                testing::OddModel model;
                ZeroTrainer trainer(model, testing::adam(0));
                testing::train_step(trainer, model, 0, 1, "data");
                save_checkpoint(folder.path(), {&trainer}, {.step = 1});
                const auto whole = trainer.whole_parameters();
                expected = testing::copies(model);
              },
              testing::threads(1, Backend::automatic)) == 0);
  testing::OddModel model;
  {
    const c10::AutoGradMode no_grad(false);
    for (const auto& item : model.named_parameters()) item.value().zero_();
  }
  load_safetensors(folder.path() / "latest", model);
  CHECK(testing::first_difference(testing::copies(model), expected) == "");

  testing::change_last_byte(folder.path() / "latest" / "shard-00000-of-00001.safetensors");
  CHECK_THAT(refusal(folder.path() / "latest", model), ContainsSubstring("is damaged"));
}

TEST_CASE("a file without weights is refused by name") {
  const testing::TemporaryFolder folder;
  Tied module(1);
  CHECK(refusal(folder.path("none"), module) ==
        folder.path("none") + ": No such file or directory");
  CHECK(refusal("/dev/null", module) == "/dev/null is no regular file");
  CHECK_THAT(refusal(folder.write("text", "text"), module),
             ContainsSubstring("text: not a safetensors file: it has 4 bytes"));
  CHECK_THAT(refusal(folder.path(""), module),
             ContainsSubstring("is no checkpoint: it has no manifest.json"));
}

TEST_CASE("a saved module has its tensors' bytes under its names, and is loaded again") {
  const testing::TemporaryFolder folder;
  const auto make = [](double first) {
    torch::nn::Module module;
    const at::Tensor values = at::arange(first, first + 24, at::kDouble);
    module.register_parameter("half", values.narrow(0, 0, 5).to(at::kBFloat16));
    module.register_parameter("turned", values.to(at::kFloat).view({6, 4}).t());
    module.register_parameter(
        "image",
        values.to(at::kFloat).view({1, 2, 3, 4}).contiguous(at::MemoryFormat::ChannelsLast));
    module.register_parameter("none", at::zeros({0, 3}));
    module.register_buffer("wide", values);
    module.register_buffer("mask", values.to(at::kInt).fmod(2).to(at::kBool));
    module.register_buffer("undefined", at::Tensor());
    const auto tied = std::make_shared<Tied>(static_cast<float>(first));
    module.register_module("tied", tied);
    return module;
  };
  const torch::nn::Module module = make(3);
  const std::string path = folder.path("w.safetensors");
  save_safetensors(module, path);
  const storage::SafetensorsFile file(path);
  CHECK(file.header().metadata == std::map<std::string, std::string>{{"format", "pt"}});
  std::vector<std::string> names;
  for (const storage::StoredTensor& stored : file.header().tensors) {
    names.push_back(stored.name);
    const at::Tensor* const parameter = module.named_parameters().find(stored.name);
    const at::Tensor whole =
        (parameter != nullptr ? *parameter : *module.named_buffers().find(stored.name))
            .detach()
            .contiguous();
    CHECK(stored.dtype == dtype_name(whole.scalar_type()));
    CHECK(at::IntArrayRef(std::vector<std::int64_t>(stored.shape.begin(), stored.shape.end())) ==
          whole.sizes());
    CHECK(stored.begin % whole.element_size() == 0);
    std::string bytes(stored.bytes(), '\0');
    file.read(stored, 0, std::as_writable_bytes(std::span(bytes)));
    CHECK(bytes == std::string(static_cast<const char*>(whole.data_ptr()), whole.nbytes()));
  }
  CHECK(names == std::vector<std::string>{"wide", "tied.count", "turned", "image", "none",
                                          "tied.embedding", "half", "mask"});
  torch::nn::Module loaded = make(0);
  load_safetensors(path, loaded);
  CHECK(testing::first_difference(testing::copies(loaded), testing::copies(module)) == "");
}

TEST_CASE("a file is replaced by a saved module at once, or stays") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("w.safetensors");
  for (const float value : {1.0F, 2.0F}) {
    save_safetensors(Tied(value), path);
    Tied loaded(0);
    load_safetensors(path, loaded);
    CHECK(loaded.weight.equal(at::full({3, 2}, value)));
  }
  const std::string before = testing::read_text(path);
  const auto problem = [&](const at::Tensor& second) {
    torch::nn::Module module;
    module.register_buffer("first", at::zeros({2}));
    module.register_buffer("second", second);
    return testing::message_of<ValueError>([&] { save_safetensors(module, path); });
  };
  CHECK(problem(at::empty({2}, at::kMeta)) ==
        "save_safetensors: 'second' is on the meta device, without values: of a trainer's module "
        "call it while ZeroTrainer::whole_parameters() lives");
  CHECK(problem(at::ones({2}).to_sparse()) ==
        "save_safetensors: 'second' is sparse, which the format has not");
  CHECK(problem(at::zeros({2}, at::kComplexFloat)) ==
        "save_safetensors: 'second' is ComplexFloat, which the format has not");
  CHECK(testing::read_text(path) == before);
  CHECK(testing::entries(folder.path()) == 1);
  const auto failure = [](const std::string& file) {
    return testing::message_of<Error>([&] { save_safetensors(Tied(1), file); });
  };
  CHECK_THAT(failure(folder.path("none/w.safetensors")),
             ContainsSubstring("none/w.safetensors") && ContainsSubstring("No such file"));
  CHECK_THAT(failure(folder.path().string()), ContainsSubstring(folder.path().string()));
}

TEST_CASE("one replica saves the whole parameters of all, at stage 3, too") {
  const testing::Quiet quiet;
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("w.safetensors");
  std::map<std::string, at::Tensor> expected;
  std::string early;
  REQUIRE(launch(
              [&] {
                testing::OddModel model;
                ZeroTrainer trainer(model, testing::adam(3));
                testing::train_step(trainer, model, 0, 1, "data");
                const bool is_first = axis_index("data") == 0;
                if (is_first) {
                  early = testing::message_of<ValueError>([&] { save_safetensors(model, path); });
                }
                const auto whole = trainer.whole_parameters();
                if (!is_first) return;
                save_safetensors(model, path);
                expected = testing::copies(model);
              },
              testing::threads(2, Backend::gloo)) == 0);
  CHECK_THAT(early, ContainsSubstring("is on the meta device"));
  testing::OddModel model;
  load_safetensors(path, model);
  CHECK(testing::first_difference(testing::copies(model), expected) == "");
}

}  // namespace lockstep
