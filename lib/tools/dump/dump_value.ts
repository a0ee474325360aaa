/** Schemas of the values in a dump. Their messages are the end of a sentence: `has to be …`. */
import * as v from "valibot";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { tryParseCidr } from "../../net/cidr.ts";
import { IP_FAMILIES, tryParseIpAddress } from "../../net/ip_address.ts";

const TEXT = "has to be text";

/**
 * Text that is safe to print on a terminal: no control characters, text direction or line breaks.
 */
const PLAIN = /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u;

/** Longest name of an object, of the node, or of a feature. */
const LONGEST_NAME = 253;

/** Text of an object or of the configuration, in one line. */
export const plainText = v.pipe(
  v.string(TEXT),
  v.regex(PLAIN, "has to be text without control characters"),
);

/** Text of other programs: of a tool, a library, the API server. Secrets are removed from it. */
export const foreignText = v.string(TEXT);

/** Text that kube-relay made itself, in one line. */
export const ownText = v.pipe(
  v.string(TEXT),
  v.regex(PLAIN, "has to be text without control characters"),
);

export const flag = v.boolean("has to be true or false");

export const number = v.pipe(
  v.number("has to be a number"),
  v.finite("has to be a finite number"),
);

/** A time in the format of RFC 3339. */
export const time = v.pipe(
  v.string(TEXT),
  v.regex(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/, "has to be a time such as 2026-01-02T03:04:05Z"),
  v.check((text) => !Number.isNaN(Date.parse(text)), "has to be a valid time"),
);

/** Name of an object or of a node. The characters are those that rules and chains may have. */
export const objectName = v.pipe(
  v.string(TEXT),
  v.regex(
    /^[A-Za-z0-9](?:[-A-Za-z0-9._]*[A-Za-z0-9])?$/,
    "has to be a name of letters, digits, '-' and '.', with a letter or digit at both ends",
  ),
  v.maxLength(LONGEST_NAME, `has to be a name of at most ${LONGEST_NAME} characters`),
);

/** Name of a port; the empty one for the only port of a Service. */
export const portName = v.pipe(
  v.string(TEXT),
  v.regex(/^[-A-Za-z0-9._]{0,63}$/, "has to be at most 63 letters, digits and '-'"),
);

export const ipAddress = v.pipe(
  v.string(TEXT),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const address = tryParseIpAddress(dataset.value);
    if (address !== undefined) return address;
    addIssue({ message: "has to be an IP address" });
    return NEVER;
  }),
);

export const cidr = v.pipe(
  v.string(TEXT),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const range = tryParseCidr(dataset.value);
    if (range !== undefined) return range;
    addIssue({ message: "has to be a CIDR such as 10.96.0.0/12" });
    return NEVER;
  }),
);

export const ipFamily = v.picklist(IP_FAMILIES, `has to be ${IP_FAMILIES.join(" or ")}`);

/** Fields; any other one is dropped, in writing as in reading. */
export function fields<Entries extends v.ObjectEntries>(
  entries: Entries,
): v.ObjectSchema<Entries, string> {
  return v.object(entries, "has to be an object");
}

export function list<Entry extends v.GenericSchema>(entry: Entry): v.ArraySchema<Entry, string> {
  return v.array(entry, "has to be a list");
}

/** Fields with names that are not known in advance, such as those of counters. */
export function table<Value extends v.GenericSchema>(
  value: Value,
): v.RecordSchema<typeof objectName, Value, string> {
  return v.record(objectName, value, "has to be an object");
}

export const optional = v.exactOptional;

/** A controller's part of a dump: only fields of the schema are written. */
export interface DumpSection {
  /** Its blocks of the configuration. */
  readonly settings?: Partial<Pick<KubeProxyConfiguration, "networkPolicy" | "routing">>;
  readonly schema: v.GenericSchema;
  readonly value: unknown;
}

/** Settings in the form of the configuration file. */
export type DumpSettings = Readonly<Record<string, unknown>>;
