import { ConfigurationError } from "../../../config/load.ts";
import { askControl } from "../../control/control_client.ts";
import { bashCompletion } from "../reference/bash_completion.ts";
import {
  type CompletionTable,
  completionTable,
  SERVICES_VERB,
} from "../reference/completion_table.ts";
import { fishCompletion } from "../reference/fish_completion.ts";
import { zshCompletion } from "../reference/zsh_completion.ts";
import type { ActiveCommand, Command, TextCommand } from "./command.ts";

const SHELLS: Readonly<Record<string, (table: CompletionTable) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** Creates the verb that prints a completion script. `verbs`: all of them, itself included. */
export function createCompletionsCommand(verbs: () => readonly Command[]): TextCommand {
  const names = Object.keys(SHELLS);
  return {
    name: "completions",
    summary: "print a completion script for bash, zsh or fish: verbs, flags and Services",
    operands: [{ name: "SHELL", help: names.join(", "), choices: names }],
    examples: [
      "source <(kube-relay completions bash)",
      "kube-relay completions zsh >/usr/local/share/zsh/site-functions/_kube-relay",
      "kube-relay completions fish >~/.config/fish/completions/kube-relay.fish",
    ],
    text(_, [shell = ""]) {
      const script = new Map(Object.entries(SHELLS)).get(shell);
      if (script !== undefined) return script(completionTable(verbs()));
      throw new ConfigurationError([
        `Cannot complete for '${shell}': expected one of ${names.join(", ")}`,
      ]);
    },
  };
}

/** Prints names of Services for a shell; prints no errors. */
export const completeServicesCommand: ActiveCommand = {
  name: SERVICES_VERB,
  summary: "print the names of Services with this prefix",
  hidden: true,
  operands: [{ name: "PREFIX", help: "the beginning of namespace/name", optional: true }],
  async run({ print }, { configuration, operands: [prefix = ""] = [] }) {
    try {
      const query = new URLSearchParams({ prefix });
      const names = await askControl(configuration.relay.controlSocket, {
        route: `/services?${query}`,
      });
      if (!Array.isArray(names)) return 1;
      // A shell could split other names into several words.
      const plain = names.filter((name) => /^[\w.\-/]+$/.test(String(name)));
      print(plain.map((name) => `${name}\n`).join(""));
      return 0;
    } catch {
      return 1;
    }
  },
};
