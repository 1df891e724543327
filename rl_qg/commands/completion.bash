_rl_qg() {
  local word="${COMP_WORDS[COMP_CWORD]}" words
  [[ "$COMP_LINE" == *=* ]] && word="${COMP_LINE##* }"
  if (( COMP_CWORD == 1 )); then words="@COMMANDS@"; else
    case "${COMP_WORDS[1]}" in
@CASES@
    esac
  fi
  COMPREPLY=( $(compgen -W "$words" -- "$word") )
  if [[ -n "$BASH_VERSION" && "$word" == *=* ]]; then  # bash divides words at =
    local head="${word%%=*}="
    COMPREPLY=( "${COMPREPLY[@]#"$head"}" )
    [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=( $(compgen -f -- "${word#*=}") )
  fi
  [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *= ]] && type compopt &>/dev/null && compopt -o nospace
  [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=( $(compgen -f -- "$word") )
}
complete -F _rl_qg rl-qg
