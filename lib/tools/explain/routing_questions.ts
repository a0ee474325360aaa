/**
 * Answers what the running process sees of addresses and routes: the sessions of the BGP daemon, what it
 * sends, and the addresses on interfaces. Plans are made by the command from a dump.
 *
 * @module
 */
import * as v from "valibot";
import type { ControlRoutes } from "../control/control_server.ts";
import { messageOf } from "../../log/message_of.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import type { ComparedLayer2, RoutingDifference } from "../../routing/compare_layer2.ts";
import type { PodNetworkPlan } from "../../routing/pod_network_plan.ts";
import type { SeenRouting } from "../../routing/explain_address.ts";
import { askControl } from "../control/control_client.ts";
import {
  answeredComparison,
  compareRouting,
  machineAddresses,
  type RoutingComparison,
} from "../diff/compare_routing.ts";
import {
  fields,
  foreignText,
  ipAddress,
  list,
  optional,
  ownText,
  plainText,
} from "../dump/dump_value.ts";

/** The parts of a run that are asked. */
export interface AskedRouting {
  /** Absent if BGP is disabled. */
  readonly bgp?: {
    readonly plan: BgpPlan | undefined;
    readonly backend: AskedBgp;
  } | undefined;
  /** Absent if kube-relay does nothing for the network of pods. */
  readonly pods?: {
    readonly plan: PodNetworkPlan | undefined;
    readonly backend: { compare(plan: PodNetworkPlan): Promise<readonly RoutingDifference[]> };
  } | undefined;
  /** The addresses that this node holds, by interface. */
  held(): Iterable<{ readonly address: IpAddress; readonly device: string }>;
  layer2(): Omit<ComparedLayer2, "found">;
  interfaceAddresses(): readonly InterfaceAddress[];
}

/** The BGP daemon. */
interface AskedBgp {
  sessions(
    plan: BgpPlan,
  ): Promise<readonly { readonly peer: string; readonly description: string }[]>;
  sentPrefixes(): Promise<ReadonlyMap<string, ReadonlySet<string>>>;
  compare(plan: BgpPlan): Promise<readonly RoutingDifference[]>;
}

const SEEN = fields({
  sessions: optional(list(fields({ peer: ownText, description: foreignText }))),
  sent: optional(list(fields({ peer: ownText, prefixes: list(plainText) }))),
  held: list(fields({ address: ipAddress, device: plainText })),
  problem: optional(foreignText),
});

/** Returns the routes of the routing controller on the control socket. */
export function routingRoutes(asked: AskedRouting): ControlRoutes {
  return {
    "/routing/seen": async () => await seeRouting(asked),
    "/routing/difference": async () =>
      await compareRouting({
        bgp: asked.bgp,
        pods: asked.pods,
        layer2: { ...asked.layer2(), ...machineAddresses(asked.interfaceAddresses()) },
      }),
  };
}

async function seeRouting({ bgp, held }: AskedRouting): Promise<v.InferInput<typeof SEEN>> {
  const addresses = [...held()].map(({ address, device }) => ({ address, device }));
  if (!bgp?.plan) return { held: addresses };
  try {
    const sessions = await bgp.backend.sessions(bgp.plan);
    const sent = await bgp.backend.sentPrefixes();
    return {
      held: addresses,
      sessions: sessions.map(({ peer, description }) => ({ peer, description })),
      sent: [...sent].map(([peer, prefixes]) => ({ peer, prefixes: [...prefixes] })),
    };
  } catch (error) {
    return { held: addresses, problem: messageOf(error) };
  }
}

/** What the running process sees, and why it could not ask the BGP daemon. */
export async function askRunningRouting(
  socket: string,
): Promise<{ readonly seen: SeenRouting; readonly problem?: string }> {
  const answer = v.safeParse(SEEN, await askControl(socket, { route: "/routing/seen" }));
  if (!answer.success) return { seen: {}, problem: "its answer cannot be read" };
  const { sessions, sent, held, problem } = answer.output;
  return {
    seen: {
      held: new Map(held.map(({ address, device }) => [address, device])),
      // A daemon that does not answer sends nothing.
      ...((sessions ?? problem) !== undefined && {
        bgp: {
          sessions: new Map(sessions?.map(({ peer, description }) => [peer, description])),
          sent: new Map(sent?.map(({ peer, prefixes }) => [peer, new Set(prefixes)])),
        },
      }),
    },
    ...(problem !== undefined && { problem }),
  };
}

/** How the machine of the running process differs from its plan. */
export async function askRoutingDifference(socket: string): Promise<RoutingComparison> {
  const answer = await askControl(socket, { route: "/routing/difference", timeoutMs: 30_000 });
  return answeredComparison(answer) ?? { differences: [], problem: "its answer cannot be read" };
}
