import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { SavedRules } from "../iptables/iptables_save.ts";
import { mapAtOnce } from "./map_at_once.ts";

/** `table chain` → its rules without `-A` and the chain, in their order. */
export type IptablesTexts = ReadonlyMap<string, readonly string[]>;

interface IptablesTextsOptions {
  /** E.g. `ip6tables-nft-save`. */
  readonly save: string;
  /** Each as `table chain`. */
  readonly chains: readonly string[];
}

const TIMEOUT_MS = 60_000;
/** A concurrency that suits two to four cores. */
const AT_ONCE = 4;

/**
 * Asks for each chain alone, some at once, which does not take longer where there are more of them; for
 * everything where that is refused.
 */
export async function readIptablesTexts(
  commands: CommandRunner,
  { save, chains }: IptablesTextsOptions,
): Promise<IptablesTexts> {
  const program = save.replace(/-save$/, "");
  const texts = await mapAtOnce(chains, AT_ONCE, async (place) => {
    const [table = "", chain = ""] = place.split(" ");
    const reader = new SavedRules(({ rule }) => rule, table);
    const isReported = await read(commands, [program, "-t", table, "-S", chain], reader);
    return isReported ? [place, reader.rules.get(place) ?? []] as const : undefined;
  });
  const found = texts.filter((each) => each !== undefined);
  return found.length === chains.length ? new Map(found) : await readAll(commands, save);
}

async function readAll(commands: CommandRunner, save: string): Promise<IptablesTexts> {
  const reader = new SavedRules(({ rule }) => rule);
  await read(commands, [save], reader);
  return reader.rules;
}

/** Returns whether the tool succeeded. */
async function read(
  commands: CommandRunner,
  [program = "", ...args]: readonly string[],
  reader: Pick<SavedRules<string>, "take">,
): Promise<boolean> {
  try {
    const { code } = await commands.run(program, args, {
      timeoutMs: TIMEOUT_MS,
      onLine: (line) => reader.take(line),
    });
    return code === 0;
  } catch (error) {
    if (error instanceof CommandError) return false;
    throw error;
  }
}
