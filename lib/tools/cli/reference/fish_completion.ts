import {
  type CompletedFlag,
  type CompletionTable,
  SERVICES_VERB,
  shortHelp,
  type ValueActions,
  type ValueKind,
} from "./completion_table.ts";

/** The script for fish. */
export function fishCompletion({ verbs, flags }: CompletionTable): string {
  const names = verbs.map(({ name }) => name).join(" ");
  return `# fish completion for kube-relay; put it into ~/.config/fish/completions/kube-relay.fish.
function __kube_relay_services
    kube-relay ${SERVICES_VERB} -- (commandline -ct) 2>/dev/null
end

complete -c kube-relay -f
${
    verbs.map(({ name, summary }) =>
      `complete -c kube-relay -n 'not __fish_seen_subcommand_from ${names}' -a ${name} -d ${
        quoted(shortHelp(summary))
      }\n`
    ).join("")
  }${
    verbs.flatMap(({ name, operands }) =>
      // All operands of one verb have the same kind.
      operands.slice(0, 1).flatMap((value) => {
        const what = action(value);
        return what === ""
          ? []
          : [`complete -c kube-relay -n '__fish_seen_subcommand_from ${name}'${what}\n`];
      })
    ).join("")
  }${flags.flatMap((flag) => flagLine(flag, names)).join("")}`;
}

function flagLine({ names, help, value, verbs }: CompletedFlag, all: string): readonly string[] {
  const options = names.map((name) =>
    name.startsWith("--") ? ` -l ${name.slice(2)}` : ` -s ${name.slice(1)}`
  ).join("");
  const where = verbs === undefined ? "" : ` -n ${quoted(condition(verbs, all))}`;
  const what = value === undefined ? "" : ` -r${action(value)}`;
  return [`complete -c kube-relay${where}${options}${what} -d ${quoted(shortHelp(help))}\n`];
}

/** Without a verb, `run` is meant. */
function condition(verbs: readonly string[], all: string): string {
  const seen = `__fish_seen_subcommand_from ${verbs.join(" ")}`;
  return verbs.includes("run") ? `${seen}; or not __fish_seen_subcommand_from ${all}` : seen;
}

const ACTIONS: ValueActions = {
  file: " -F",
  folder: " -a '(__fish_complete_directories (commandline -ct))'",
  service: " -a '(__kube_relay_services)'",
  other: "",
};

function action(value: ValueKind): string {
  return value.kind === "words" ? ` -a ${quoted(value.words.join(" "))}` : ACTIONS[value.kind];
}

/** Between single quotes, only these two characters have a meaning in fish. */
function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}
