/**
 * All fields of a dump. A field that is not listed is neither written nor read; docs/dump.md has
 * the same list.
 */
import * as v from "valibot";
import type { KindSpec } from "../../api/kind.ts";
import { POLICY_KINDS } from "../../app/policy/policy_access.ts";
import { SERVICE_KINDS } from "../../app/service/service_subscriptions.ts";
import { DUMP_KIND } from "../../kube/manifests/manifest_objects.ts";
import { CHANGES } from "./dump_changes.ts";
import { CONFIGURATION, MACHINE_FACTS } from "./dump_configuration.ts";
import { DUMPED_ROUTING } from "./dump_routing.ts";
import { dumpedObjects } from "./dump_objects.ts";
import { mode, QUARANTINED, STATUS } from "./dump_status.ts";
import {
  type DumpSection,
  fields,
  flag,
  foreignText,
  ipAddress,
  ipFamily,
  list,
  number,
  objectName,
  optional,
  ownText,
  plainText,
  time,
} from "./dump_value.ts";

/** The version of the format; another number is another set of fields. */
export const FORMAT_VERSION = 2;

const identity = {
  kind: v.literal(DUMP_KIND, `has to be '${DUMP_KIND}'`),
  formatVersion: v.literal(FORMAT_VERSION, `has to be ${FORMAT_VERSION}`),
  writtenAt: time,
  versions: fields({ kubeRelay: ownText, deno: ownText, kernel: optional(ownText) }),
};

const inputs = {
  mode,
  nodeName: objectName,
  configuration: CONFIGURATION,
  objects: dumpedObjects(SERVICE_KINDS),
};

/** The section of the NetworkPolicy controller; its objects are elsewhere in the dump. */
export const DUMPED_POLICIES = fields({
  /** Absent if none was chosen yet. */
  tool: optional(plainText),
  families: list(ipFamily),
});

/** Includes the parts of runs with more controllers. */
const readInputs = {
  ...inputs,
  objects: dumpedObjects(SERVICE_KINDS, { optional: POLICY_KINDS }),
  controllers: optional(fields({
    "network-policy": optional(DUMPED_POLICIES),
    routing: optional(DUMPED_ROUTING),
  })),
};

const family = {
  family: ipFamily,
  interfaceAddresses: optional(list(ipAddress)),
  primaryAddress: optional(ipAddress),
  hosts: optional(list(fields({
    address: ipAddress,
    owner: foreignText,
    ports: optional(list(number)),
    isNode: optional(flag),
  }))),
  facts: MACHINE_FACTS,
  quarantined: optional(QUARANTINED),
};

const outcome = { status: optional(STATUS), changes: optional(CHANGES) };

/** Every field of a dump. */
export const DUMP_SCHEMA = fields({
  ...identity,
  ...inputs,
  families: list(fields(family)),
  ...outcome,
});

/**
 * The fields from which a plan is computed.
 */
export const INPUT_PART = fields({
  ...identity,
  ...readInputs,
  families: list(fields(family)),
});

/** The reports about the node. */
export const OUTCOME_PART = fields({ ...identity, ...outcome });

/** The schema of a dump in which further controllers have their kinds and sections. */
export function withControllers(
  schema: typeof DUMP_SCHEMA,
  { kinds, sections }: {
    readonly kinds: Iterable<KindSpec>;
    readonly sections: ReadonlyMap<string, DumpSection>;
  },
): v.GenericSchema {
  const entries = [...sections].map(([name, { schema }]) => [name, schema] as const);
  return fields({
    ...schema.entries,
    objects: dumpedObjects([...kinds]),
    controllers: fields(Object.fromEntries(entries)),
  });
}

/** A dump from which a plan is computed. */
export type InputDump = v.InferOutput<typeof INPUT_PART>;
