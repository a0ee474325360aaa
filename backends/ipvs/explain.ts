import { isFromCluster } from "../../lib/proxy/explain_packet.ts";
import type {
  ModeCarrier,
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "../../lib/proxy/packet_explanation.ts";
import { type IpAddress, type IpFamily, isLoopback } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { addressLine } from "../iproute/ip_runner.ts";
import { FROM_CLUSTER } from "./base_rules.ts";
import { setName } from "./ipset_table.ts";
import {
  type IpvsRenderOptions,
  renderService,
  type ServiceFrontend,
  type SetEntry,
} from "./render_service.ts";
import { describeServer, serverKey } from "../netfilter/virtual_servers.ts";
import { realLine } from "./objects.ts";

/** Explains a packet by the objects of the frontend that it hits. */
export function explainIpvs(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  hit: PacketHit | undefined,
  options: IpvsRenderOptions,
): ModeExplanation {
  const { origin, packet: { from, to, port, protocol }, verdict } = explanation;
  const { family } = options;
  const { shared } = plan;
  if (hit === undefined || verdict.kind === "unclaimed") {
    return closedAddress(plan, explanation, options);
  }
  if (hit.frontend.role === "NodePort" && (isLoopback(to) || to.startsWith("fe80:"))) {
    const unserved = "IPVS leaves loopback and link-local addresses alone";
    return { deviations: { unserved }, carriers: [] };
  }
  const { frontends, entries } = renderService(hit.service, { shared, options });
  const serverAt = (address: IpAddress, port: number) => {
    const key = serverKey({ protocol, address, port });
    return frontends.find(({ server }) => server === key);
  };
  const frontend = serverAt(to, port);
  if (frontend === undefined) return { carriers: [] };
  const { rule, ...direct } = frontend;
  // The rule sends the packet on to the cluster IP.
  const next = rule !== undefined && isFromCluster(origin)
    ? serverAt(hit.service.clusterIp, hit.service.port)
    : undefined;
  const objects = next
    ? [
      ...[...objectsOf(frontend, family)]
        .filter(({ object }) => object === "ip set entry" || object === "rule"),
      ...objectsOf(next, family),
    ]
    : objectsOf(direct, family);
  // The entry for an endpoint that is sent its own packet.
  const own = entries.filter(([, entry]) => entry.endsWith(`,${from.address}`));
  const deviations = deviationsOf(explanation, next ?? frontend, options);
  const isForwarded = verdict.kind === "forward" && deviations.asOutsider === undefined;
  const isMet = verdict.kind === "drop" && verdict.why === "source-ranges"
    ? ({ name }: ModeCarrier) => /-(?:FW|SOURCE-CIDR|SOURCE-IP)$/.test(name)
    : ({ name }: ModeCarrier) => !isForwarded || !name.includes("-NO-LOCAL-");
  const carriers = [...objects, ...own.map((entry) => entryCarrier(entry, family))].filter(isMet);
  return { deviations, carriers };
}

/** The objects of a frontend in the order in which a packet meets them. */
function* objectsOf(
  { bound, endpoints, entries, rule, server, setup }: ServiceFrontend,
  family: IpFamily,
): Generator<ModeCarrier> {
  // Table filter comes after routing.
  const isLate = ([set]: SetEntry) => set === "NO-LOCAL-EXTERNAL";
  for (const entry of entries) if (!isLate(entry)) yield entryCarrier(entry, family);
  if (rule !== undefined) {
    yield { object: "rule", name: `nat ${FROM_CLUSTER}`, text: `-A ${FROM_CLUSTER} ${rule}` };
  }
  if (bound !== undefined) yield addressCarrier(bound);
  for (const entry of entries) if (isLate(entry)) yield entryCarrier(entry, family);
  const name = describeServer(server);
  yield { object: "virtual server", name, text: `-A ${server} ${setup}` };
  for (const { key } of endpoints) {
    const text = realLine("-a", server, key, 1);
    yield { object: "real server", name: `${name} ${key}`, text, endpoint: key };
  }
}

function entryCarrier([set, entry]: SetEntry, family: IpFamily): ModeCarrier {
  const name = setName(set, family);
  return { object: "ip set entry", name, text: `add ${name} ${entry}` };
}

function addressCarrier(address: IpAddress): ModeCarrier {
  const text = addressLine("replace", { address, device: IPVS_DEVICE });
  return { object: "address", name: address, text };
}

function deviationsOf(
  { endpoints, origin, packet, policy, source, verdict }: PacketExplanation,
  { endpoints: reached }: ServiceFrontend,
  { family }: IpvsRenderOptions,
): ModeDeviations {
  if (verdict.kind !== "forward") return {};
  const eligible = endpoints.filter(({ eligible }) => eligible);
  const keys = (list: readonly { readonly key: string }[]) => list.map(({ key }) => key).sort();
  const isBound = policy?.verdict === "externalFromCluster" &&
    keys(reached).join() !== keys(eligible).join();
  // The kernel chooses an address of the node as source, and a bound one is the nearest.
  const isOwnPacket = origin.isFromNode && source?.rewritten !== "always" &&
    reached.some(({ address }) => address !== packet.from.address);
  return {
    ...(isBound && {
      asOutsider: "where policy Local binds the cluster IP too, no virtual server has the " +
        "endpoints of other nodes",
    }),
    ...(isOwnPacket && {
      source: {
        rewritten: "always",
        detail: `the ${family} address of the Service itself is the source that the kernel chose`,
      },
    }),
  };
}

/** Service addresses are addresses of the node: the ports that no Service has there are closed. */
function closedAddress(
  { services }: ProxyPlan,
  { packet: { to, port }, service, verdict }: PacketExplanation,
  { family, nodeAddresses }: IpvsRenderOptions,
): ModeExplanation {
  // A ServicePort that has nothing in the kernel, such as one that was refused.
  const without = verdict.kind === "unclaimed" ? service?.key : undefined;
  let isBound = false;
  for (
    const { key, clusterIp, externalIps, loadBalancerVips, healthCheckNodePort } of services
      .values()
  ) {
    if (key === without) continue;
    if (healthCheckNodePort === port) return { carriers: [] };
    isBound ||= clusterIp === to ||
      ((externalIps.includes(to) || loadBalancerVips.includes(to)) && !nodeAddresses.has(to));
  }
  if (!isBound) return { carriers: [] };
  return {
    deviations: {
      outcome: {
        kind: "reject",
        why: `${to} is a Service address on ${IPVS_DEVICE}, closed for all else`,
      },
    },
    carriers: [addressCarrier(to), entryCarrier(["IPVS-IPS", to], family)],
  };
}
