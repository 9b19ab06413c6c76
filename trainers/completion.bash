# Completes the commands and flags of train, as its --help tells them, and files.
_train() {
  local word=${COMP_WORDS[COMP_CWORD]} command=() words=
  [[ $COMP_CWORD == 1 || ${COMP_WORDS[1]} == -* ]] || command=("${COMP_WORDS[1]}")
  if [[ $word == -* ]]; then
    words=$("$1" "${command[@]}" --help 2>/dev/null | sed -nE 's/^ +(--[a-z-]+).*/\1/p')
  elif [[ $COMP_CWORD == 1 ]]; then
    words=$("$1" --help 2>/dev/null | sed -nE 's/^  train ([a-z]+)  .*/\1/p')
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _train train
