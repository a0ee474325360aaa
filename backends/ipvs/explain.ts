import { isFromCluster } from "../../lib/proxy/explain_packet.ts";
import type {
  ModeCarrier,
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "../../lib/proxy/packet_explanation.ts";
import { type IpAddress, isLoopback } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { addressLine } from "../iproute/ip_runner.ts";
import { POD_TUNNELS } from "../iproute/pod_tunnels.ts";
import { FROM_CLUSTER } from "./base_rules.ts";
import { setName } from "./ipset_table.ts";
import {
  type IpvsRenderOptions,
  renderService,
  type ServiceFrontend,
  type SetEntry,
} from "./render_service.ts";
import { describeServer, serverKey } from "../netfilter/virtual_servers.ts";
import { podsOf } from "./dsr.ts";
import { realLine, textOfReals } from "./objects.ts";

/** Explains a packet by the objects of the frontend that it hits. */
export function explainIpvs(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  hit: PacketHit | undefined,
  options: IpvsRenderOptions,
): ModeExplanation {
  const { endpoints, origin, packet, policy, source, verdict } = explanation;
  const { from, to, port, protocol } = packet;
  const { family, nodeAddresses } = options;
  const entryCarrier = ([set, entry]: SetEntry): ModeCarrier => {
    const name = setName(set, family);
    return { object: "ip set entry", name, text: `add ${name} ${entry}` };
  };
  const addressCarrier = (address: IpAddress): ModeCarrier => {
    const text = addressLine("replace", { address, device: IPVS_DEVICE });
    return { object: "address", name: address, text };
  };
  if (hit === undefined || verdict.kind === "unclaimed") {
    // Service addresses are addresses of the node: the ports that no Service has there are closed. A
    // ServicePort that has nothing in the kernel may be one that was refused.
    const without = verdict.kind === "unclaimed" ? explanation.service?.key : undefined;
    const others = [...plan.services.values()].filter(({ key }) => key !== without);
    const isClosed = !others.some(({ healthCheckNodePort }) => healthCheckNodePort === port) &&
      others.some(({ clusterIp, externalIps, loadBalancerVips }) =>
        clusterIp === to || !nodeAddresses.has(to) &&
          (externalIps.includes(to) || loadBalancerVips.includes(to))
      );
    if (!isClosed) return { carriers: [] };
    const why = `${to} is a Service address on ${IPVS_DEVICE}, closed for all else`;
    return {
      deviations: { outcome: { kind: "reject", why } },
      carriers: [addressCarrier(to), entryCarrier(["IPVS-IPS", to])],
    };
  }
  if (hit.frontend.role === "NodePort" && (isLoopback(to) || to.startsWith("fe80:"))) {
    const unserved = "IPVS leaves loopback and link-local addresses alone";
    return { deviations: { unserved }, carriers: [] };
  }
  const { frontends, entries } = renderService(hit.service, { shared: plan.shared, options });
  const serverAt = (address: IpAddress, port: number) => {
    const key = serverKey({ protocol, address, port });
    return frontends.find(({ server }) => server === key);
  };
  /** The objects of a frontend in the order in which a packet meets them; table filter is after routing. */
  const objectsOf = (frontend: ServiceFrontend) => {
    const { bound, endpoints, entries, isTunnelled, rule, server, setup } = frontend;
    const isLate = ([set]: SetEntry) => set === "NO-LOCAL-EXTERNAL";
    const name = describeServer(server);
    return [
      ...entries.filter((entry) => !isLate(entry)).map(entryCarrier),
      ...rule === undefined
        ? []
        : [{ object: "rule", name: `nat ${FROM_CLUSTER}`, text: `-A ${FROM_CLUSTER} ${rule}` }],
      ...bound === undefined ? [] : [addressCarrier(bound)],
      ...entries.filter(isLate).map(entryCarrier),
      { object: "virtual server", name, text: `-A ${server} ${setup}` },
      ...endpoints.map(({ key }) => ({
        ...{ object: "real server", name: `${name} ${key}`, endpoint: key },
        text: realLine("-a", server, key, textOfReals(frontend)),
      })),
      ...(isTunnelled ? podsOf(hit.service) : []).map((pod) => ({
        object: "address",
        name: `${to} in pod ${pod}`,
        text: addressLine("replace", {
          address: to,
          device: POD_TUNNELS[family],
          neverSource: true,
        }),
      })),
    ] as ModeCarrier[];
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
      ...objectsOf(frontend)
        .filter(({ object }) => object === "ip set entry" || object === "rule"),
      ...objectsOf(next),
    ]
    : objectsOf(direct);
  // The entry for an endpoint that is sent its own packet.
  const own = entries.filter(([, entry]) => entry.endsWith(`,${from.address}`));

  const reached = (next ?? frontend).endpoints;
  const keysOf = (list: readonly { readonly key: string }[]) =>
    list.map(({ key }) => key).sort().join();
  const isForwarded = verdict.kind === "forward";
  const isBound = isForwarded && policy?.verdict === "externalFromCluster" &&
    keysOf(reached) !== keysOf(endpoints.filter(({ eligible }) => eligible));
  // The kernel chooses an address of the node as source, and a bound one is the nearest.
  const isOwnPacket = isForwarded && origin.isFromNode && source?.rewritten !== "always" &&
    reached.some(({ address }) => address !== from.address);
  const keepsSource = isForwarded && frontend.isTunnelled && !origin.isFromNode;
  const deviations: ModeDeviations = {
    ...(keepsSource && {
      source: {
        rewritten: "never",
        detail: next
          ? "packets of pods take the way over the cluster IP, without direct server return"
          : "direct server return: the endpoint replies to the client itself",
      },
    }),
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
  const isMet = verdict.kind === "drop" && verdict.why === "source-ranges"
    ? ({ name }: ModeCarrier) => /-(?:FW|SOURCE-CIDR|SOURCE-IP)$/.test(name)
    : ({ name }: ModeCarrier) => !isForwarded || isBound || !name.includes("-NO-LOCAL-");
  return { deviations, carriers: [...objects, ...own.map(entryCarrier)].filter(isMet) };
}
