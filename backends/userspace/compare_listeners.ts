import { formatHostPort } from "../../lib/net/port.ts";
import type { ComparisonScope, ServedAddress } from "../../lib/proxy/service_mode.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { type ServiceAddress, serviceAddresses, type SocketKey } from "./listeners.ts";

interface ListenerComparisonInput {
  readonly plan: ProxyPlan;
  readonly scope: ComparisonScope;
  /** All listening sockets of the machine; `undefined` = unknown. */
  readonly sockets: ReadonlySet<SocketKey> | undefined;
}

/** Only the serving process can open it, because that process forwards its connections. */
const OPENED_BY_ITSELF = "kube-relay opens it itself, with its next sync; a repair cannot";
const CLOSED_BY_ITSELF = "kube-relay closes it itself, with its next sync; a repair cannot";
const LOST = "kube-relay believes it open: restart it, or look from its own network namespace";

/** Compares the open sockets of the serving process with its plan and with the kernel. Needs `serving`. */
export function compareListeners(
  { plan, scope, sockets }: ListenerComparisonInput,
): readonly DataPlaneDifference[] {
  const { keys, serving, quarantined = [] } = scope;
  if (serving === undefined) return [];
  const served = new Map(serving.map(({ key, addresses }) => [key, addresses]));
  const excused = new Set(quarantined.map(({ key, address = "" }) => `${key} ${address}`));
  const differences: DataPlaneDifference[] = [];
  for (const [key, service] of plan.services) {
    const open = (served.get(key) ?? []).filter(({ state }) => state === "serving");
    served.delete(key);
    // The process reports ServicePorts that it cannot serve completely, such as SCTP.
    if ((keys && !keys.has(key)) || excused.has(`${key} `)) continue;
    const wanted = serviceAddresses(service, plan.shared).filter((at) =>
      at.open && !excused.has(`${key} ${at.socket}`)
    );
    // Not push(...list): some 100,000 items are too many arguments.
    for (const each of missingOf(service, { wanted, open, sockets })) differences.push(each);
    for (const each of extraOf(service, { wanted, open })) differences.push(each);
  }
  for (const [key, addresses] of served) {
    if (keys && !keys.has(key)) continue;
    for (const at of addresses.filter(({ state }) => state === "serving")) {
      differences.push({ ...extra(at), key });
    }
  }
  return differences;
}

/** The desired and the open addresses of one ServicePort. */
interface OpenAddresses {
  readonly wanted: readonly ServiceAddress[];
  readonly open: readonly ServedAddress[];
}

function missingOf(
  { key, protocol }: ServicePlan,
  { wanted, open, sockets }: OpenAddresses & Pick<ListenerComparisonInput, "sockets">,
): readonly DataPlaneDifference[] {
  return wanted.flatMap((at): readonly DataPlaneDifference[] => {
    const place = open.find((each) => isAt(each, at));
    if (place === undefined) {
      const common = { object: "listener", kind: "missing", key, cure: OPENED_BY_ITSELF } as const;
      return [{ ...common, name: at.socket, wanted: `a socket for ${protocol}` }];
    }
    const socket = socketOf(place);
    if (sockets === undefined || sockets.has(socket)) return [];
    const common = { object: "listener", kind: "missing", key, cure: LOST } as const;
    return [{ ...common, name: socket, wanted: `a socket for ${protocol} that the kernel lists` }];
  });
}

function extraOf(
  { key }: ServicePlan,
  { wanted, open }: OpenAddresses,
): readonly DataPlaneDifference[] {
  return open.filter((each) => !wanted.some((at) => isAt(each, at)))
    .map((each) => ({ ...extra(each), key }));
}

function extra(at: ServedAddress): DataPlaneDifference {
  const found = `a socket for ${at.protocol}`;
  return { object: "listener", kind: "extra", name: socketOf(at), found, cure: CLOSED_BY_ITSELF };
}

/** Only a cluster IP has a stand-in, and a ServicePort has at most one cluster IP. */
function isAt(place: ServedAddress, at: ServiceAddress): boolean {
  if (place.role === "StandIn") return at.role === "ClusterIP";
  return place.address === at.address && place.port === at.port;
}

function socketOf({ address, port, protocol }: ServedAddress): SocketKey {
  return `${formatHostPort(address, port)}/${protocol}` as SocketKey;
}
