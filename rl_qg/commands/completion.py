"""Shell completion: `rl-qg --completion bash` prints a script that completes commands, groups, choices and keys.

    eval "$(rl-qg --completion bash)"        # in ~/.bashrc; zsh alike, in ~/.zshrc
    rl-qg --completion fish | source         # in ~/.config/fish/config.fish

The words are written into the script, so that completing starts no Python.
"""

from collections.abc import Mapping

from rl_qg.commands.catalogue import COMMANDS, RAW, choices, groups_of, metrics_without_file, section_of
from rl_qg.runtime.errors import InputError
from rl_qg.settings import all_keys

_BASH = """_rl_qg() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words
  [[ "$COMP_LINE" == *=* ]] && word="${{COMP_LINE##* }}"
  if (( COMP_CWORD == 1 )); then words="{commands}"; else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=( $(compgen -W "$words" -- "$word") )
  if [[ -n "$BASH_VERSION" && "$word" == *=* ]]; then  # bash divides words at =
    local head="${{word%%=*}}="
    COMPREPLY=( "${{COMPREPLY[@]#"$head"}}" )
    [[ ${{#COMPREPLY[@]}} -eq 0 ]] && COMPREPLY=( $(compgen -f -- "${{word#*=}}") )
  fi
  [[ ${{#COMPREPLY[@]}} -eq 1 && "${{COMPREPLY[0]}}" == *= ]] && type compopt &>/dev/null && compopt -o nospace
  [[ ${{#COMPREPLY[@]}} -eq 0 ]] && COMPREPLY=( $(compgen -f -- "$word") )
}}
complete -F _rl_qg rl-qg
"""
_ZSH = "autoload -Uz +X compinit bashcompinit && compinit && bashcompinit\n"
_RAW_WORDS = {
    "bench": ["data", "transfer", "report", "--dry-run", "--allow-imports"],
    "report": ["--output"],
    "search": ["--dry-run", "--allow-imports"],
    "study": ["--dry-run", "--tables", "--allow-imports"],
}
SHELLS = ("bash", "zsh", "fish")


def completion(shell: str) -> str:
    """The script for a shell. Raises `InputError` for one that is not in `SHELLS`."""
    words = {name: words_of(name) for name in COMMANDS if " " not in name}
    groups: dict[str, dict[str, list[str]]] = {}  # commands of two words, by the first
    for name in [name for name in COMMANDS if name not in words]:
        first, _, second = name.partition(" ")
        groups.setdefault(first, {})[second] = words_of(name)
    if shell == "fish":
        return _fish(words, groups)
    if shell not in SHELLS:
        raise InputError(f"--completion {shell}: choose one of {', '.join(SHELLS)}")
    cases = "\n".join([*_cases(words, 6), *(line for first, inner in groups.items() for line in _inner(first, inner))])
    script = _BASH.format(commands=" ".join([*words, *groups]), cases=cases)
    return script if shell == "bash" else _ZSH + script


def _cases(words: Mapping[str, list[str]], indent: int) -> list[str]:
    return [f'{" " * indent}{name}) words="{" ".join(known)}" ;;' for name, known in words.items()]


def _inner(first: str, words: Mapping[str, list[str]]) -> list[str]:
    """The case of a first word that several commands share: the second word, or what may follow that."""
    opening = f'      {first}) (( COMP_CWORD == 2 )) && words="{" ".join(words)}" || case "${{COMP_WORDS[2]}}" in'
    return [opening, *_cases(words, 8), "      esac ;;"]


def words_of(command: str) -> list[str]:
    """What may follow a command: each choice of its groups, and its keys with an equals sign."""
    if command in RAW:
        return _RAW_WORDS[command]
    words = [f"{group}={choice}" for group in groups_of(command) for choice in choices(group)]
    if "reward" in groups_of(command):
        words += [f"reward={name}" for name in metrics_without_file()]
    sections, own = COMMANDS[command].sections, f"{section_of(command)}."
    keys = [key for key in all_keys() if any(key == part or key.startswith(f"{part}.") for part in sections)]
    return [*words, *(f"{key.removeprefix(own)}=" for key in keys), "--help"]


def _fish(words: Mapping[str, list[str]], groups: Mapping[str, Mapping[str, list[str]]]) -> str:
    seen = "__fish_seen_subcommand_from"
    lines = ["complete -c rl-qg -f -n __fish_use_subcommand -a '" + " ".join([*words, *groups]) + "'"]
    lines += [f"complete -c rl-qg -n '{seen} {name}' -a '{' '.join(known)}'" for name, known in words.items()]
    for first, inner in groups.items():
        lines.append(f"complete -c rl-qg -n '{seen} {first}; and not {seen} {' '.join(inner)}' -a '{' '.join(inner)}'")
        lines += [
            f"complete -c rl-qg -n '{seen} {first}; and {seen} {name}' -a '{' '.join(known)}'"
            for name, known in inner.items()
        ]
    return "\n".join(lines) + "\n"
