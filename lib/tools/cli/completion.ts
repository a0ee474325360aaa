import type { Flag } from "../../config/flag.ts";
import { FLAG_ROWS } from "../../config/flags.ts";
import { ConfigurationError } from "../../config/configuration_error.ts";
import { parseFlags } from "../../config/parse_flags.ts";
import { BACKEND_MODES } from "../../proxy/backend.ts";
import { askControl } from "../control/control_client.ts";
import type { CommandContext, Verb } from "./commands/command.ts";

/** Longest help of a word in a list of completions. */
const LONGEST_HELP = 60;

/** What a shell completes itself, as the only line of an answer. */
const FILE = ":file";
const FOLDER = ":folder";
/** Names of Services, from the running kube-relay. */
const SERVICE = ":service";

/** How a value is completed, by its name in the help. */
const VALUES: Readonly<Record<string, string>> = {
  FILE,
  PATH: FILE,
  DIR: FOLDER,
  "NAMESPACE/NAME": SERVICE,
  FROM: SERVICE,
  TO: SERVICE,
};

/**
 * The script of each shell. It passes the words of the command line, and the one under the cursor with a
 * dot in front, because an empty word would be lost.
 */
const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `# bash completion for kube-relay; source it, or put it where bash-completion looks.
_kube_relay() {
  local cur=\${COMP_WORDS[COMP_CWORD]} line lines
  mapfile -t lines < <(
    "\${COMP_WORDS[0]}" complete -- "\${COMP_WORDS[@]:1:COMP_CWORD-1}" ".$cur" 2>/dev/null
  )
  COMPREPLY=()
  # Most shells split words at "=", too.
  [[ $cur != = ]] || cur=
  case \${lines[0]-} in
    :file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    :folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    *) for line in "\${lines[@]}"; do COMPREPLY+=("\${line%%$'\\t'*}"); done ;;
  esac
}

complete -F _kube_relay kube-relay
`,
  zsh: `#compdef kube-relay
# zsh completion for kube-relay: a file named _kube-relay in a folder of $fpath, or sourced.
_kube_relay() {
  local -a lines described
  lines=("\${(@f)$(kube-relay complete -- "\${(@)words[2,CURRENT-1]}" ".$PREFIX" 2>/dev/null)}")
  case $lines[1] in
    :file) compset -P '--*='; _files ;;
    :folder) compset -P '--*='; _files -/ ;;
    *)
      described=("\${(@)lines//:/\\\\:}")
      described=("\${(@)described//$'\\t'/:}")
      _describe value described
      ;;
  esac
}

if [[ $funcstack[1] == _kube-relay ]]; then _kube_relay "$@"; else compdef _kube_relay kube-relay; fi
`,
  fish: `# fish completion for kube-relay; put it into ~/.config/fish/completions/kube-relay.fish.
function __kube_relay_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l lines (kube-relay complete -- $words[2..-1] ".$cur" 2>/dev/null)
    set -l flag (string match -r -- '^--[^=]*=' "$cur"; or echo '')
    set -l value (string replace -r -- '^--[^=]*=' '' "$cur")
    switch "$lines[1]"
        case :file
            string replace -r -- '^' "$flag" (__fish_complete_path "$value")
        case :folder
            string replace -r -- '^' "$flag" (__fish_complete_directories "$value")
        case '*'
            printf '%s\\n' $lines
    end
end

complete -c kube-relay -f -a '(__kube_relay_complete)'
`,
};

/** Returns the script of a shell. */
export function completionScript(shell: string): string {
  if (Object.hasOwn(SCRIPTS, shell)) return SCRIPTS[shell]!;
  throw new ConfigurationError([
    `Cannot complete for '${shell}': expected one of ${Object.keys(SCRIPTS).join(", ")}`,
  ]);
}

/** Answers the scripts; prints no errors. */
export async function completeVerb(
  verbs: readonly Verb[],
  print: (text: string) => void,
  { configuration, operands = [] }: CommandContext,
): Promise<number> {
  const last = operands.at(-1) ?? "";
  const current = last.startsWith(".") ? last.slice(1) : last;
  // Bash has `=` as a word of its own.
  const words = operands.slice(0, -1).filter((word) => word !== "=");
  const { prefix, value, offered } = wanted(verbs.filter(({ hidden }) => !hidden), words, current);
  const [first = ""] = offered;
  if (first === FILE || first === FOLDER) print(`${first}\n`);
  else {
    const socket = parseFlags(words).values["control-socket"];
    const names = first === SERVICE
      ? await serviceNames(socket ?? configuration.relay.controlSocket, value)
      : offered.filter((each) => each.startsWith(value));
    print(names.map((each) => `${prefix}${each}\n`).join(""));
  }
  return 0;
}

/** Returns what may stand at the cursor, each with its help behind a tab, and the part that is typed already. */
function wanted(
  verbs: readonly Verb[],
  words: readonly string[],
  current: string,
): { readonly prefix: string; readonly value: string; readonly offered: readonly string[] } {
  let verb: Verb | undefined;
  let count = 0;
  let flag: Flag | undefined;
  for (const word of words) {
    const isValue = flag !== undefined;
    flag = isValue ? undefined : flagBefore(word);
    if (isValue || word.startsWith("-")) continue;
    if (verb === undefined) verb = verbs.find(({ name }) => name === word);
    else count++;
  }
  if (flag) return { prefix: "", value: current === "=" ? "" : current, offered: valuesOf(flag) };
  const [, prefix = "", value = ""] = /^(--?[^=]+=)(.*)$/s.exec(current) ?? [];
  const attached = prefix === "" ? undefined : flagBefore(prefix.slice(0, -1));
  if (attached) return { prefix, value, offered: valuesOf(attached) };
  if (current.startsWith("-")) {
    const offered = flagRows().filter(({ verbs }) => verbs?.includes(verb?.name ?? "run") ?? true)
      .flatMap((flag) => typed(flag).map((name) => described(name, flag.help)));
    return { prefix: "", value: current, offered };
  }
  const last = verb?.operands?.at(-1);
  const operand = verb?.operands?.[count] ?? (last?.many && last);
  const offered = verb === undefined || operand?.name === "VERB"
    ? verbs.map(({ name, summary }) => described(name, summary))
    : operand?.choices ?? kindOf(operand?.name);
  return { prefix: "", value: current, offered };
}

function flagRows(): readonly Flag[] {
  return FLAG_ROWS.filter(({ retired }: Flag) => !retired);
}

/** The flag of a word whose value is the next word. */
function flagBefore(word: string): Flag | undefined {
  return flagRows().find((flag) =>
    flag.type !== "boolean" && flag.implied === undefined && typed(flag).includes(word)
  );
}

function typed({ name, aliases = [] }: Flag): readonly string[] {
  return [name, ...aliases].map((each) => `${each.length === 1 ? "-" : "--"}${each}`);
}

function valuesOf({ name, choices, value }: Flag): readonly string[] {
  if (choices) return choices.filter((choice) => choice !== "");
  if (name === "proxy-mode") return [...BACKEND_MODES, "auto"];
  // `status --filter` takes the beginning of a Service's name.
  return name === "filter" ? [SERVICE] : kindOf(value);
}

function kindOf(name: string | undefined): readonly string[] {
  const kind = name !== undefined && Object.hasOwn(VALUES, name) ? VALUES[name] : undefined;
  return kind === undefined ? [] : [kind];
}

/** A word and the first clause of its help, cut at a word. */
function described(word: string, help: string): string {
  const [clause = ""] = help.split(/[;:.] /);
  if (clause.length <= LONGEST_HELP) return `${word}\t${clause}`;
  const cut = clause.slice(0, LONGEST_HELP - 1);
  return `${word}\t${cut.slice(0, cut.lastIndexOf(" "))}\u2026`;
}

async function serviceNames(controlSocket: string, prefix: string): Promise<readonly string[]> {
  try {
    const names = await askControl(controlSocket, "/services", { prefix });
    // A shell could split other names into several words.
    return Array.isArray(names) ? names.filter((name) => /^[\w.\-/]+$/.test(String(name))) : [];
  } catch {
    return [];
  }
}
