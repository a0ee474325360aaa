/** A data plane of NetworkPolicy that remembers the enforced plan, and fails on demand. */
import type {
  PolicyBackend,
  PolicyBackendDependencies,
} from "../../../lib/app/policy/policy_backend.ts";
import type { CleanupReport, Quarantined, SyncReport } from "../../../lib/engine/data_plane.ts";
import { type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { judgeConnection, viewPlan } from "../../../lib/policy/judge_connection.ts";
import type {
  DeniedPackets,
  PeerSet,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
} from "../../../lib/policy/policy_plan.ts";
import type { DataPlaneDifference } from "../../../lib/proxy/data_plane.ts";

/** Enforces whole plans: a copy of each that was synced. */
export class FakePolicyBackend implements PolicyBackend {
  /** The plan of the last successful sync; absent before it. */
  plan: PolicyPlan | undefined;
  readonly syncs: PolicyPlanChanges[] = [];
  /** Makes the next syncs throw, one error each. */
  readonly failures: Error[] = [];
  quarantined: readonly Quarantined<PolicyKey>[] = [];
  /** The promise that a sync waits for. */
  hanging: Promise<void> = Promise.resolve();
  /** Packets, as the kernel counts them; a promise = the tool is slow. */
  denied: DeniedPackets | Promise<DeniedPackets> = {};
  started = 0;
  /** What a cleanup removes. */
  leftovers: readonly string[] = [];
  /** What a comparison finds until a repair. */
  differences: readonly DataPlaneDifference[] = [];

  constructor(
    readonly family: IpFamily,
    readonly onDrift?: PolicyBackendDependencies["onDrift"],
  ) {}

  start(): Promise<void> {
    this.started++;
    return Promise.resolve();
  }

  async sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<SyncReport<PolicyKey>> {
    this.syncs.push(changes);
    await this.hanging;
    const failure = this.failures.shift();
    if (failure) throw failure;
    const peers = [...plan.peers].map(([id, set]) => [id, copyOf(set)] as const);
    const { pods, lists } = plan;
    this.plan = { ...plan, pods: new Map(pods), lists: new Map(lists), peers: new Map(peers) };
    const { full, quarantined } = { full: changes.full, quarantined: this.quarantined };
    return { full, operations: { lines: changes.pods.size + changes.members.size }, quarantined };
  }

  /** Whether the enforced plan allows TCP from one address to a port of the other. */
  allows(from: string, to: string, port = 80): boolean {
    if (!this.plan) return true;
    return judgeConnection(viewPlan(this.plan), {
      from: parseIpAddress(from),
      to: parseIpAddress(to),
      transport: { protocol: "TCP", port: parsePort(port) },
    }).isAllowed;
  }

  compare = () => Promise.resolve(this.differences);

  repair(): Promise<Readonly<Record<string, number>>> {
    const lines = this.differences.length;
    this.differences = [];
    return Promise.resolve({ lines });
  }

  render({ lists }: PolicyPlan): Iterable<string> {
    return [`# ${lists.size} lists\n`];
  }

  get summary(): string {
    return `fake rules of ${this.family}`;
  }

  deniedPackets(): Promise<DeniedPackets> {
    return Promise.resolve(this.denied);
  }

  recheck(): void {}
  drain = () => Promise.resolve();
  cleanup(): Promise<CleanupReport> {
    return Promise.resolve({ removed: this.leftovers, failed: [] });
  }
  previewCleanup = () => this.cleanup();
  [Symbol.asyncDispose] = () => Promise.resolve();
}

function copyOf(set: PeerSet): PeerSet {
  return set.kind === "blocks"
    ? { kind: set.kind, members: new Map(set.members) }
    : { kind: set.kind, members: new Map(set.members) };
}
