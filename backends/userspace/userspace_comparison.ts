/**
 * Compares the addresses and routes of `lo`, and the listening sockets of the serving process, with its
 * record and plan.
 *
 * Only recorded addresses and routes count; others are no difference.
 *
 * @module
 */
import { type Cidr, hostCidr } from "../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { parseWaitingSockets, SOCKET_FILES } from "../../lib/os/kernel_sockets.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ComparisonScope, ServiceMode } from "../../lib/proxy/service_mode.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import {
  addressLine,
  type DeviceAddress,
  IpRunner,
  type Route,
  routeLine,
} from "../iproute/ip_runner.ts";
import type { AddressStore } from "./addresses/address_store.ts";
import { addAddressLine, localRouteLine } from "./addresses/addresses.ts";
import { serviceAddresses, type SocketKey, socketKey } from "./listeners.ts";

/** A difference that a repair corrects. */
interface Reparable {
  readonly difference: DataPlaneDifference;
  /** For `ip -batch -`. */
  readonly lines: readonly string[];
}

/** Only the serving process can open it, because that process forwards its connections. */
const OPENED_BY_ITSELF = "kube-relay opens it itself, with its next sync; a repair cannot";
const CLOSED_BY_ITSELF = "kube-relay closes it itself, with its next sync; a repair cannot";
const LOST = "kube-relay believes it open: restart it, or look from its own network namespace";

/** {@linkcode ServiceMode.compare} and {@linkcode ServiceMode.repair} of userspace mode. */
export function userspaceComparison(
  { runner, store }: {
    readonly runner: CommandRunner;
    readonly store: Pick<AddressStore, "load">;
  },
  { family }: { readonly family: IpFamily },
): Pick<ServiceMode, "compare" | "repair"> {
  const ip = new IpRunner(runner, { family });
  const compare = async (plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>) => {
    const [{ addresses, routes }, present, local] = await Promise.all([
      ...[store.load(), ip.addresses("lo"), ip.routes("local")] as const,
    ]);
    return [
      ...compareAddresses(ownersOf(plan), addresses, present ?? [], keys),
      ...compareRoutes(routes, local),
    ];
  };
  return {
    async compare(plan, scope = {}) {
      const differences = (await compare(plan, scope.keys)).map(({ difference }) => difference);
      if (scope.serving === undefined) return differences;
      const sockets = await kernelSockets(runner, family);
      return [...differences, ...compareListeners(plan, scope, sockets)];
    },
    async repair(plan) {
      const lines = (await compare(plan)).flatMap(({ lines }) => lines);
      if (lines.length === 0) return {};
      const [problem] = (await ip.batch(lines, (line) => line)).values();
      // A sync may have written some of it, which is then refused.
      if (problem !== undefined && (await compare(plan)).length > 0) {
        throw new Error(`Cannot repair addresses of lo: ${problem.message}`);
      }
      return { commands: 1, lines: lines.length };
    },
  };
}

/** The ServicePort that needs an address. Node ports use addresses that the node has already. */
function ownersOf({ services, shared }: ProxyPlan): ReadonlyMap<IpAddress, ServicePortKey> {
  const owners = new Map<IpAddress, ServicePortKey>();
  for (const [key, plan] of services) {
    for (const { address, role } of serviceAddresses(plan, shared)) {
      if (role !== "NodePort" && !owners.has(address)) owners.set(address, key);
    }
  }
  return owners;
}

function* compareAddresses(
  owners: ReadonlyMap<IpAddress, ServicePortKey>,
  recorded: Iterable<IpAddress>,
  present: readonly DeviceAddress[],
  keys: ReadonlySet<ServicePortKey> | undefined,
): Generator<Reparable> {
  const lengths = Map.groupBy(present, ({ address }) => address);
  for (const address of recorded) {
    const key = owners.get(address);
    if (key !== undefined && keys !== undefined && !keys.has(key)) continue;
    const whole = hostCidr(address);
    const length = Number(whole.slice(whole.indexOf("/") + 1));
    const found = lengths.get(address)?.map(({ prefixLength = 0 }) => prefixLength) ?? [];
    const others = found.filter((each) => key === undefined || each !== length);
    const isMissing = key !== undefined && !found.includes(length);
    if (others.length === 0 && !isMissing) continue;
    const remove = others.map((prefixLength) =>
      addressLine("del", { address, device: "lo", prefixLength })
    );
    const add = isMissing ? [addAddressLine(address)] : [];
    const there = found.map((each) => `${address}/${each} dev lo`).join("\n");
    yield {
      difference: difference("address", `${address} on lo`, {
        ...(key !== undefined && { key, wanted: `${whole} dev lo` }),
        ...(there !== "" && { found: there }),
      }),
      // The right one first: the address stays local all the time. IPv6 has an address once in a device.
      lines: address.includes(":") ? [...remove, ...add] : [...add, ...remove],
    };
  }
}

function* compareRoutes(recorded: Iterable<Cidr>, local: readonly Route[]): Generator<Reparable> {
  for (const range of recorded) {
    const route = local.findLast(({ type, destination }) =>
      type === "local" && destination === range
    );
    const device = route && (route.device ?? "");
    if (device === "lo") continue;
    const remove = device === undefined
      ? []
      : [routeLine("del", { type: "local", destination: range, device })];
    yield {
      difference: difference("route", `local ${range}`, {
        wanted: `local ${range} dev lo`,
        ...(device !== undefined && { found: `local ${range} dev ${device}` }),
      }),
      lines: [...remove, localRouteLine("add", range)],
    };
  }
}

/**
 * Compares the open sockets of the serving process with its plan and with the kernel. `sockets`: all
 * listening sockets of the machine; `undefined` = unknown. Needs `serving`.
 */
export function compareListeners(
  { services, shared }: ProxyPlan,
  { keys, serving = [], quarantined = [] }: ComparisonScope,
  sockets: ReadonlySet<SocketKey> | undefined,
): readonly DataPlaneDifference[] {
  const served = new Map(serving.map(({ key, addresses }) => [key, addresses]));
  const excused = new Set(quarantined.map(({ key, address = "" }) => `${key} ${address}`));
  const differences: DataPlaneDifference[] = [];
  for (const key of new Set([...services.keys(), ...served.keys()])) {
    // The process reports ServicePorts that it cannot serve completely, such as SCTP.
    if ((keys && !keys.has(key)) || excused.has(`${key} `)) continue;
    const open = new Map<string, SocketKey>();
    for (const { role, state, address, port, protocol } of served.get(key) ?? []) {
      const socket = socketKey(address, port, protocol);
      // Only a cluster IP has a stand-in, and a ServicePort has at most one cluster IP.
      if (state === "serving") open.set(role === "StandIn" ? role : socket, socket);
    }
    const service = services.get(key);
    for (const at of service ? serviceAddresses(service, shared) : []) {
      if (!at.open || excused.has(`${key} ${at.socket}`)) continue;
      const place = at.role === "ClusterIP" && open.has("StandIn") ? "StandIn" : at.socket;
      const socket = open.get(place);
      open.delete(place);
      const wanted = `a socket for ${service!.protocol}`;
      if (socket === undefined) {
        const cure = OPENED_BY_ITSELF;
        differences.push(difference("listener", at.socket, { key, wanted, cure }));
      } else if (sockets?.has(socket) === false) {
        const listed = { key, wanted: `${wanted} that the kernel lists`, cure: LOST };
        differences.push(difference("listener", socket, listed));
      }
    }
    for (const socket of open.values()) {
      const found = `a socket for ${socket.slice(socket.lastIndexOf("/") + 1)}`;
      differences.push(difference("listener", socket, { key, found, cure: CLOSED_BY_ITSELF }));
    }
  }
  return differences;
}

/** Returns the listening sockets of this network namespace; `undefined` if unavailable. */
export async function kernelSockets(
  runner: CommandRunner,
  family: IpFamily,
): Promise<ReadonlySet<SocketKey> | undefined> {
  const found = new Set<SocketKey>();
  for (const protocol of ["TCP", "UDP"] as const) {
    const { code, stdout } = await runner.run("cat", [SOCKET_FILES[family][protocol]]);
    if (code !== 0) return undefined;
    for (const { address, port } of parseWaitingSockets(stdout, protocol)) {
      found.add(`${formatHostPort(address, port)}/${protocol}` as SocketKey);
    }
  }
  return found;
}

function difference(
  object: string,
  name: string,
  rest: Omit<DataPlaneDifference, "object" | "name" | "kind">,
): DataPlaneDifference {
  const kind = rest.wanted === undefined
    ? "extra"
    : rest.found === undefined
    ? "missing"
    : "altered";
  return { object, name, kind, ...rest };
}
