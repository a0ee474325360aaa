import {
  type CompletedFlag,
  type CompletionTable,
  SERVICES_VERB,
  type ValueActions,
  type ValueKind,
} from "./completion_table.ts";

/** The script for bash alone, without the package bash-completion. */
export function bashCompletion({ verbs, flags }: CompletionTable): string {
  return `# bash completion for kube-relay; source it, or put it where bash-completion looks.
_kube_relay_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_kube_relay_files() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }
_kube_relay_folders() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); }
_kube_relay_services() { mapfile -t COMPREPLY < <("\${COMP_WORDS[0]}" ${SERVICES_VERB} -- "$cur" 2>/dev/null); }

_kube_relay_value() {
  case $1 in
${flags.map(valueCase).join("")}    *) return 1 ;;
  esac
}

_kube_relay_operand() {
  case $1/$2 in
${
    verbs.flatMap(({ name, operands }) =>
      operands.map((value, index) => `    ${name}/${index}) ${action(value)} ;;\n`)
    ).join("")
  }  esac
}

_kube_relay() {
  local cur=\${COMP_WORDS[COMP_CWORD]} verb="" count=0 index word
  COMPREPLY=()
  # Most shells split words at "=", too.
  if [[ $cur == = ]]; then cur=""; _kube_relay_value "\${COMP_WORDS[COMP_CWORD-1]}"; return 0; fi
  if [[ \${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
    _kube_relay_value "\${COMP_WORDS[COMP_CWORD-2]}"
    return 0
  fi
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=\${COMP_WORDS[index]}
    case $word in
      =) index=$((index + 1)) ;;
${takesValueCase(flags)}      -*) ;;
      *) if [[ -z $verb ]]; then verb=$word; else count=$((count + 1)); fi ;;
    esac
  done
  if ((COMP_CWORD > 1)) && _kube_relay_value "\${COMP_WORDS[COMP_CWORD-1]}"; then return 0; fi
  if [[ $cur == -* ]]; then
    case $verb in
${
    verbs.map(({ name }) =>
      `      ${name === "run" ? '""|run' : name}) _kube_relay_words "${
        flagNames(flags, name)
      }" ;;\n`
    ).join("")
  }    esac
  elif [[ -z $verb ]]; then
    _kube_relay_words "${verbs.map(({ name }) => name).join(" ")}"
  else
    _kube_relay_operand "$verb" "$count"
  fi
  return 0
}

complete -F _kube_relay kube-relay
`;
}

function flagNames(flags: readonly CompletedFlag[], verb: string): string {
  return flags.filter(({ verbs }) => verbs?.includes(verb) ?? true)
    .flatMap(({ names }) => names).join(" ");
}

function valueCase({ names, value }: CompletedFlag): string {
  return value === undefined ? "" : `    ${names.join("|")}) ${action(value)} ;;\n`;
}

/** Skips the value of a flag, unless it is attached by "=". */
function takesValueCase(flags: readonly CompletedFlag[]): string {
  const names = flags.filter(({ value }) => value !== undefined).flatMap(({ names }) => names);
  return `      ${
    names.join("|")
  }) if [[ \${COMP_WORDS[index+1]} != = ]]; then index=$((index + 1)); fi ;;\n`;
}

const ACTIONS: ValueActions = {
  file: "_kube_relay_files",
  folder: "_kube_relay_folders",
  service: "_kube_relay_services",
  other: ":",
};

function action(value: ValueKind): string {
  return value.kind === "words"
    ? `_kube_relay_words "${value.words.join(" ")}"`
    : ACTIONS[value.kind];
}
