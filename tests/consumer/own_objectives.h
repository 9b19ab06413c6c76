// The loss and the metric that models/README.md registers without showing them.
#pragma once

#include <iostream>  // for the callbacks

#include <ATen/ops/full_like.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <lockstep/lockstep.h>

struct Brier : lockstep::Loss {
  at::Tensor mean(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const at::Tensor right = at::one_hot(targets, outputs.size(1));
    return (outputs.softmax(1) - right).square().sum(1).mean();
  }
};

// Sums: how far each right class' output is above the mean of all, and the samples.
struct Margin : lockstep::Metric {
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const at::Tensor right = outputs.detach().gather(1, targets.unsqueeze(1)).squeeze(1);
    const at::Tensor lead = (right - outputs.detach().mean(1)).to(at::kDouble).sum();
    return at::stack({lead, at::full_like(lead, static_cast<double>(targets.size(0)))});
  }
  double value(const at::Tensor& sums) const override {
    return sums[0].item<double>() / sums[1].item<double>();
  }
  bool higher_is_better() const override { return true; }
};
