/**
 * The packet counters of the kernel (nfacct) that rules of this mode refer to. They have upstream's
 * names and belong to the network namespace: both IP families and both variants of iptables share
 * them. They outlive the process, so that they count on after a restart.
 *
 * @module
 */
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { ProbeResult, RuleCounters } from "../../lib/proxy/backend.ts";
import type { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { RULE_FEATURES } from "../netfilter/iptables_features.ts";
import { probeResult } from "../netfilter/probe/feature.ts";
import { firstLine, type ProbeDependencies, tryTool } from "../netfilter/probe/try_tool.ts";
import { INVALID_COUNTER, LOCALHOST_COUNTER } from "./base_chains.ts";

const COUNTERS = [INVALID_COUNTER, LOCALHOST_COUNTER];
/** Exists only during a probe. A killed probe leaves it; the next one removes it. */
const SCRATCH_COUNTER = "kube-relay-probe";
/** Printed for a counter that exists already (EBUSY), and for one that a rule refers to. */
const BUSY = /Device or resource busy/;

/**
 * Creates the counters. Does nothing where they exist, or where the tool or the kernel cannot: the
 * probe of the rules shows then that they are missing.
 */
export async function createCounters(dependencies: ProbeDependencies): Promise<void> {
  for (const name of COUNTERS) await tryTool(dependencies, ["nfacct", "add", name]);
}

/** Reads the packets that the counters have seen. A counter that cannot be read is left out. */
export async function readCounters(
  { commands }: { readonly commands: CommandRunner },
): Promise<Pick<RuleCounters, "invalidDroppedPackets" | "localhostNodePortPackets">> {
  const answer = await tryTool({ commands }, ["nfacct", "list"]);
  const text = answer.kind === "ended" && answer.code === 0 ? answer.out : "";
  // `{ pkts = 00000000000000000012, bytes = 00000000000000000720 } = name;`
  const found = new Map(
    [...text.matchAll(/pkts = (\d+),.*\} = (\S+);/g)].map(([, packets, name]) =>
      [name, Number(packets)] as const
    ),
  );
  const [invalid, localhost] = COUNTERS.map((name) => found.get(name));
  return {
    ...(invalid !== undefined && { invalidDroppedPackets: invalid }),
    ...(localhost !== undefined && { localhostNodePortPackets: localhost }),
  };
}

/** Removes the counters. The kernel keeps a counter that any rule still refers to, in either family. */
export async function removeCounters(
  { commands }: { readonly commands: CommandRunner },
  run: RemovalRun,
): Promise<void> {
  const listed = await tryTool({ commands }, ["nfacct", "list"], run.signal);
  if (listed.kind !== "ended") return;
  for (const name of COUNTERS.filter((each) => listed.out.includes(`} = ${each};`))) {
    const what = `packet counter ${name} (nfacct)`;
    const reason = await run.try({ command: ["nfacct", "delete", name], removes: [what] });
    if (reason !== undefined && !BUSY.test(reason)) run.fail(`${what}: ${reason}`);
  }
}

/** A counter that rules can be tried with; `missing` = there is none, and why. */
export interface ScratchCounter extends AsyncDisposable {
  /** The match of a rule that refers to it. */
  readonly rule: string;
  readonly missing: ProbeResult | undefined;
}

/** Creates a counter for a probe, which removes it again. */
export async function createScratchCounter(
  dependencies: ProbeDependencies,
  { signal }: { readonly signal?: AbortSignal | undefined },
): Promise<ScratchCounter> {
  const answer = await tryTool(dependencies, ["nfacct", "add", SCRATCH_COUNTER], { signal });
  const isThere = answer.kind === "ended" && (answer.code === 0 || BUSY.test(answer.err));
  const reason = answer.kind !== "ended"
    ? { reason: answer.reason, cure: "install nfacct (Debian package nfacct)" }
    : { reason: firstLine(answer.err) || `exit code ${answer.code}, no word why` };
  return {
    rule: `-m nfacct --nfacct-name ${SCRATCH_COUNTER}`,
    missing: isThere ? undefined : probeResult(RULE_FEATURES.nfacct, reason),
    async [Symbol.asyncDispose]() {
      if (isThere) await tryTool(dependencies, ["nfacct", "delete", SCRATCH_COUNTER]);
    },
  };
}
