/**
 * The packet counters of the kernel (nfacct) that rules of iptables mode refer to. They have the names
 * of kube-proxy's and belong to the network namespace: both IP families and both variants of iptables
 * share them. They outlive the process, so a restart continues to count.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { RuleCounters } from "../../lib/proxy/backend.ts";
import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import type { RemovalRun } from "./foreign/removal_run.ts";
import { INVALID_COUNTER, LOCALHOST_COUNTER, RULE_FEATURES } from "./iptables/iptables_features.ts";
import { probeResult } from "./probe/try_features.ts";
import { type AskOptions, firstLine, type ProbeDependencies, tryTool } from "./probe/try_tool.ts";

/** The rules of an iptables mode always refer to the first one, unless conntrack is liberal. */
const COUNTERS = [INVALID_COUNTER, LOCALHOST_COUNTER];
/** Exists only during a probe. A killed probe leaves it; the next one removes it. */
const SCRATCH_COUNTER = "kube-relay-probe";
/** Printed for a counter that exists already (EBUSY), and for one that a rule refers to. */
const BUSY = /Device or resource busy/;

/** As of {@linkcode tryTool}. */
type CounterOptions = Pick<AskOptions, "mayBeRecent" | "signal">;

/**
 * Creates the counters that do not exist. Returns whether rules may refer to them: both exist, and the
 * tool can read them.
 */
export async function ensureCounters(
  dependencies: ProbeDependencies,
  options: CounterOptions = {},
): Promise<boolean> {
  if (await hasCounters(dependencies, options)) return true;
  let areCreated = true;
  for (const name of COUNTERS) {
    const answer = await tryTool(dependencies, ["nfacct", "add", name], options);
    areCreated &&= answer.kind === "ended" && answer.code === 0;
  }
  return areCreated || await hasCounters(dependencies);
}

/** Returns whether both counters exist and the tool can read them. */
export async function hasCounters(
  dependencies: ProbeDependencies,
  options: CounterOptions = {},
): Promise<boolean> {
  const counters = await listCounters(dependencies, options);
  return COUNTERS.every((name) => counters.has(name));
}

/**
 * Creates counters that another program has deleted; the kernel refuses rules that refer to them.
 * Returns whether both exist now.
 */
export async function recreateCounters(
  { commands, logger }: { readonly commands: CommandRunner; readonly logger: Logger },
): Promise<boolean> {
  if (await hasCounters({ commands })) return true;
  const exist = await ensureCounters({ commands });
  if (exist) {
    logger.warn("Another program deleted the packet counters of nfacct; created them again");
  } else {
    logger.warn(
      "Cannot create the packet counters of nfacct again; rules are written without them",
      {
        cure: "see 'kube-relay doctor', then restart kube-relay",
      },
    );
  }
  return exist;
}

/** Reads the packets that the counters have seen. A counter that cannot be read is left out. */
export async function readCounters(
  dependencies: ProbeDependencies,
): Promise<Pick<RuleCounters, "invalidDroppedPackets" | "localhostNodePortPackets">> {
  const counters = await listCounters(dependencies);
  const [invalid, localhost] = COUNTERS.map((name) => counters.get(name));
  return {
    ...(invalid !== undefined && { invalidDroppedPackets: invalid }),
    ...(localhost !== undefined && { localhostNodePortPackets: localhost }),
  };
}

/** Packets by counter; empty if the tool or the kernel has none. */
async function listCounters(
  dependencies: ProbeDependencies,
  options: CounterOptions = {},
): Promise<ReadonlyMap<string, number>> {
  const answer = await tryTool(dependencies, ["nfacct", "list"], options);
  const text = answer.kind === "ended" && answer.code === 0 ? answer.out : "";
  // `{ pkts = 00000000000000000012, bytes = 00000000000000000720 } = name;`
  return new Map(
    [...text.matchAll(/pkts = (\d+),.*\} = (\S+);/g)].map(([, packets, name = ""]) =>
      [name, Number(packets)] as const
    ),
  );
}

/**
 * Removes the counters. The kernel keeps a counter that a rule still refers to: then an iptables mode is
 * in force, of the other family or of another program, and the remaining counters belong to it as well.
 * Returns the counter that had to stay.
 */
export async function removeCounters(
  { commands }: { readonly commands: CommandRunner },
  run: RemovalRun,
): Promise<string | undefined> {
  const counters = await listCounters({ commands });
  for (const name of COUNTERS.filter((each) => counters.has(each))) {
    const what = `packet counter ${name} (nfacct)`;
    const reason = await run.try({ command: ["nfacct", "delete", name], removes: [what] });
    if (reason === undefined) continue;
    if (BUSY.test(reason)) return what;
    run.fail(`${what}: ${reason}`);
  }
  return undefined;
}

/** A counter that rules can be tried with; `missing` = there is none, and why. */
interface ScratchCounter extends AsyncDisposable {
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
