/**
 * Flags about the health and metrics servers.
 *
 * @module
 */
import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const SERVING_FLAGS = [
  {
    name: "healthz-bind-address",
    type: "text",
    group: "Health and metrics",
    value: "IP[:PORT]",
    field: "healthzBindAddress",
    help: "address of /healthz and /livez",
    withConfig: "ignored",
  },
  {
    name: "healthz-port",
    type: "integer",
    group: "Health and metrics",
    value: "PORT",
    minimum: 0,
    maximum: 65535,
    default: "10256",
    help: "port of /healthz if --healthz-bind-address names none; 0 turns the server off",
    withConfig: "ignored",
    deprecated: "use --healthz-bind-address",
  },
  {
    name: "metrics-bind-address",
    type: "text",
    group: "Health and metrics",
    value: "IP[:PORT]",
    field: "metricsBindAddress",
    help: "address of /metrics",
    withConfig: "ignored",
  },
  {
    name: "metrics-port",
    type: "integer",
    group: "Health and metrics",
    value: "PORT",
    minimum: 0,
    maximum: 65535,
    default: "10249",
    help: "port of /metrics if --metrics-bind-address names none; 0 turns the server off",
    withConfig: "ignored",
    deprecated: "use --metrics-bind-address",
  },
  {
    name: "bind-address-hard-fail",
    type: "boolean",
    group: "Health and metrics",
    field: "bindAddressHardFail",
    help: "exit if one of these two addresses cannot be bound, instead of trying again every 5 s",
    withConfig: "ignored",
  },
  {
    name: "profiling",
    type: "boolean",
    group: "Health and metrics",
    field: "enableProfiling",
    help: "serve /debug/flags/v on the metrics port; there is no /debug/pprof",
    withConfig: "ignored",
  },
  {
    name: "status-page",
    type: "boolean",
    group: "Health and metrics",
    default: "false",
    help:
      "serve a page for browsers on this machine at / of the metrics port: Services, syncs, changes",
    withConfig: "used",
  },
  {
    name: "show-hidden-metrics-for-version",
    type: "text",
    group: "Health and metrics",
    value: "VERSION",
    field: "showHiddenMetricsForVersion",
    help: "show metrics that were hidden since this release; only the previous minor release is " +
      "valid",
    withConfig: "ignored",
  },
] as const satisfies readonly Flag[];
