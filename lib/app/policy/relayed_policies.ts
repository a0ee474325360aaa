/**
 * NetworkPolicies for what kube-relay relays itself, in one IP family.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { runInSlices } from "../../os/time_slice.ts";
import { ConnectionJudge } from "../../policy/connection_judge.ts";
import type { PolicyPlan, PolicyPlanChanges } from "../../policy/policy_plan.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { RunConfiguration } from "../run/run_configuration.ts";
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

interface RelayedPoliciesDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: { connectionsCut(family: IpFamily, count: number): void };
  readonly judge: ConnectionJudge;
}

interface RelayedPoliciesOptions {
  readonly family: IpFamily;
  /** Whether open connections end if the policies no longer allow them. */
  readonly cutsConnections: () => boolean;
}

/** Gives each plan to the judge, and ends the relayed connections that it no longer allows. */
export class RelayedPolicies {
  readonly #dependencies: RelayedPoliciesDependencies;
  readonly #options: RelayedPoliciesOptions;

  constructor(dependencies: RelayedPoliciesDependencies, options: RelayedPoliciesOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
  }

  /** Brings the judge to a plan, which must not change until this resolves. */
  async sync(plan: PolicyPlan, planned: PolicyPlanChanges): Promise<void> {
    const { clock, judge, logger, metrics } = this.#dependencies;
    const changes = await runInSlices(clock, judge.takeInSteps(plan, planned));
    if (!this.#options.cutsConnections()) return;
    const connections = await judge.relay?.recheck(suspectAddresses(plan, changes)) ?? 0;
    if (connections === 0) return;
    metrics.connectionsCut(this.#options.family, connections);
    logger.info("Cut relayed connections that NetworkPolicies do not allow", { connections });
  }

  /** The planner got these changes back, because the rules could not be written. */
  putBack(changes: PolicyPlanChanges): void {
    this.#dependencies.judge.putBack(changes);
  }
}
