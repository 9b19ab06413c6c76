#include "framework/base/other_words.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "framework/base/text.h"

namespace lockstep {
namespace {

// Our words, and the words of PyTorch, Lightning, Hugging Face, Keras and scikit-learn that
// nearest() would not find by its rules, or find wrong.
constexpr std::pair<const char*, const char*> kOtherWords[] = {
    {"lr", "learning_rate base_lr init_lr"},
    {"loss", "criterion objective loss_fn"},
    {"schedule", "lr_scheduler scheduler lr_schedule lr_scheduler_type"},
    {"warmup_steps", "warmup warmup_ratio warmup_epochs num_warmup_steps"},
    {"name", "type class class_path _target_"},
    {"height", "image_size img_size"},
    {"width", "hidden_size hidden_dim d_model n_embd embed_dim"},
    {"hidden", "hidden_size hidden_dim hidden_layer_sizes units"},
    {"layers", "num_layers n_layer n_layers num_hidden_layers"},
    {"heads", "num_heads n_head nhead num_attention_heads"},
    {"context", "block_size seq_len sequence_length max_seq_length"},
    {"dropout", "dropout_rate p_dropout"},
    {"epochs", "max_epochs num_epochs n_epochs num_train_epochs"},
    {"steps", "max_steps num_steps max_iter max_iters iterations t_max"},
    {"batch_size", "batch per_device_train_batch_size train_batch_size"},
    {"global_batch", "global_batch_size total_batch_size"},
    {"accumulate", "accumulate_grad_batches gradient_accumulation_steps"},
    {"clip_norm", "max_grad_norm gradient_clip_val grad_clip clipnorm"},
    {"precision", "amp fp16 bf16 mixed_precision dtype"},
    {"log_every", "logging_steps log_every_n_steps log_interval"},
    {"eval_every", "eval_steps eval_interval eval_strategy val_check_interval"},
    {"best", "monitor metric_for_best_model"},
    {"every", "save_steps save_every save_interval save_strategy"},
    {"keep", "save_total_limit save_top_k max_to_keep"},
    {"patience", "early_stopping early_stopping_patience"},
    {"replicas", "devices gpus num_gpus world_size nproc_per_node num_processes"},
    {"threads", "num_workers dataloader_num_workers"},
    {"validation", "val_split validation_split val_size"},
    {"init_from", "ckpt_path pretrained pretrained_path weights"},
    {"class_weights", "weight weights class_weight"},
    {"separator", "sep delimiter"},
    {"missing_values", "na_values"},
    {"channels", "grayscale"},
    {"crop", "augment augmentation random_crop"},
    {"flip", "horizontal_flip random_flip random_horizontal_flip"},
    {"seed", "random_state random_seed seed_everything"},
    {"root", "data_dir data_path dataset_path"},
    {"accuracy", "acc"},
    {"auc", "auroc roc_auc roc_auc_score"},
    {"cross_entropy", "ce nll nll_loss categorical_crossentropy"},
    {"mean_squared_error", "mse mse_loss mseloss l2"},
    {"mean_absolute_error", "mae l1 l1_loss"},
    {"root_mean_squared_error", "rmse"}};

}  // namespace

std::string folded(std::string_view word) {
  std::string result = lower(word);
  std::ranges::replace(result, '-', '_');
  return result;
}

std::vector<std::string> own_words(std::string_view word) {
  const std::string wanted = folded(word);
  std::vector<std::string> own;
  for (const auto& [ours, others] : kOtherWords) {
    std::istringstream all(others);
    for (std::string other; all >> other;) {
      if (other == wanted) own.emplace_back(ours);
    }
  }
  return own;
}

}  // namespace lockstep
