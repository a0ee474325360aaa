/**
 * Explains a crash of `nft`. Since 1.1.2, nft stores more about each set and map in the kernel, and older
 * versions end by SIGSEGV when they read it. They can neither list nor change a table then, whoever owns
 * it: nearly each command loads the sets of all tables.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { listNftTables } from "./nft_runner.ts";
import { isAtLeast, parseVersion, versionText } from "../probe/tool_version.ts";
import { tryTool } from "../probe/try_tool.ts";

/** Writes what older versions cannot read. */
const NEWER = [1, 1, 2];
const MOST_TABLES = 64;
const MOST_NAMES = 5;
/** A failed sync is tried again within seconds, and each large table takes a second to read. */
const REMEMBERED_MS = 60_000;

/** Returns a runner of commands whose error for an nft that crashes says why, and what to do. */
export function explainCrashes(commands: CommandRunner, clock: Pick<Clock, "now">): CommandRunner {
  let known: { readonly at: number; readonly explanation: Promise<string> } | undefined;
  return {
    async run(program, args, options) {
      try {
        return await commands.run(program, args, options);
      } catch (error) {
        const isCrash = error instanceof CommandError && error.kind === "crashed";
        if (!isCrash || program !== "nft") throw error;
        const now = clock.now();
        if (known === undefined || now - known.at >= REMEMBERED_MS) {
          known = { at: now, explanation: explainCrash(commands) };
        }
        const message = `${error.message}: ${await known.explanation}`;
        throw new CommandError(program, args, "crashed", message, { cause: error });
      }
    },
  };
}

async function explainCrash(commands: CommandRunner): Promise<string> {
  const answer = await tryTool({ commands }, ["nft", "--version"]);
  const version = answer.kind === "ended" ? parseVersion(answer.out) : undefined;
  const own = `nft ${version ? versionText(version) : "of an unknown version"}`;
  const seen = await listNftTables(commands);
  // Those whose listing makes nft crash. Listing one loads only its sets.
  const tables: string[] = [];
  for (const { family, name } of seen.state === "seen" ? seen.value.slice(0, MOST_TABLES) : []) {
    const line = ["nft", "--terse", "list", "table", family, name] as const;
    const listing = await tryTool({ commands }, line, { onLine: () => {} });
    if (listing.kind === "crashed") tables.push(`table ${family} ${name}`);
  }
  const newer = versionText(NEWER);
  if (tables.length === 0 || (version && isAtLeast(version, NEWER))) {
    return `${own} crashed; install another version of it (Debian package nftables)`;
  }
  const some = tables.slice(0, MOST_NAMES).join(", ");
  const names = tables.length > MOST_NAMES
    ? `${some} and ${tables.length - MOST_NAMES} more`
    : some;
  return `${own} cannot read ${names}, written by nft ${newer} or newer; use nft ${newer} or newer ` +
    "here too (the image of kube-relay has it), or delete what is named with the nft that wrote it";
}
