/**
 * NetworkPolicies for what kube-relay relays itself, in one IP family.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { OneAtATime } from "../../net/one_at_a_time.ts";
import type { Clock } from "../../os/clock.ts";
import { runInSlices } from "../../os/time_slice.ts";
import { ConnectionJudge } from "../../policy/connection_judge.ts";
import {
  PolicyPlanner,
  type PolicyPlanOptions,
  type PolicyPlanSettings,
} from "../../policy/policy_planner.ts";
import type { PolicyState } from "../../policy/policy_state.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { RunConfiguration } from "../dependencies.ts";
import { suspectAddresses } from "./connection_cutter.ts";

/** The judges of a run, by IP family. Empty = nothing that is relayed is judged. */
export type ConnectionJudges = ReadonlyMap<IpFamily, ConnectionJudge>;

/** Creates the judges of a run that relays connections and enforces policies. */
export function createConnectionJudges(
  { proxy, mode, families }: Pick<RunConfiguration, "proxy" | "mode" | "families">,
): ConnectionJudges {
  const isJudged = proxy.networkPolicy.enabled && MODE_TRAITS[mode].forwardsItself;
  return new Map(isJudged ? families.map((family) => [family, new ConnectionJudge()]) : []);
}

/** The cluster as policies see it, for the planners of all families. */
export interface PolicyCluster {
  readonly state: PolicyState;
  /** Of events, of plans, which are made in pieces while the state is still, and of readers of a plan. */
  readonly turns: OneAtATime;
}

interface RelayedPoliciesDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: { connectionsCut(family: IpFamily, count: number): void };
  readonly cluster: PolicyCluster;
  readonly judge: ConnectionJudge;
}

interface RelayedPoliciesOptions extends PolicyPlanOptions {
  /** Whether open connections end if the policies no longer allow them. */
  readonly cutsConnections: () => boolean;
}

/**
 * Plans for the pods of every node: only the relay sees the client of a connection to another node, where
 * it comes from this node. Gives each plan to the judge, and ends the relayed connections that it denies.
 */
export class RelayedPolicies {
  readonly #dependencies: RelayedPoliciesDependencies;
  readonly #options: RelayedPoliciesOptions;
  readonly #planner: PolicyPlanner;

  constructor(dependencies: RelayedPoliciesDependencies, options: RelayedPoliciesOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#planner = new PolicyPlanner(dependencies.cluster.state, {
      ...options,
      // A relay has the packets of its own sockets only.
      podLinks: [],
      includesRemotePods: true,
    });
  }

  /** As {@linkcode PolicyPlanner.setOptions}. */
  setOptions({ deny, closedRanges }: PolicyPlanSettings): void {
    this.#planner.setOptions({ deny, closedRanges });
  }

  /** Brings the judge up to date. The caller has one call in flight at most. */
  async sync(): Promise<void> {
    const { clock, cluster, judge, logger, metrics } = this.#dependencies;
    const changes = await cluster.turns.run(() =>
      runInSlices(clock, this.#planner.updateInSteps())
    );
    const { plan } = this.#planner;
    await judge.turns.run(() => runInSlices(clock, judge.takeInSteps(plan, changes)));
    await judge.pass(plan, changes);
    if (!this.#options.cutsConnections()) return;
    const connections = await judge.relay?.recheck(suspectAddresses(plan, changes)) ?? 0;
    if (connections === 0) return;
    metrics.connectionsCut(this.#options.family, connections);
    logger.info("Cut relayed connections that NetworkPolicies do not allow", { connections });
  }
}
