import { manPage } from "../reference/man_page.ts";
import { VERSION } from "../version.ts";
import type { Command, TellingCommand } from "./command.ts";

/** The verb that prints the page, in roff. `verbs` are all that it tells of, itself included. */
export function createManCommand(verbs: () => readonly Command[]): TellingCommand {
  return {
    name: "man",
    summary: "print the manual page, for man -l - or a file of section 8",
    examples: [
      "kube-relay man | man -l -",
      "kube-relay man >/usr/local/share/man/man8/kube-relay.8",
    ],
    text: () => manPage(verbs(), { version: VERSION }),
  };
}
