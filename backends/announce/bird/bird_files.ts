/**
 * The files of BIRD's configuration, which belong to kube-relay alone. Passwords have a file of their
 * own, so the other one can be shown to users.
 *
 * @module
 */
import type { BgpPeer } from "../../../lib/routing/bgp_plan.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { readTextUpTo } from "../../../lib/os/read_text_up_to.ts";
import type { OwnFileKind } from "../own_file.ts";
import { OWNER_LINE } from "./bird_config.ts";
import { passwordOf, quoted, SECRETS_ID } from "./bird_text.ts";

const LONGEST_PASSWORD_FILE = 4_096;
/** The kernel's limit for a key of TCP-MD5. */
const LONGEST_PASSWORD = 80;

/** The files of a configuration. */
export const BIRD_FILE: OwnFileKind = {
  name: "BIRD configuration",
  folderMode: 0o700,
  isOwn: (text) => text.startsWith(`${OWNER_LINE}\n`),
};

/** The passwords of a plan's peers, as the text of the file that BIRD includes. */
export interface Secrets {
  /** Changes with every password. It is random: a hash would let others test guesses. */
  readonly id: string;
  readonly text: string;
  /** Peers whose password cannot be used, by name, with the reason. */
  readonly leftOut: ReadonlyMap<string, string>;
}

/** Reads the password files of peers. `former` is the text of the secrets file. */
export async function readSecrets(
  random: () => number,
  former: string | undefined,
  peers: readonly BgpPeer[],
): Promise<Secrets> {
  const leftOut = new Map<string, string>();
  const lines: string[] = [];
  for (const { name, passwordFile } of peers) {
    if (passwordFile === undefined) continue;
    try {
      lines.push(`define ${passwordOf(name)} = ${quoted(await readPassword(passwordFile))};\n`);
    } catch (error) {
      const reason = messageOf(error);
      leftOut.set(name, `Cannot use password file '${passwordFile}' of peer ${name}: ${reason}`);
    }
  }
  const body = lines.join("");
  const head = (id: string) => `${OWNER_LINE}\ndefine ${SECRETS_ID} = ${quoted(id)};\n`;
  const [, formerId] = new RegExp(`^define ${SECRETS_ID} = "(\\w+)";$`, "m").exec(former ?? "") ??
    [];
  const id = formerId !== undefined && former === head(formerId) + body
    ? formerId
    : Math.floor(random() * 2 ** 48).toString(36);
  return { id, text: head(id) + body, leftOut };
}

async function readPassword(file: string): Promise<string> {
  const text = await readTextUpTo(file, LONGEST_PASSWORD_FILE, { onlyFiles: true });
  const password = text.replace(/\r?\n$/, "");
  const bytes = new TextEncoder().encode(password).length;
  if (bytes === 0) throw new RangeError("it is empty");
  if (bytes > LONGEST_PASSWORD) {
    throw new RangeError(`the password has ${bytes} bytes; TCP-MD5 takes at most 80`);
  }
  return password;
}
