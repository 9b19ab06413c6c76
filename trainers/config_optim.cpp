#include "trainers/config_optim.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kLongestPattern = 1000;
const Rule<std::string> kPattern{
    str("a pattern for parameters' names of 1 to ", kLongestPattern, " bytes"),
    [](const std::string& text) { return !text.empty() && text.size() <= kLongestPattern; }};

std::vector<ParameterGroup> read_groups(YamlSection& optimizer, std::vector<std::string>& places) {
  std::vector<ParameterGroup> groups;
  for (YamlSection& section :
       optimizer.sections("groups", {"pattern", "weight_decay", "lr_scale"})) {
    ParameterGroup group;
    if (!section.has("pattern")) section.missing("pattern", kPattern.text);
    places.push_back(section.place("pattern"));
    group.pattern = section.string("pattern", "", kPattern);
    group.weight_decay = section.number_or_null("weight_decay", group.weight_decay, at_least(0.0));
    group.lr_scale = section.number("lr_scale", group.lr_scale, at_least(0.0));
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

SectionSchema optimizer_schema() {
  return {"optimizer",
          {"name", "lr", "momentum", "nesterov", "betas", "eps", "weight_decay", "groups"},
          {}};
}

OptimizerOptions read_optimizer(YamlDocument& document, std::vector<std::string>& group_places) {
  YamlSection section = document.section("optimizer");
  OptimizerOptions options;
  const std::vector<std::string> adams{"adam", "adamw"};
  const auto beta = from_to_below(0.0, 1.0);
  options.name = section.choice("name", optimizer_names(), options.name);
  options.lr = section.number("lr", options.lr, greater_than(0.0));
  if (section.applies("momentum", {"sgd"}, options.name)) {
    options.momentum = section.number("momentum", options.momentum, beta);
  }
  if (section.applies("nesterov", {"sgd"}, options.name)) {
    options.nesterov = section.boolean("nesterov", options.nesterov);
    if (options.nesterov && options.momentum == 0 && document.ok()) {
      section.problem("nesterov", "needs optimizer.momentum greater than 0");
    }
  }
  if (section.applies("betas", adams, options.name)) {
    const auto betas =
        section.numbers("betas", {options.betas[0], options.betas[1]}, options.betas.size(), beta);
    options.betas = {betas[0], betas[1]};
  }
  if (section.applies("eps", adams, options.name)) {
    options.eps = section.number("eps", options.eps, greater_than(0.0));
  }
  options.weight_decay = section.number("weight_decay", options.weight_decay, at_least(0.0));
  options.groups = read_groups(section, group_places);
  return options;
}

SectionSchema schedule_schema() {
  return {"schedule",
          {"name", "warmup_steps", "end_factor", "eta_min", "step_size", "gamma", "pct_start",
           "div_factor", "final_div_factor", "anneal_strategy"},
          {}};
}

ScheduleOptions read_schedule(YamlDocument& document, std::string& warmup_place) {
  YamlSection section = document.section("schedule");
  ScheduleOptions options;
  const auto applies = [&](const std::string& key, const std::vector<std::string>& owners) {
    return section.applies(key, owners, options.name);
  };
  const auto number = [&](const std::string& key, const std::string& owner, double& value,
                          const Rule<double>& rule) {
    if (applies(key, {owner})) value = section.number(key, value, rule);
  };
  options.name = section.choice("name", schedule_names(), options.name);
  if (applies("warmup_steps", {"constant", "linear", "cosine", "step"})) {
    options.warmup_steps =
        section.integer("warmup_steps", options.warmup_steps, at_least<std::int64_t>(0));
  }
  warmup_place = section.place("warmup_steps");
  number("end_factor", "linear", options.end_factor, at_least(0.0));
  number("eta_min", "cosine", options.eta_min, at_least(0.0));
  if (applies("step_size", {"step"})) {
    if (!section.has("step_size")) section.missing("step_size", "a number of steps");
    options.step_size = section.integer("step_size", options.step_size, at_least<std::int64_t>(1));
  }
  number("gamma", "step", options.gamma, greater_than(0.0));
  number("pct_start", "one_cycle", options.pct_start, from_to(0.0, 1.0));
  number("div_factor", "one_cycle", options.div_factor, greater_than(0.0));
  number("final_div_factor", "one_cycle", options.final_div_factor, greater_than(0.0));
  if (applies("anneal_strategy", {"one_cycle"})) {
    options.anneal_strategy =
        section.choice("anneal_strategy", {"cos", "linear"}, options.anneal_strategy);
  }
  return options;
}

}  // namespace lockstep
