/**
 * Why `nft` failed. The only file that reads its words.
 *
 * @module
 */
import { CommandError } from "../../lib/os/command_runner.ts";
import { firstLine, saysNotPermitted } from "../netfilter/probe/try_tool.ts";

/**
 * `refused`: lines of the input were, and nothing of it was taken. `unavailable`: the program is
 * missing or may not be used. `unclear`: it hung, was killed, or said something that nobody
 * understands; what it did is unknown.
 */
type NftErrorKind = "refused" | "unavailable" | "unclear";

/** A line that was refused. */
interface RefusedLine {
  /** From 1. */
  readonly number: number;
  readonly reason: string;
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

/** What was given to the tool. */
export interface NftInput {
  readonly lines: readonly string[];
  /** Whom a line is for, e.g. a Service; lines count from 1. */
  ownerOf(line: number): string | undefined;
}

const REFUSED = /^\S+?:(\d+):[\d-]+: Error: (.*)$/gm;

/** A process that could not be run to its end. `action` is e.g. `write the table of nftables`. */
export function errorOfCommand(action: string, error: unknown): unknown {
  if (!(error instanceof CommandError)) return error;
  const isMissing = error.kind === "not-found" || error.kind === "not-permitted";
  const kind = isMissing ? "unavailable" : "unclear";
  return new NftError(`Cannot ${action}: ${error.message}`, { kind, cause: error });
}

/** What nft said when it did not take its input. */
export function errorOfWrite(
  { code, stderr }: { readonly code: number; readonly stderr: string },
  input: NftInput,
): NftError {
  const action = "Cannot write the table of nftables";
  const reason = firstLine(stderr) || "no word why";
  if (saysNotPermitted(stderr)) {
    const message = `${action}: ${reason} (needs root or CAP_NET_ADMIN)`;
    return new NftError(message, { kind: "unavailable" });
  }
  const lines = [...stderr.matchAll(REFUSED)]
    .map(([, number, reason]) => ({ number: Number(number), reason: reason ?? "" }))
    // The parser gives line 0 to what it finds out after the end.
    .filter(({ number }) => input.lines[number - 1] !== undefined);
  const [first] = lines;
  // 1 is what it ends with when it has judged the input; a signal or an assertion is something else.
  if (code !== 1 || first === undefined) {
    return new NftError(`${action}: exit code ${code}: ${reason}`, { kind: "unclear" });
  }
  const owner = input.ownerOf(first.number);
  const text = input.lines[first.number - 1]?.trim();
  const message = `${action}: line ${first.number} "${text}"` +
    `${owner === undefined ? "" : ` of ${owner}`}: ${first.reason}`;
  return new NftError(message, { kind: "refused", lines });
}

/** What nft said when it did not list something. */
export function errorOfRead(
  { code, stderr }: { readonly code: number; readonly stderr: string },
): NftError {
  const kind = saysNotPermitted(stderr) ? "unavailable" : "unclear";
  const reason = firstLine(stderr) || "no word why";
  return new NftError(`Cannot read the table of nftables: exit code ${code}: ${reason}`, { kind });
}

/** Whether what was to be listed is not there. */
export function saysNotFound(stderr: string): boolean {
  return /No such file or directory/.test(stderr);
}
