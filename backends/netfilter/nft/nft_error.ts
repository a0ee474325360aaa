/**
 * Explains why `nft` failed. The only file that reads its messages.
 *
 * @module
 */
import { CommandError } from "../../../lib/os/command_runner.ts";
import { firstLine, saysNotPermitted } from "../probe/try_tool.ts";
import type { NftTransaction } from "./nft_transaction.ts";

/**
 * `refused`: lines of the input were refused, and none of it was applied. `unavailable`: the
 * program is missing or may not be used. `unclear`: it hung, was killed, or printed an unknown
 * message; its effect is unknown.
 */
type NftErrorKind = "refused" | "unavailable" | "unclear";

/** A line that was refused. */
interface RefusedLine {
  /** From 1. */
  readonly number: number;
  readonly reason: string;
  readonly text?: string | undefined;
  readonly owner?: string | undefined;
}

/** A failure of nft. */
export class NftError extends Error {
  override name = "NftError";
  readonly kind: NftErrorKind;
  /** Every line that the tool named. */
  readonly lines: readonly RefusedLine[];

  constructor(
    message: string,
    { kind, lines = [], ...options }: ErrorOptions & {
      readonly kind: NftErrorKind;
      readonly lines?: readonly RefusedLine[];
    },
  ) {
    super(message, options);
    this.kind = kind;
    this.lines = lines;
  }
}

/** The exit of the tool. */
interface NftFailure {
  /** The attempted action, e.g. `write table ip kube-relay of nftables`. */
  readonly action: string;
  readonly code: number;
  readonly stderr: string;
}

/** A process that could not be run to its end. */
export function errorOfCommand(action: string, error: unknown): unknown {
  if (!(error instanceof CommandError)) return error;
  const isMissing = error.kind === "not-found" || error.kind === "not-permitted";
  const kind = isMissing ? "unavailable" : "unclear";
  return new NftError(`Cannot ${action}: ${error.message}`, { kind, cause: error });
}

/** Returns the error of a tool that did not accept its input. */
export function errorOfWrite(failure: NftFailure, input: NftTransaction): NftError {
  const { action, code, stderr } = failure;
  if (saysNotPermitted(stderr)) {
    const message = `Cannot ${action}: ${firstLine(stderr)} (needs root or CAP_NET_ADMIN)`;
    return new NftError(message, { kind: "unavailable" });
  }
  const texts = input.toLines();
  const refused = [...stderr.matchAll(/^\S+?:(\d+):[\d-]+: Error: (.*)$/gm)];
  const lines = refused.flatMap(([, digits, reason = ""]) => {
    // The parser gives line 0 to errors that it finds after the end.
    const number = Number(digits);
    const text = texts[number - 1]?.trim();
    return text === undefined ? [] : [{ number, reason, text, owner: input.ownerOf(number) }];
  });
  const [first] = lines;
  // nft exits with 1 if it refuses the input. A signal or a failed assertion gives another status.
  if (code !== 1 || first === undefined) return errorOfRead(failure);
  const { owner, text } = first;
  const message = `Cannot ${action}: line ${first.number} "${text}"` +
    `${owner === undefined ? "" : ` of ${owner}`}: ${first.reason}`;
  return new NftError(message, { kind: "refused", lines });
}

/** The error of a tool that did not list something. */
export function errorOfRead({ action, code, stderr }: NftFailure): NftError {
  const kind = saysNotPermitted(stderr) ? "unavailable" : "unclear";
  const reason = firstLine(stderr) || "no word why";
  return new NftError(`Cannot ${action}: exit code ${code}: ${reason}`, { kind });
}

/** Whether the listed object does not exist. */
export function saysNotFound(stderr: string): boolean {
  return /No such file or directory/.test(stderr);
}
