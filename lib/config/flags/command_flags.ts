/**
 * Flags that stand for verbs or belong to some, and where the verbs meet a running process.
 *
 * @module
 */
import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const COMMAND_FLAGS = [
  {
    name: "control-socket",
    type: "text",
    group: "Control",
    value: "PATH",
    help:
      "Unix socket that status and other verbs ask; by default /run/kube-relay/control.sock for " +
      "root and a place of the user's own for others",
    withConfig: "used",
  },
  {
    name: "state-dir",
    type: "text",
    group: "Control",
    value: "DIR",
    help:
      "folder that remembers what was added to the machine, for --cleanup and the next start; by " +
      "default the folder of the control socket's default, which a boot clears",
    withConfig: "used",
  },
  {
    name: "json",
    type: "boolean",
    group: "Output",
    default: "false",
    help: "print JSON for programs in place of tables for people",
    verbs: ["status", "doctor"],
    withConfig: "used",
  },
  {
    name: "filter",
    type: "text",
    group: "Output",
    value: "TEXT",
    help: "only Services whose namespace/name begins with this, or has it as a whole word",
    verbs: ["status"],
    withConfig: "used",
  },
  {
    name: "service",
    type: "text",
    group: "Output",
    value: "NAMESPACE/NAME",
    help: "only what is for this Service, and the rules that lead there",
    verbs: ["render"],
    withConfig: "used",
  },
  {
    name: "family",
    type: "text",
    group: "Output",
    choices: ["ipv4", "ipv6"],
    // As Kubernetes' objects have them.
    pattern: /^IPv[46]$/,
    help: "only what is for this IP family; without it both, one after the other",
    verbs: ["render"],
    withConfig: "used",
  },
  {
    name: "cleanup",
    type: "boolean",
    group: "Commands",
    default: "false",
    help: "remove everything that any earlier run added to the machine, and exit",
    withConfig: "used",
  },
  {
    name: "init-only",
    type: "boolean",
    group: "Commands",
    default: "false",
    help: "do what needs privileges once, and exit; later runs can do with CAP_NET_ADMIN only",
    withConfig: "used",
  },
  {
    name: "write-config-to",
    type: "text",
    group: "Commands",
    value: "FILE",
    help: "write the configuration that follows from flags or --config to this file, and exit",
    emptyIsAbsent: true,
    verbs: ["write-config"],
    withConfig: "used",
  },
  {
    name: "takeover",
    type: "boolean",
    group: "Commands",
    default: "false",
    help: "start although a kube-proxy runs on this node, and remove what it leaves behind",
    withConfig: "used",
  },
  {
    name: "dry-run",
    type: "boolean",
    group: "Commands",
    default: "false",
    help: "with --cleanup or --takeover: say what would be done, and do nothing",
    withConfig: "used",
  },
  {
    name: "version",
    type: "text",
    group: "Commands",
    implied: "true",
    choices: ["true", "false", "raw"],
    pattern: /^v\d+\.\d+\.\d+/,
    default: "false",
    help:
      "print the version and exit; raw prints more of it. A version such as v1.36.0 is taken without effect",
    withConfig: "used",
  },
  {
    name: "help",
    aliases: ["h"],
    type: "boolean",
    group: "Commands",
    default: "false",
    help: "print this help and exit",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];
