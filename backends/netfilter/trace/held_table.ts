import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { TraceError } from "../../../lib/proxy/packet_trace.ts";
import { NO_HISTORY } from "../nft/held_nft.ts";
import { firstLine, saysNotPermitted } from "../probe/try_tool.ts";
import type { MarkTableText } from "./mark_table.ts";

/** The table that marks a packet, held for the duration of a watch. */
export interface HeldTable extends AsyncDisposable {
  /** Rejects if the table disappears before its release. */
  readonly lost: Promise<never>;
  /** Writes the rule that marks the packet. It takes effect some moments later. */
  addRule(): void;
}

/** The maximum duration of a watch, after which a hanging process is ended. */
export const LONGEST_WATCH_MS = 3_600_000;

/** Tries the text first: `nft -i` reports an error at its end only. Throws a TraceError. */
export async function holdTable(
  { commands }: { readonly commands: CommandRunner },
  { table, rule, signal }: MarkTableText & { readonly signal: AbortSignal },
): Promise<HeldTable> {
  const trial = await commands.run("nft", ["-c", "-f", "-"], { stdin: table + rule, signal });
  if (trial.code !== 0) throw refusal(trial.stderr);
  const end = Promise.withResolvers<void>();
  let isGivenUp = false;
  const isWatched = Promise.withResolvers<void>();
  async function* input(): AsyncGenerator<string> {
    yield table;
    await Promise.race([isWatched.promise, end.promise]);
    if (isGivenUp) return;
    yield rule;
    await end.promise;
  }
  const held = commands.run("nft", ["-i"], {
    stdin: input(),
    env: NO_HISTORY,
    timeoutMs: LONGEST_WATCH_MS,
  });
  const lost = held.then(
    ({ stderr }) => new TraceError(`The table that marks the packet is gone: ${firstLine(stderr)}`),
    (error: unknown) => error,
  ).then((error) => isGivenUp ? new Promise<never>(() => {}) : Promise.reject(error));
  lost.catch(() => {});
  return {
    lost,
    addRule: isWatched.resolve,
    async [Symbol.asyncDispose]() {
      isGivenUp = true;
      end.resolve();
      await held.catch(() => {});
    },
  };
}

function refusal(words: string): TraceError {
  if (saysNotPermitted(words)) {
    return new TraceError(
      "Cannot mark a packet for tracing: this user may not write rules; run it as root or with " +
        "CAP_NET_ADMIN",
    );
  }
  const cure = /owner|syntax error/.test(words)
    ? "; it needs nft 0.9.9 and Linux 5.12 or later, for a table that is removed with its owner"
    : "";
  return new TraceError(`Cannot mark a packet for tracing: nft says: ${firstLine(words)}${cure}`);
}

/** Converts errors of the command runner into trace errors, for every tool. */
export function asTraceError(error: unknown): unknown {
  if (!(error instanceof CommandError) || error.kind === "aborted") return error;
  return new TraceError(`Cannot trace: ${error.message}`, { cause: error });
}
