/**
 * Flags that manifests of older or other kube-proxies still use. kube-relay accepts and logs them,
 * so that such a manifest keeps working; upstream refuses to start with them.
 *
 * @module
 */
import type { Flag } from "../flag.ts";

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

/** Rows of the table in `flags.ts`; none of them is read by anything. */
export const RETIRED_FLAGS = [
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
