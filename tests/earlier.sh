#!/usr/bin/env bash
# Compares this tree with an earlier COMMIT, which it builds in build/earlier: the shipped configs and JOBS random jobs
# (default: 30), over models, data, optimizers, ZeRO stages, placements, backends and hosts, must end with the same digest
# and the same metrics; and from the checkpoint that the earlier tree wrote half-way this tree must come to the same end,
# in another placement. SEED draws other jobs. Every optimizer comes with every stage in 20 jobs.
#   tests/earlier.sh COMMIT [JOBS] [SEED]
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(git rev-parse --verify "${1?a commit is needed}^{commit}")
jobs=${2-30}
RANDOM=${3-1}

tree=$PWD earlier=$PWD/build/earlier
if [[ $(git -C "$earlier" rev-parse HEAD 2>/dev/null) != "$commit" ]]; then
  rm -rf "$earlier"
  git clone --quiet --shared . "$earlier"
  git -C "$earlier" checkout --quiet "$commit"
fi
for folder in "$earlier" "$tree"; do
  (cd "$folder" && source trainers/setup.sh && build train trainers/train 4 && build own_train tests/own_train 1)
done

work=$(mktemp -d)
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null || true' EXIT
cd "$work"
cp "$earlier/README.md" text.md
(umask 077 && printf '%064d\n' 7 >secret)
friedman() {
  awk -v rows="$1" -v seed="$2" 'BEGIN { srand(seed); OFS = ","; print "a,b,c,d,e,y"
    for (n = 0; n < rows; n++) { for (k = 1; k <= 6; k++) x[k] = rand(); print x[1], x[2], x[3], x[4], x[5], x[6] } }'
}
friedman 400 1 >friedman.csv && friedman 100 2 >friedman_test.csv
ln -s "$tree/configs" configs

one_of() { local all=("$@"); drawn=${all[RANDOM % $#]}; }

# start TREE OUTPUT FLAG…: a run of $program of a tree, on $hosts hosts that meet on the loopback.
start() {
  local host pids=() flags=("${@:3}" --output "$2" --quiet)
  local rendezvous=127.0.0.1:$((20000 + RANDOM % 10000))
  for ((host = 0; host < hosts; ++host)); do
    local meet=()
    [[ $hosts == 1 ]] || meet=(--nnodes "$hosts" --node-rank "$host" --rendezvous "$rendezvous" --secret-file "$work/secret")
    "$1/build/release/$program" "${flags[@]}" "${meet[@]}" >"$2.$host.log" 2>&1 &
    pids+=($!)
  done
  local pid
  for pid in "${pids[@]}"; do
    wait "$pid" || { echo "failed: $program ${flags[*]}"; cat "$2".*.log; exit 1; }
  done
}
# same RUN OTHER WHAT: the result and the metrics of RUN stand in OTHER, too, but for times and placement. What OTHER's
# version has learnt to say beyond them is its own.
same() {
  python3 - "$1" "$2" <<'EOF' || { echo "$2 has another end than $1: $3"; exit 1; }
import json, sys

measured = {'time', 'memory', 'part_of_peak', 'parts', 'slow_replica', 'slow_replica_share', 'slow_link', 'slow_link_share'}

def end_of(run):
    result = json.load(open(run + '/result.json'))
    end = [{key: result[key] for key in ('steps', 'loss', 'parameters_sha256')}]
    for line in map(json.loads, open(run + '/metrics.jsonl')):
        end.append({key: value for key, value in line.items() if key in line_keys})
    return end

line_keys = {key for line in open(sys.argv[1] + '/metrics.jsonl') for key in json.loads(line)}
line_keys -= {key for key in line_keys if key.endswith('_s') or key in measured}
earlier, now = map(end_of, sys.argv[1:])
for line in earlier:
    while now and any(now[0].get(key) != value for key, value in line.items()):
        now.pop(0)
    if not now:
        sys.exit(f'{sys.argv[2]} has not {line}')
    now.pop(0)
EOF
}
# place_anywhere: another placement of the same job in $placement and $hosts.
place_anywhere() {
  hosts=$((replicas > 1 && RANDOM % 4 == 0 ? 2 : 1))
  local launch=processes backend=auto
  if [[ $hosts == 1 ]]; then
    one_of processes processes threads; launch=$drawn
    [[ $launch == threads ]] || { one_of auto auto gloo; backend=$drawn; }
  fi
  placement=(--launch "$launch" --workers $((hosts + RANDOM % (replicas - hosts + 1))) --set "parallel.backend=$backend"
             --set "parallel.zero_stage=$stage" --set "parallel.overlap=$([[ $((RANDOM % 2)) == 0 ]] && echo on || echo auto)")
}

program=trainers/train hosts=1
for config in "$tree"/configs/*.yaml; do
  name=$(basename "$config" .yaml)
  [[ -e $earlier/configs/$name.yaml ]] || { echo "$name: not in ${commit:0:7}"; continue; }
  flags=(--config "$config" --set trainer.steps=3 --set trainer.log_every=1)
  case $name in
    # Of a table with data.validation means are now those of the rest alone: with a validation file they are as before.
    csv_regression) flags+=(--set data.features=[a,b,c,d,e] --set data.validation_file=friedman_test.csv) ;;
    text_gpt) flags+=(--set data.path=text.md --set data.held_out=[] --set data.exclude=[] --set "data.test_path=$tree/LICENSE"
                      --set data.batch_size=2 --set schedule.warmup_steps=1) ;;
  esac
  start "$earlier" "$name" "${flags[@]}"
  start "$tree" "$name-now" "${flags[@]}"
  same "$name" "$name-now" "$config"
  echo "$name: $(grep -o '"parameters_sha256": "[0-9a-f]*"' "$name/result.json")"
done

optimizers=('{name: sgd, lr: 0.01, momentum: 0.9, nesterov: true}' '{name: adam, lr: 0.001, amsgrad: true}'
            '{name: adamw, lr: 0.001, weight_decay: 0.01, groups: [{pattern: "*w*", weight_decay: 0, lr_scale: 0.5}]}'
            '{name: rmsprop, lr: 0.001, centered: true, momentum: 0.5}' '{name: adagrad, lr: 0.01, lr_decay: 0.01}')
for ((job = 0; job < jobs; ++job)); do
  stage=$((job % 4))
  replicas=$((1 + RANDOM % 5))
  fashion="data: {name: fashion_mnist, batch_size: 4, flip: true, validation: 0.003"
  trainer="steps: 6, log_every: 1, seed: $RANDOM, accumulate: $((1 + RANDOM % 3))"
  one_of "" "" ", ema_decay: 0.9"; trainer+=$drawn
  one_of "" "" ", precision: bf16"; trainer+=$drawn
  one_of "" ", clip_norm: 0.5" ", clip_value: 0.1"; trainer+=$drawn
  one_of "" ", non_finite: skip" ", check_every: 2"; trainer+=$drawn
  one_of "" "" ", compression: bf16"; parallel="replicas: $replicas$drawn"
  one_of "" ", bucket_mb: 0.001" ", reduce_every_microbatch: true"; parallel+=$drawn
  program=trainers/train
  case $((RANDOM % 6)) in
    0) text="model: {name: mlp, hidden: [33, 17]}"$'\n'"$fashion}" ;;
    1) text="model: {name: cnn, channels: [4, 6], dense: [16]}"$'\n'"$fashion, crop: 2}" ;;
    2) text="model: {name: resnet, depth: 8, width: 4, stochastic_depth: 0.3, recompute: true}"$'\n'"$fashion}" ;;
    3) text="model: {name: gpt, layers: 2, heads: 2, width: 16, dropout: 0.1, recompute: true}"$'\n'
       text+="data: {name: text, path: text.md, context: 16, batch_size: 4}" ;;
    4) text="model: {name: linear}"$'\n'"data: {name: synthetic, features: 7, validation_samples: 50, batch_size: 4}" ;;
    5) text="model: {name: zero}"$'\n'"data: {name: many, corpus: 90, batch_size: 2}" program=tests/own_train ;;
  esac
  printf '%s\n' "$text" "optimizer: ${optimizers[job % 5]}" "parallel: {$parallel}" "trainer: {$trainer}" \
    'checkpoint: {every: 3}' >"$job.yaml"
  said="job $job, ZeRO stage $stage"$'\n'"$(cat "$job.yaml")"
  place_anywhere
  start "$earlier" "$job" --config "$job.yaml" "${placement[@]}"
  start "$tree" "$job-now" --config "$job.yaml" "${placement[@]}"
  same "$job" "$job-now" "$said"$'\n'"${placement[*]}"
  cp -r "$job" "$job-on"
  rm -rf "$job-on/checkpoints/step-00000006" "$job-on/checkpoints/latest" "$job-on/result.json"
  place_anywhere
  start "$tree" "$job-on" --config "$job.yaml" "${placement[@]}" --resume auto
  same "$job" "$job-on" "resumed, $said"$'\n'"${placement[*]}"
  echo "job $job: $(head -1 "$job.yaml"), stage $stage, $replicas replicas: the same, resumed on $hosts host(s) as ${placement[1]}"
  rm -rf "$job" "$job-now" "$job-on"
done
echo "$jobs jobs and the shipped configs: the same as those of ${commit:0:7}"
