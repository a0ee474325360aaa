/**
 * The parts that schemas of API objects are made of.
 *
 * A schema names the fields that kube-relay reads and the values that an API server would let through.
 * Manifests are validated with it as it stands. Objects of an API server are reduced to its fields; their
 * values were validated by the server. Messages of a schema are the end of a sentence: `has to be …`.
 *
 * @module
 */
import * as v from "valibot";
import { tryParseCidr } from "../net/cidr.ts";
import { type IpAddress, isUnspecified, tryParseIpAddress } from "../net/ip_address.ts";
import { PROTOCOLS } from "../net/port.ts";
import { notes } from "./schema_node.ts";

const TEXT = "has to be text; numbers, true and false need quotes";
const LABEL = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
const LABEL_MESSAGE =
  "has to be a DNS label: at most 63 small letters, digits and '-', with a letter or digit at both ends";
const MAPPING = "has to be a mapping of fields";

/** Text that hardly any two objects share. */
export const text = v.string(TEXT);

/** Text that many objects share, such as the name of a node. */
export const sharedText = v.pipe(text, notes({ isShared: true }));

/** A time, as RFC 3339 with whole seconds. */
const time = v.pipe(text, notes({ format: "time" }));

/** A time, as RFC 3339 with microseconds. */
export const microTime = v.pipe(text, notes({ format: "micro time" }));

export const flag = v.boolean("has to be true or false");

export const dnsLabel = v.pipe(text, v.regex(LABEL, LABEL_MESSAGE), notes({ format: "name" }));

export const dnsSubdomain = v.pipe(
  text,
  v.maxLength(253, "has to be a DNS name of at most 253 characters"),
  v.regex(
    /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/,
    "has to be a DNS name: small letters, digits, '-' and '.', with a letter or digit at both ends",
  ),
  notes({ format: "name" }),
);

/** Name of a port; empty for the only port of a Service. */
export const portName = v.pipe(
  text,
  v.check((name) => name === "" || LABEL.test(name), LABEL_MESSAGE),
  notes({ isShared: true, format: "port name" }),
);

export const protocol = v.picklist(PROTOCOLS, `has to be ${PROTOCOLS.join(", ")}, in capitals`);

/** A port number; with `least` 0 also the API's way to say "none". */
export function portNumber(least: 0 | 1): v.GenericSchema<number> {
  return wholeNumber(
    least,
    65_535,
    ({ input }) =>
      `has to be a whole number between 1 and 65535${
        typeof input === "string" ? ", without quotes" : ""
      }`,
  );
}

/** A port number, or the name of a port of a container. */
export const portOrName = v.union(
  [
    portNumber(1),
    v.pipe(
      v.string(),
      v.regex(/^(?=.{1,15}$)(?=.*[a-z])(?!.*--)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?$/),
      notes({ isShared: true }),
    ),
  ],
  "has to be a port number between 1 and 65535, or the name of a port: at most 15 small letters, " +
    "digits and single '-', with at least one letter",
);

/** A whole number within limits. */
export function wholeNumber(
  least: number,
  most: number,
  message: string | ((issue: { readonly input: unknown }) => string),
): v.GenericSchema<number> {
  return v.pipe(
    v.number(message),
    v.check((input) => Number.isInteger(input) && input >= least && input <= most, message),
  );
}

/** Message of an address for which {@linkcode isServableAddress} is false. */
export const UNSERVABLE =
  "has to be an IPv4 or IPv6 address that is not unspecified, link-local or multicast";

/**
 * Whether traffic may be sent to an address or accepted for it. Link-local addresses are refused because
 * 169.254.169.254 hands out the credentials of cloud machines. Loopback addresses are allowed, unlike in
 * the API: a host without a cluster serves its own processes.
 */
export function isServableAddress(address: IpAddress | undefined): boolean {
  if (address === undefined || isUnspecified(address)) return false;
  if (address.includes(":")) return !/^(?:fe[89ab][0-9a-f]|ff[0-9a-f]{2}):/.test(address);
  return !address.startsWith("169.254.") && Number(address.slice(0, address.indexOf("."))) < 224;
}

export const ip = v.pipe(
  text,
  v.check((input) => isServableAddress(tryParseIpAddress(input)), UNSERVABLE),
);

export const cidr = v.pipe(
  text,
  v.check(
    (input) => tryParseCidr(input.trim()) !== undefined,
    "has to be an IP address, a slash and a prefix length, such as 10.0.0.0/8",
  ),
);

// Valibot accepts a list as an object.
const mapping = v.custom<object>(
  (input) => typeof input === "object" && input !== null && !Array.isArray(input),
  MAPPING,
);

/**
 * A field that has this number in protobuf. Empty text, 0 and false stand for an absent field if it
 * may be absent, as in the JSON of the API.
 */
export function at<T extends v.GenericSchema>(fieldNumber: number, schema: T): T {
  return v.pipe(schema, notes({ fieldNumber })) as unknown as T;
}

/** As {@linkcode at}, for a field that may be absent, empty, 0 or false: a pointer in Go. */
export function pointerAt<T extends v.GenericSchema>(fieldNumber: number, schema: T): T {
  return v.pipe(schema, notes({ fieldNumber, keepsZero: true })) as unknown as T;
}

/** The schema of an object. */
type Fields<T extends v.ObjectEntries> = v.GenericSchema<
  unknown,
  v.InferOutput<v.ObjectSchema<T, undefined>>
>;

/** The schema of labels, annotations and the like. */
type NamedTexts = v.NullishSchema<v.GenericSchema<unknown, Record<string, string>>, undefined>;

/** The schema of metadata. */
type Metadata<Name extends v.GenericSchema<string>, Extra extends v.ObjectEntries> = Fields<
  & {
    name: Name;
    namespace: v.NullishSchema<v.GenericSchema<string>, undefined>;
    resourceVersion: v.NullishSchema<v.GenericSchema<string>, undefined>;
    labels: NamedTexts;
    annotations: NamedTexts;
    deletionTimestamp: v.NullishSchema<v.GenericSchema<string>, undefined>;
    creationTimestamp: v.NullishSchema<v.GenericSchema<string>, undefined>;
  }
  & Extra
>;

/** One of some words. */
export function oneOf<const Words extends readonly string[]>(
  ...words: Words
): v.PicklistSchema<Words, string> {
  return v.picklist(words, `has to be ${words.slice(0, -1).join(", ")} or ${words.at(-1)}`);
}

/**
 * An object with the fields that are read. `unread`: those that the API has besides, separated by spaces;
 * `*` = they are not listed.
 */
export function fields<T extends v.ObjectEntries>(entries: T, unread = ""): Fields<T> {
  return v.pipe(mapping, v.object(entries, MAPPING), notes({ unread }));
}

/** A field with an object that may be absent; see {@linkcode at} and {@linkcode fields}. */
export function objectAt<T extends v.ObjectEntries>(
  fieldNumber: number,
  entries: T,
  unread = "",
): v.NullishSchema<Fields<T>, undefined> {
  return at(fieldNumber, v.nullish(fields(entries, unread)));
}

/** A field with an object that is empty where it is absent. */
export function objectOrEmptyAt<T extends v.ObjectEntries>(
  fieldNumber: number,
  entries: T,
  unread = "",
): v.NullishSchema<Fields<T>, object> {
  return at(fieldNumber, v.nullish(fields(entries, unread), {}));
}

/** A field with a list of objects that may be absent. */
export function listAt<T extends v.ObjectEntries>(
  fieldNumber: number,
  entries: T,
  unread = "",
): v.NullishSchema<v.ArraySchema<Fields<T>, string>, undefined> {
  return at(fieldNumber, list(fields(entries, unread)));
}

/** A list that may be absent. */
export function list<T extends v.GenericSchema>(
  item: T,
): v.NullishSchema<v.ArraySchema<T, string>, undefined> {
  return v.nullish(v.array(item, "has to be a list"));
}

/** A list that is empty where it is absent. */
export function listOrEmpty<T extends v.GenericSchema>(
  item: T,
): v.NullishSchema<v.ArraySchema<T, string>, v.InferInput<T>[]> {
  return v.nullish(v.array(item, "has to be a list"), []);
}

/**
 * As {@linkcode fields}, for objects in which a dropped field would change the meaning of the
 * others. Unknown fields are named in `unknownFields`, and an empty object is kept.
 */
export function guardedFields<T extends v.ObjectEntries>(
  entries: T,
): Fields<T & { unknownFields: v.NullishSchema<v.GenericSchema<string[]>, undefined> }> {
  const guarded = { ...entries, unknownFields: list(sharedText) };
  const schema = v.pipe(mapping, v.looseObject(guarded, MAPPING), notes({ isGuarded: true }));
  return schema as unknown as ReturnType<typeof guardedFields<T>>;
}

/** A list that is empty where it is absent, and that many objects have alike. */
export function sharedListOrEmpty<T extends v.GenericSchema>(
  item: T,
): v.NullishSchema<v.GenericSchema<v.InferOutput<T>[]>, v.InferInput<T>[]> {
  return v.nullish(v.pipe(v.array(item, "has to be a list"), notes({ isShared: true })), []);
}

/** Labels, annotations and the like, of which only some names are read, or all. */
export function namedTexts(
  names: readonly string[] | "all",
  { secret = [] }: { readonly secret?: readonly string[] } = {},
): NamedTexts {
  return v.nullish(v.pipe(mapping, v.record(v.string(), text), notes({ names, secret })));
}

/** The metadata of a kind. `extra` has fields that only some kinds keep. */
export function metadata<
  Name extends v.GenericSchema<string>,
  Extra extends v.ObjectEntries = Record<never, never>,
>(
  name: Name,
  { labels = [], annotations = [], secret = [] }: {
    readonly labels?: readonly string[] | "all";
    readonly annotations?: readonly string[];
    /** Annotations that no dump may hold. */
    readonly secret?: readonly string[];
  } = {},
  extra: Extra = {} as Extra,
): Metadata<Name, Extra> {
  const schema = fields(
    {
      name: at(1, name),
      namespace: at(3, v.nullish(v.pipe(dnsLabel, notes({ isShared: true })))),
      ...extra,
      resourceVersion: at(6, v.nullish(text)),
      labels: at(11, namedTexts(labels)),
      annotations: at(12, namedTexts([...annotations, ...secret], { secret })),
      deletionTimestamp: at(9, v.nullish(time)),
      // Whole seconds: objects that were created together share it.
      creationTimestamp: at(8, v.nullish(v.pipe(time, notes({ isShared: true })))),
    },
    "generateName selfLink uid generation deletionGracePeriodSeconds ownerReferences finalizers managedFields",
  );
  return at(1, schema);
}

/** The uid, for kinds about whose objects events are written. */
export const UID = { uid: at(5, v.nullish(text)) };
