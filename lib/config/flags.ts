/**
 * The one table of command line flags. Parsing, validation, `--help` and docs/flags.md are made from
 * it: to add a flag, add a row to the file of its group (and, when it sets a new field, that field).
 *
 * The names are kube-proxy's (1.36, and older ones that manifests still use) and kube-relay's own.
 *
 * @module
 */
import type { Flag, FlagValue } from "./flag.ts";
import { CLUSTER_FLAGS } from "./flags/cluster_flags.ts";
import { COMMAND_FLAGS } from "./flags/command_flags.ts";
import { KERNEL_FLAGS } from "./flags/kernel_flags.ts";
import { LOGGING_FLAGS } from "./flags/logging_flags.ts";
import { NODE_FLAGS } from "./flags/node_flags.ts";
import { POLICY_FLAGS } from "./flags/policy_flags.ts";
import { PROXYING_FLAGS } from "./flags/proxying_flags.ts";
import { RETIRED_FLAGS } from "./flags/retired_flags.ts";
import { ROUTING_FLAGS } from "./flags/routing_flags.ts";
import { SERVING_FLAGS } from "./flags/serving_flags.ts";

/** Every flag. */
const FLAGS = [
  ...CLUSTER_FLAGS,
  ...NODE_FLAGS,
  ...PROXYING_FLAGS,
  ...KERNEL_FLAGS,
  ...POLICY_FLAGS,
  ...ROUTING_FLAGS,
  ...SERVING_FLAGS,
  ...LOGGING_FLAGS,
  ...COMMAND_FLAGS,
  ...RETIRED_FLAGS,
] as const satisfies readonly Flag[];

/** Name of a flag in the table. */
export type FlagName = typeof FLAGS[number]["name"];

/** The values of the flags that were given. */
export type FlagValues = {
  readonly [Row in typeof FLAGS[number] as Row["name"]]?: FlagValue<Row["type"]>;
};

/** The table with every column on each row. */
export const FLAG_ROWS: readonly (Flag & { readonly name: FlagName })[] = FLAGS;

/** Returns the row of a name or an alias. `_` and `-` are equal, as in kube-proxy. */
export function findFlag(name: string): typeof FLAG_ROWS[number] | undefined {
  const wanted = name.replaceAll("_", "-");
  return FLAG_ROWS.find((flag) => flag.name === wanted || flag.aliases?.includes(wanted));
}
