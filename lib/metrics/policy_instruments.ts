import type { IpFamily } from "../net/ip_address.ts";
import type { DeniedPackets } from "../policy/inspect_policy_plan.ts";
import type { Direction } from "../policy/policy_plan.ts";
import { type Instruments, setCounter } from "./instruments.ts";

/** The figures of one family's policies. */
interface PolicyFigures {
  readonly policies: number;
  readonly isolated: Readonly<Record<Direction, number>>;
  readonly sets: number;
  readonly members: number;
}

/** Collects the figures of the NetworkPolicy controller. */
export interface PolicyInstruments {
  setPolicies(family: IpFamily, figures: PolicyFigures): void;
  /** Takes the packets that rules have denied so far; a direction that is left out keeps its value. */
  setDenied(family: IpFamily, packets: DeniedPackets): void;
  connectionsCut(family: IpFamily, count: number): void;
}

/** The methods over the instruments. */
export function policyInstruments(its: Instruments): PolicyInstruments {
  return {
    setPolicies(family, { policies, isolated, sets, members }) {
      const labels = { "ip_family": family };
      its.policies.set(labels, policies);
      its.policySets.set(labels, sets);
      its.policySetMembers.set(labels, members);
      for (const [direction, count] of Object.entries(isolated)) {
        its.policyIsolatedPods.set({ ...labels, direction }, count);
      }
    },
    setDenied(family, packets) {
      for (const [direction, count] of Object.entries(packets)) {
        setCounter(its.policyDeniedPackets, { "ip_family": family, direction }, count);
      }
    },
    connectionsCut: (family, count) => its.policyConnectionsCut.inc({ "ip_family": family }, count),
  };
}
