/**
 * What the tools that we start may do.
 *
 * @module
 */
import { CommandError, type CommandRunner } from "./command_runner.ts";

/** The capabilities that kube-relay's tools have use for, by their number in `linux/capability.h`. */
const NUMBERS: Readonly<Record<string, bigint>> = {
  CAP_NET_BIND_SERVICE: 10n,
  CAP_NET_ADMIN: 12n,
  CAP_NET_RAW: 13n,
  CAP_SYS_MODULE: 16n,
  CAP_SYS_ADMIN: 21n,
  CAP_SYS_RESOURCE: 24n,
};

/**
 * Those of {@linkcode NUMBERS} that a tool gets from us; undefined where that can't be found out. `cat`
 * reads its own: a tool's rights are what counts (those of root, or ambient ones of a unit), and the
 * file is closed to Deno itself.
 */
export async function toolCapabilities(
  { commands }: { readonly commands: CommandRunner },
  options: { readonly signal?: AbortSignal } = {},
): Promise<readonly string[] | undefined> {
  let text: string;
  try {
    text =
      (await commands.run("cat", ["/proc/self/status"], { ...options, timeoutMs: 2000 })).stdout;
  } catch (error) {
    if (error instanceof CommandError && error.kind !== "aborted") return undefined;
    throw error;
  }
  const [, mask] = /^CapEff:\s*([0-9a-f]{1,16})$/m.exec(text) ?? [];
  if (mask === undefined) return undefined;
  const bits = BigInt(`0x${mask}`);
  return Object.keys(NUMBERS).filter((name) => (bits >> NUMBERS[name]!) & 1n);
}
