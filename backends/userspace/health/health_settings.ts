import type { StatusRange } from "../../../lib/api/service_annotations.ts";
import { formatHostPort, type Port } from "../../../lib/net/port.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import { type Endpoint, endpointKey } from "../../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";

/** The check of one endpoint. Two with the same fields are one. */
export interface CheckTarget {
  /** Results of one tenant are not those of another one. */
  readonly namespace: string;
  readonly address: Endpoint["address"];
  readonly port: Port;
  /** The Unix socket to connect to instead. */
  readonly socket?: string;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly rise: number;
  readonly fall: number;
  /** Absent = it has to accept a connection, no more. */
  readonly http?: HttpCheck;
}

/** A request of HTTP, and the statuses with which it passes. */
export interface HttpCheck {
  readonly path: string;
  readonly host: string;
  readonly statuses: readonly StatusRange[];
  /** The PROXY protocol header that the endpoint expects before the request. */
  readonly proxy?: "v1" | "v2";
}

/** When an endpoint is ejected, and for how long. */
export interface EjectionSettings {
  /** Connections in succession that could not be made. */
  readonly after: number;
  readonly firstMs: number;
  readonly longestMs: number;
}

const DEFAULT_STATUSES: readonly StatusRange[] = [{ from: 200, to: 399 }];
const DEFAULT_EJECTION_MS = 30_000;
const LONGEST_EJECTION_FACTOR = 10;

/** The check of an endpoint; `undefined` if the Service has none, or no TCP port for it. */
export function checkTargetOf(
  { edge, name: { namespace }, protocol }: Pick<ServicePlan, "edge" | "name" | "protocol">,
  endpoint: Pick<Endpoint, "address" | "port">,
): CheckTarget | undefined {
  if (edge?.healthCheck === undefined) return undefined;
  const { address } = endpoint;
  const socket = edge.unixSockets?.find((each) =>
    each.address === address && each.port === endpoint.port
  )?.path;
  const port = socket === undefined ? edge.healthPort as Port | undefined : undefined;
  if (port === undefined && protocol !== "TCP") return undefined;
  return {
    ...{ namespace, address, port: port ?? endpoint.port },
    ...(socket !== undefined && { socket }),
    intervalMs: edge.healthIntervalMs ?? 10_000,
    timeoutMs: edge.healthTimeoutMs ?? 2_000,
    rise: edge.healthRise ?? 2,
    fall: edge.healthFall ?? 3,
    ...(edge.healthCheck === "http" && {
      http: httpCheckOf(edge, { address, port: port ?? endpoint.port, isOwnPort: !port }),
    }),
  };
}

/** The ejection of endpoints; only connections can fail. */
export function ejectionOf(
  { edge, protocol }: Pick<ServicePlan, "edge" | "protocol">,
): EjectionSettings | undefined {
  if (edge?.ejectAfter === undefined || protocol !== "TCP") return undefined;
  const firstMs = edge.ejectionMs ?? DEFAULT_EJECTION_MS;
  return { after: edge.ejectAfter, firstMs, longestMs: LONGEST_EJECTION_FACTOR * firstMs };
}

/** The identity of a check. */
export function checkId(target: CheckTarget): string {
  return JSON.stringify([
    ...[target.namespace, endpointKey(target.address, target.port), target.socket],
    ...[target.intervalMs, target.timeoutMs, target.rise, target.fall, target.http],
  ]);
}

function httpCheckOf(
  edge: EdgeSettings,
  { address, port, isOwnPort }: {
    readonly address: Endpoint["address"];
    readonly port: Port;
    readonly isOwnPort: boolean;
  },
): HttpCheck {
  const { healthPath: path = "/", healthHost, healthStatus: statuses = DEFAULT_STATUSES } = edge;
  const host = healthHost ?? formatHostPort(address, port);
  return {
    ...{ path, host, statuses },
    ...(edge.sendProxy !== undefined && isOwnPort && { proxy: edge.sendProxy }),
  };
}
