/** Reads dumps and checks them. */
import * as v from "valibot";
import { DUMP_KIND } from "../../kube/manifests/manifest_objects.ts";
import { formatPath } from "../../kube/manifests/manifest_problem.ts";
import { jsonErrorPlace, messageOf } from "../../log/message_of.ts";
import { printableText } from "../../log/printable_text.ts";
import { readTextUpTo } from "../../os/read_text_up_to.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { StatusReport } from "../status/status_report.ts";
import { FORMAT_VERSION, OUTCOME_PART } from "./dump_schema.ts";

/** A dump of 10,000 Services has 15 MB. */
const MAX_BYTES = 256 * 1024 * 1024;

/** Most characters of a wrong value that are shown. */
const LONGEST_VALUE = 40;

/**
 * Thrown for a dump that cannot be used. The message names the path in it, the value, and the
 * remedy.
 */
export class DumpError extends Error {
  override name = "DumpError";
}

/** Reads the needed part of the dump of a file; the rest is not checked. Throws a {@linkcode DumpError}. */
export async function readDumpFile<Part extends v.GenericSchema<unknown>>(
  path: string,
  part: Part,
): Promise<v.InferOutput<Part>> {
  const source = `dump '${path}'`;
  let text: string;
  try {
    text = await readTextUpTo(path, MAX_BYTES);
  } catch (error) {
    throw new DumpError(`Cannot read ${source}: ${messageOf(error)}`, { cause: error });
  }
  return parseDump(text, source, part);
}

/** Reads the text of a dump, which errors name `source`. Throws a {@linkcode DumpError}. */
export function parseDump<Part extends v.GenericSchema<unknown>>(
  text: string,
  source: string,
  part: Part,
): v.InferOutput<Part> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    // Without its cause, which quotes the text.
    throw new DumpError(
      `Cannot read ${source}: it is no JSON, or only a part of it${jsonErrorPlace(error)}`,
    );
  }
  return checkDump(value, source, part);
}

/** Checks parsed JSON. Throws a {@linkcode DumpError}. */
export function checkDump<Part extends v.GenericSchema<unknown>>(
  value: unknown,
  source: string,
  part: Part,
): v.InferOutput<Part> {
  checkIdentity(value, source);
  const result = v.safeParse(part, value, { abortEarly: true, abortPipeEarly: true });
  if (!result.success) throw new DumpError(`Cannot read ${source}: ${issueText(result.issues[0])}`);
  return result.output;
}

/** Checked first, so that a wrong file gets a message of its own. */
function checkIdentity(value: unknown, source: string): void {
  const { kind, formatVersion } = Object(value) as Readonly<Record<string, unknown>>;
  if (kind !== DUMP_KIND) {
    throw new DumpError(
      `Cannot read ${source}: it is not a dump: 'kind' has to be '${DUMP_KIND}'; ` +
        "'kube-relay dump FILE' writes one",
    );
  }
  if (formatVersion === FORMAT_VERSION) return;
  const found = typeof formatVersion === "number" ? `version ${formatVersion}` : "no version";
  throw new DumpError(
    `Cannot read ${source}: it has ${found} of the format, and this release reads only version ` +
      `${FORMAT_VERSION}; use the release that wrote it`,
  );
}

function issueText({ path, input, received, message }: v.BaseIssue<unknown>): string {
  const steps = (path ?? []).map(({ key }) => typeof key === "number" ? key : String(key));
  const name = printableText(formatPath(steps));
  if (input === undefined) return `${name} is missing`;
  return `${name} is ${valueText(input, received)}: it ${message}`;
}

/** Lists and objects may be deeply nested, so they are not printed. */
function valueText(value: unknown, received: string): string {
  if (typeof value === "object" && value !== null) {
    return Array.isArray(value) ? "a list" : "an object";
  }
  const text = printableText(typeof value === "string" ? JSON.stringify(value) : received);
  return text.length <= LONGEST_VALUE ? text : `${text.slice(0, LONGEST_VALUE)}…`;
}

/**
 * Reads the status of a dump, and the time of the dump in milliseconds since 1970. Throws a
 * {@linkcode DumpError}, also for a dump that has none.
 */
export async function readDumpedStatus(
  path: string,
): Promise<{ readonly report: StatusReport; readonly now: number }> {
  const { status, writtenAt } = await readDumpFile(path, OUTCOME_PART);
  if (status === undefined) throw missing(path, "a status");
  return { report: status, now: Date.parse(writtenAt) };
}

/** Reads the last changes of a dump. Throws a {@linkcode DumpError}, also for a dump that has none. */
export async function readDumpedChanges(path: string): Promise<ChangesReport> {
  const { changes } = await readDumpFile(path, OUTCOME_PART);
  if (changes === undefined) throw missing(path, "changes");
  return changes;
}

function missing(path: string, what: string): DumpError {
  return new DumpError(
    `The dump '${path}' does not contain ${what}: no kube-relay was running when it was made; ` +
      "'kube-relay render --from FILE' prints the planned rules",
  );
}
