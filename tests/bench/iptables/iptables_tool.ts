/**
 * The tool of the benchmark in its two forms.
 *
 * @module
 */
import type { BenchTool } from "../bench_namespace.ts";

/** The two programs that are called `iptables`. */
export type IptablesVariant = "nft" | "legacy";

/** `iptables-restore` as the mode runs it. */
export function iptablesTool(variant: IptablesVariant): BenchTool {
  return {
    program: `iptables-${variant}-restore`,
    args: (path) => ["-w", "5", "--noflush", "--counters", path],
  };
}
