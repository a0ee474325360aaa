/** Executes packets by queries: to the plan, and to the explanation of a mode. */
import { type BackendOptions, BACKENDS } from "../../backends/mod.ts";
import { SILENT_LOGGER } from "../../lib/log/silent_logger.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { Backend, BackendMode } from "../../lib/proxy/backend.ts";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { PacketExplanation } from "../../lib/proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { FakeClock } from "../support/fakes/fake_clock.ts";
import { FakeHost } from "../support/fakes/fake_host.ts";
import {
  type PacketFlowCase,
  type PacketFlowScenario,
  packetOrigin,
  type PacketOutcome,
} from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";

/** A mode on the node of the address plan, with a scenario planned for it. */
export interface ExplainStage {
  readonly plan: ProxyPlan;
  /** Never started: nothing of a machine is asked. */
  readonly backend: Backend;
}

/** The settings that kube-proxy starts with. */
const SETTINGS: Omit<BackendOptions, "family" | "node"> = {
  relay: {
    addressMode: "auto",
    udpTimeoutMs: 1,
    maxConnectionsPerService: 1,
    stateDirectory: "/nonexistent",
    ipvsDrainTimeoutMs: 0,
  },
  iptables: { masqueradeBit: 14, localhostNodePorts: true, syncPeriod: 1 },
  ipvs: {
    scheduler: "rr",
    excludeCIDRs: [],
    strictARP: false,
    tcpTimeout: 0,
    tcpFinTimeout: 0,
    udpTimeout: 0,
    syncPeriod: 1,
  },
  nftables: { masqueradeBit: 14, syncPeriod: 1 },
};

/** Plans a scenario for a mode. */
export function explainStage(
  mode: BackendMode,
  scenario: PacketFlowScenario,
  family: IpFamily,
): ExplainStage {
  const host = new FakeHost();
  const edges = {
    clock: new FakeClock(),
    network: host.network,
    commands: host.runner,
    logger: SILENT_LOGGER,
    random: () => 0,
  };
  const create = BACKENDS[mode];
  if (create === undefined) throw new Error(`Cannot find mode ${mode}`);
  return {
    plan: planScenario(scenario, family, { mode }),
    backend: create(edges, { ...SETTINGS, family }),
  };
}

/** Explains the packet of a row. */
export function explainCase(
  { plan, backend }: ExplainStage,
  packet: PacketFlowCase,
): PacketExplanation {
  return explainPacket(plan, packetOf(packet), backend);
}

/** The packet of a row, as it is asked for. */
function packetOf({ from, family, to, port, protocol }: PacketFlowCase): Packet {
  const { address, interfaceName } = packetOrigin(from, family);
  const { loopback, nodeSecond } = ADDRESSES[family];
  const isLooped = from === "node" && (to === loopback || to === nodeSecond);
  return {
    from: {
      kind: from === "node" ? "node" : /Pod/.test(from) ? "pod" : "outside",
      address: isLooped ? to : address,
      ...(interfaceName !== undefined && { interfaceName }),
    },
    to,
    port: parsePort(port),
    protocol,
  };
}

/** Returns the outcome of an explanation, in the words of the table. */
export function outcomeOf({ verdict, endpoints, affinity }: PacketExplanation): PacketOutcome {
  switch (verdict.kind) {
    case "reject":
      return { verdict: "REJECT", masquerade: false, sticky: false };
    case "drop":
      return { verdict: "DROP", masquerade: false, sticky: false };
    case "unclaimed":
      return { verdict: "UNCLAIMED", masquerade: false, sticky: false };
    case "forward": {
      const eligible = endpoints.filter(({ eligible }) => eligible);
      return {
        verdict: eligible.map(({ key }) => key),
        masquerade: eligible.every(({ seesNode }) => seesNode),
        sticky: affinity !== undefined,
      };
    }
  }
}
