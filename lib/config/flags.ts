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
import { ROUTING_FLAGS } from "./flags/routing_flags.ts";
import { SERVING_FLAGS } from "./flags/serving_flags.ts";

/** A row for a flag without effect. */
function retired<Name extends string>(name: Name, { type, reason }: RetiredOptions) {
  return {
    name,
    type,
    group: "Retired",
    help: reason,
    withConfig: "used",
    retired: true,
  } as const satisfies Flag;
}

interface RetiredOptions {
  /** Booleans take no value as the next argument, all others do. */
  readonly type: "boolean" | "text";
  /** The replacement, or the reason why none is needed. */
  readonly reason: string;
}

const KLOG_FILES = "the log goes to standard error only; let the supervisor store it";
const KLOG_FORM = "has no effect; see --logging-format for how a line looks";
const WINDOWS = "of Windows only, has no effect";
const LINKED_IN = "of a library that kube-proxy was built with, never had an effect";

/**
 * Flags that manifests of older or other kube-proxies still use. Nothing reads them. kube-relay logs
 * them, so that such a manifest keeps working; upstream refuses to start with them.
 */
const RETIRED_FLAGS = [
  retired("cleanup-iptables", { type: "boolean", reason: "has no effect; use --cleanup" }),
  retired("cleanup-ipvs", { type: "boolean", reason: "has no effect; use --cleanup" }),
  retired("proxy-port-range", {
    type: "text",
    reason: "of kube-proxy's old userspace mode, which bound such ports; has no effect",
  }),
  retired("conntrack-max", {
    type: "text",
    reason: "has no effect; use --conntrack-max-per-core and --conntrack-min",
  }),
  retired("resource-container", {
    type: "text",
    reason: "has no effect; the supervisor chooses the control group",
  }),
  retired("azure-container-registry-config", { type: "text", reason: LINKED_IN }),
  retired("google-json-key", { type: "text", reason: LINKED_IN }),
  retired("boot-id-file", { type: "text", reason: LINKED_IN }),
  retired("machine-id-file", { type: "text", reason: LINKED_IN }),
  retired("logtostderr", { type: "boolean", reason: KLOG_FILES }),
  retired("alsologtostderr", { type: "boolean", reason: KLOG_FILES }),
  retired("log-dir", { type: "text", reason: KLOG_FILES }),
  retired("log-file", { type: "text", reason: KLOG_FILES }),
  retired("log-file-max-size", { type: "text", reason: KLOG_FILES }),
  retired("log-backtrace-at", { type: "text", reason: "has no effect" }),
  retired("skip-headers", { type: "boolean", reason: KLOG_FORM }),
  retired("skip-log-headers", { type: "boolean", reason: KLOG_FILES }),
  retired("stderrthreshold", { type: "text", reason: KLOG_FILES }),
  retired("add-dir-header", { type: "boolean", reason: KLOG_FORM }),
  retired("one-output", { type: "boolean", reason: KLOG_FILES }),
  retired("windows-service", { type: "boolean", reason: WINDOWS }),
  retired("network-name", { type: "text", reason: WINDOWS }),
  retired("source-vip", { type: "text", reason: WINDOWS }),
  retired("enable-dsr", { type: "boolean", reason: WINDOWS }),
  retired("root-hnsendpoint-name", { type: "text", reason: WINDOWS }),
  retired("forward-healthcheck-vip", { type: "boolean", reason: WINDOWS }),
] as const satisfies readonly Flag[];

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
