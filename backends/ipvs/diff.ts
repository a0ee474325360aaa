/**
 * Computes the input of each tool from the applied and the desired state. The order ensures that no
 * packet meets a partial state. Pure.
 *
 * 1. Sets: new entries for masquerade, source ranges and refusals. Frontends to be removed leave
 *    `SERVED`, so new connections to them are refused from here on.
 * 2. Rules, if any differ.
 * 3. Virtual servers, all at once: new, changed and removed ones.
 * 4. Addresses. A new address receives its first packet here, after everything else is written.
 * 5. Sets: new ports of existing addresses are opened, and unused entries removed.
 * 6. Unused rules of single Services are removed.
 *
 * A change of endpoints starts one process. Adding or removing a Service starts three, whatever the
 * number of Services.
 *
 * @module
 */
import { addDummyLine, addressLine } from "../iproute/ip_text.ts";
import {
  type Chain,
  type IptablesTable,
  type Jump,
  ruleText,
} from "../netfilter/iptables/iptables_objects.ts";
import { restoreLines, type WrittenChain } from "../netfilter/iptables/restore_batch.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import type { AppliedServers } from "./applied_servers.ts";
import { BASE_JUMPS, baseChains, FROM_CLUSTER } from "./base_rules.ts";
import { diffServers, type ServerChanges } from "./diff_servers.ts";
import { setChanges } from "./diff_sets.ts";
import { SET_IDS, type SetId, setName, setOptions } from "./ipset_table.ts";
import {
  addLine,
  createLine,
  deleteLine,
  destroyLine,
  replaceLines,
} from "../netfilter/ipset/ipset_text.ts";
import type { IpvsLayout } from "./layout.ts";
import type { IpvsStep } from "./steps.ts";
import type { WriteBounds } from "./write_room.ts";

/** The state of the kernel that the layout and the servers do not contain. */
export interface KernelState {
  /** Sets that have to be created. */
  readonly missingSets: ReadonlySet<SetId>;
  /** Sets that exist with other options and are replaced. */
  readonly otherSets: ReadonlySet<SetId>;
  /** Sets that block a swap: left by a killed run, or of another type. */
  readonly staleSets: readonly string[];
  /** Whether the device exists. */
  readonly hasDevice: boolean;
  /** Whether the fixed rules are as desired. */
  readonly hasRules: boolean;
  /** Jumps that are missing. */
  readonly jumps: readonly Jump[];
  /**
   * Whether another mode is still serving: its rules in table nat stay until everything else
   * exists.
   */
  readonly isTakeover: boolean;
}

/** The steps of one sync. */
export interface IpvsBatch {
  readonly steps: readonly IpvsStep[];
  /** The servers in the kernel after all steps. */
  readonly servers: ServerChanges["applied"];
  readonly unfinished: ServerChanges["unfinished"];
}

/** The device that makes Service addresses local. kube-proxy uses the same name. */
export const DEVICE = "kube-ipvs0";

/** A kernel without objects of this mode. */
export const EMPTY_KERNEL: KernelState = {
  missingSets: new Set(SET_IDS),
  otherSets: new Set(),
  staleSets: [],
  hasDevice: false,
  hasRules: false,
  jumps: BASE_JUMPS,
  isTakeover: false,
};

/** A kernel that holds the last applied state. */
export const KNOWN_KERNEL: KernelState = {
  missingSets: new Set(),
  otherSets: new Set(),
  staleSets: [],
  hasDevice: true,
  hasRules: true,
  jumps: [],
  isTakeover: false,
};

/** Computes the steps from the applied to the desired state, with pauses. */
export function* diffInSteps(
  layout: IpvsLayout,
  applied: AppliedServers,
  { bounds, ...kernel }: KernelState & { readonly bounds?: WriteBounds },
): Generator<void, IpvsBatch> {
  const servers = yield* diffServers(layout, applied, bounds);
  const early = new Set<IptablesTable>(kernel.isTakeover ? ["mangle", "filter"] : ALL_TABLES);
  const late = new Set<IptablesTable>(kernel.isTakeover ? ["nat"] : []);
  const sets = {
    tool: "ipset",
    lines: yield* collect(setsBefore(layout, applied, kernel)),
  } as const;
  const rules = { tool: "iptables", lines: rulesBefore(layout, kernel, early) } as const;
  const addresses = yield* collect(addressLines(layout, kernel));
  const steps: IpvsStep[] = [
    // iptables refuses rules that name a missing set, so they come after the sets. Rules of a single
    // Service come before the entries that drop packets by its policy.
    ...(kernel.hasRules ? [rules, sets] : [sets, rules]),
    { tool: "ipvsadm", operations: servers.operations },
    { tool: "ip", lines: addresses },
    { tool: "iptables", lines: kernel.isTakeover ? rulesBefore(layout, kernel, late) : [] },
    { tool: "ipset", lines: yield* collect(setsAfter(layout, applied, kernel)) },
    { tool: "iptables", lines: rulesAfter(layout, kernel) },
  ];
  const { applied: after, unfinished } = servers;
  return { steps: steps.filter((step) => !isEmpty(step)), servers: after, unfinished };
}

/** kube-proxy has no such set. */
const PROOF: SetId = "SERVED";
/** Lines between two pauses. */
const LINES_PER_STEP = 512;
const ALL_TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];

/** As {@linkcode diffInSteps}, without pauses. */
export function diffIpvs(
  layout: IpvsLayout,
  applied: AppliedServers,
  kernel: KernelState,
): IpvsBatch {
  return atOnce(diffInSteps(layout, applied, kernel));
}

function isEmpty(step: IpvsStep): boolean {
  return (step.tool === "ipvsadm" ? step.operations : step.lines).length === 0;
}

/** Collects lines in short steps. */
function* collect(lines: Iterable<string>): Generator<void, string[]> {
  const all: string[] = [];
  for (const line of lines) {
    all.push(line);
    if (all.length % LINES_PER_STEP === 0) yield;
  }
  return all;
}

function* setsBefore(
  layout: IpvsLayout,
  applied: AppliedServers,
  { missingSets, otherSets, staleSets }: KernelState,
): Generator<string> {
  const { family } = layout.options;
  for (const name of staleSets) yield destroyLine(name);
  // This set exists before the others, so that a cleanup recognizes them.
  if (missingSets.has(PROOF)) yield createLine(setName(PROOF, family), setOptions(PROOF, family));
  for (const id of SET_IDS) {
    const name = setName(id, family);
    const options = setOptions(id, family);
    const entries = layout.sets[id].wanted;
    if (otherSets.has(id)) yield* replaceLines(name, { options, entries });
    else if (missingSets.has(id) && id !== PROOF) yield createLine(name, options);
  }
  const changes = setChanges(layout, applied).filter(({ id }) => !otherSets.has(id));
  for (const { name, removed } of changes) {
    for (const entry of removed.early) yield deleteLine(name, entry);
  }
  for (const { name, added } of changes) {
    for (const entry of added.early) yield addLine(name, entry);
  }
}

function* setsAfter(
  layout: IpvsLayout,
  applied: AppliedServers,
  { otherSets }: KernelState,
): Generator<string> {
  const changes = setChanges(layout, applied).filter(({ id }) => !otherSets.has(id));
  for (const { name, added } of changes) {
    for (const entry of added.late) yield addLine(name, entry);
  }
  // In reverse: entries that refuse are removed before those that admit.
  for (const { name, removed } of changes.reverse()) {
    for (const entry of removed.late) yield deleteLine(name, entry);
  }
}

function rulesBefore(
  layout: IpvsLayout,
  { hasRules, jumps }: KernelState,
  tables: ReadonlySet<IptablesTable>,
): string[] {
  const chains = hasRules ? [] : baseChains(layout.ruleContext);
  const appended = hasRules
    ? layout.rules.missing.map((rule) => ({ from: FROM_CLUSTER, rule }))
    : [];
  return restoreLines(
    ALL_TABLES.filter((table) => tables.has(table)).map((table) => ({
      table,
      chains: chains.filter((chain) => chain.table === table)
        .map((chain) => writtenChain(chain, layout)),
      appended: table === "nat" ? appended : [],
      jumps: jumps.filter((jump) => jump.table === table),
    })),
  );
}

/** A chain with its rules; those of single Services come last. */
export function writtenChain({ name, rules }: Chain, layout: IpvsLayout): WrittenChain {
  const own = name === FROM_CLUSTER ? layout.rules.wanted : [];
  return { name, rules: [...rules.map(ruleText), ...own] };
}

function rulesAfter({ rules }: IpvsLayout, { hasRules }: KernelState): string[] {
  // A chain that was written as a whole has none of them.
  const stale = hasRules ? rules.stale : [];
  return restoreLines([
    { table: "nat", removedJumps: stale.map((rule) => ({ from: FROM_CLUSTER, rule })) },
  ]);
}

function* addressLines(
  { addresses }: IpvsLayout,
  { hasDevice }: KernelState,
): Generator<string> {
  if (!hasDevice) yield addDummyLine(DEVICE);
  // For an existing entry, "add" would be the last line that is read.
  for (const address of addresses.missing) {
    yield addressLine("replace", { address, device: DEVICE });
  }
  for (const address of addresses.stale) yield addressLine("del", { address, device: DEVICE });
}
