import {
  type CompletedFlag,
  type CompletionTable,
  SERVICES_VERB,
  shortHelp,
  type ValueActions,
  type ValueKind,
} from "./completion_table.ts";

/** The script for zsh, as a file `_kube-relay` in a folder of `$fpath` or to be sourced. */
export function zshCompletion({ verbs, flags }: CompletionTable): string {
  return `#compdef kube-relay
# zsh completion for kube-relay: a file named _kube-relay in a folder of $fpath, or sourced.
_kube_relay_services() {
  local -a names
  names=(\${(f)"$(kube-relay ${SERVICES_VERB} -- "$PREFIX" 2>/dev/null)"})
  compadd -a names
}

_kube_relay_verbs() {
  local -a verbs
  verbs=(
${
    verbs.map(({ name, summary }) =>
      `    ${quoted(`${name}:${shortHelp(summary).replaceAll(":", "\\:")}`)}\n`
    ).join("")
  }  )
  _describe verb verbs
}

_kube_relay() {
  local verb="" word
  local -a options
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case $word in
      ${verbs.map(({ name }) => name).join("|")}) verb=$word; break ;;
    esac
  done
  options=(
${flags.filter(({ verbs }) => verbs === undefined).map(flagSpecs).join("")}  )
  case $verb in
${
    verbs.map(({ name, operands }) => {
      const own = flags.filter((flag) => flag.verbs?.includes(name)).map(flagSpecs).join("");
      const places = operands.map((value, index) =>
        `    ${quoted(`${index + 2}:${name}:${action(value)}`)}\n`
      )
        .join("");
      const pattern = name === "run" ? '""|run' : name;
      return `    ${pattern}) options+=(\n${own}${places}    ) ;;\n`;
    }).join("")
  }  esac
  # The verb itself is the first operand.
  _arguments -s "\${options[@]}" '1: :_kube_relay_verbs'
}

if [[ $funcstack[1] == _kube-relay ]]; then _kube_relay "$@"; else compdef _kube_relay kube-relay; fi
`;
}

function flagSpecs({ names, help, value }: CompletedFlag): string {
  const text = shortHelp(help).replace(/[[\]:\\]/g, "\\$&");
  return names.map((name) =>
    `    ${
      quoted(
        value === undefined ? `${name}[${text}]` : `${name}=[${text}]:value:${action(value)}`,
      )
    }\n`
  ).join("");
}

const ACTIONS: ValueActions = {
  file: "_files",
  folder: "_files -/",
  service: "_kube_relay_services",
  other: " ",
};

function action(value: ValueKind): string {
  return value.kind === "words" ? `(${value.words.join(" ")})` : ACTIONS[value.kind];
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
