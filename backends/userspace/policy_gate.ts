import {
  type IpAddress,
  ipFamilyOf,
  isLoopback,
  tryParseIpAddress,
} from "../../lib/net/ip_address.ts";
import { formatHostPort, type Port } from "../../lib/net/port.ts";
import type { LogFields } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { forEachInSlices } from "../../lib/os/time_slice.ts";
import type { ConnectionJudge } from "../../lib/policy/connection_judge.ts";
import { type Connection, denialSentence, endSentence } from "../../lib/policy/judge_connection.ts";
import type { ClientOrigin } from "./client_origin.ts";
import type { ServiceAddress } from "./listeners.ts";

/** A connection between a client and an endpoint. */
export interface RelayedConnection {
  readonly protocol: "TCP" | "UDP";
  /** The client's address, as the socket reports it. */
  readonly client: string;
  /** The frontend at which it arrived. */
  readonly at: ServiceAddress;
  readonly endpoint: { readonly address: IpAddress; readonly port: Port };
}

/** An open connection that may be cut. */
interface EnteredConnection {
  readonly connection: Connection;
  readonly cut: () => void;
}

/** Takes an open connection out again. */
export type LeaveGate = () => void;

interface PolicyGateContext {
  readonly clock: Pick<Clock, "now" | "yieldToEventLoop">;
  readonly clients: Pick<ClientOrigin, "isNode" | "ownAddresses">;
  readonly counters: { tcpDenied: number; udpDenied: number };
  readonly log: { warn(message: string, fields: LogFields): void };
}

/**
 * Judges what is relayed by NetworkPolicies: by the address of the client and the endpoint that was
 * picked for it, as rules of the kernel do after a destination was translated.
 */
export class PolicyGate {
  readonly #context: PolicyGateContext;
  readonly #judge: ConnectionJudge;
  /** Open connections by the addresses of both ends. */
  readonly #open = new Map<IpAddress, Set<EnteredConnection>>();

  constructor(context: PolicyGateContext, judge: ConnectionJudge) {
    this.#context = context;
    this.#judge = judge;
  }

  /** Returns the reason why policies deny a connection; `undefined` = they allow it. */
  denialOf(relayed: RelayedConnection): string | undefined {
    const connection = this.#connectionOf(relayed);
    const denial = connection ? this.#denialOf(connection) : "the address of the client is unknown";
    if (denial !== undefined) this.#count(relayed, denial);
    return denial;
  }

  /**
   * Returns the reason why an endpoint must not be checked for a Service of a namespace. A node reaches
   * all its pods, so a check would carry a request of one tenant to isolated pods of another one.
   */
  checkDenialOf(
    { address, namespace }: { readonly address: IpAddress; readonly namespace: string },
  ): string | undefined {
    const { ingress } = this.#judge.judge({ from: address, to: address });
    if (ingress.kind === "closed") return "the pod at its address is not known yet";
    // From its own address, a pod is denied nothing: it is only told apart where policies may deny.
    if (ingress.kind !== "always") return undefined;
    if (ingress.pod.startsWith(`${namespace}/`)) return undefined;
    return `NetworkPolicies isolate pod ${ingress.pod}, which is in another namespace`;
  }

  /**
   * Returns the likely reason why the pod of an allowed connection cannot be reached. Where kube-relay, or
   * another program, enforces policies on the node of the pod, its rules see this node as the client.
   */
  suspicionOf(
    { protocol, endpoint: { address: to, port } }: Pick<RelayedConnection, "endpoint" | "protocol">,
  ): string | undefined {
    if (this.#judge.podAt(to)?.isRemote !== true) return undefined;
    let reason: string | undefined;
    for (const from of this.#context.clients.ownAddresses) {
      if (ipFamilyOf(from) !== ipFamilyOf(to) || isLoopback(from)) continue;
      const { ingress } = this.#judge.judge({ from, to, transport: { protocol, port } });
      // The kernel chooses which of its addresses the pod sees.
      if (ingress.kind !== "denied") return undefined;
      reason ??= `probably denied on the node of the pod, which sees this node as the client: ` +
        endSentence("ingress", ingress);
    }
    return reason;
  }

  /** Watches an open connection: calls `cut` once if policies deny it, now or later. */
  enter(relayed: RelayedConnection, cut: () => void): LeaveGate {
    const connection = this.#connectionOf(relayed);
    // The plan may have changed while the endpoint was dialled.
    if (connection === undefined || this.#denialOf(connection) !== undefined) {
      cut();
      return () => {};
    }
    const entered = { connection, cut };
    const ends = new Set([connection.from, connection.to]);
    for (const end of ends) this.#open.getOrInsertComputed(end, () => new Set()).add(entered);
    return () => {
      for (const end of ends) {
        const others = this.#open.get(end);
        others?.delete(entered);
        if (others?.size === 0) this.#open.delete(end);
      }
    };
  }

  /** Cuts the open connections of some addresses that are denied. Returns their number. */
  async recheck(addresses: Iterable<IpAddress>): Promise<number> {
    const suspects = new Set<EnteredConnection>();
    for (const address of addresses) {
      for (const entered of this.#open.get(address) ?? []) suspects.add(entered);
    }
    let count = 0;
    await forEachInSlices(this.#context.clock, suspects, (entered) => {
      const { connection, cut } = entered;
      if (!this.#open.get(connection.from)?.has(entered)) return;
      if (this.#denialOf(connection) === undefined) return;
      count++;
      cut();
    });
    return count;
  }

  #connectionOf(
    { protocol, client, at, endpoint: { address: to, port } }: RelayedConnection,
  ): Connection | undefined {
    const from = tryParseIpAddress(client);
    // An address of a pod is never one of the node, also where both are loopback addresses.
    const isNode = (address: IpAddress) =>
      this.#context.clients.isNode(address, at) && this.#judge.podAt(address) === undefined;
    const isRemote = (address: IpAddress) => this.#judge.podAt(address)?.isRemote === true;
    return from && {
      ...{ from, to, transport: { protocol, port } },
      isFromOwnNode: isNode(from) && !isRemote(to),
      isToOwnNode: isNode(to) && !isRemote(from),
    };
  }

  #denialOf(connection: Connection): string | undefined {
    const judgement = this.#judge.judge(connection);
    return judgement.isAllowed ? undefined : denialSentence(judgement);
  }

  #count({ protocol, client, endpoint: { address, port } }: RelayedConnection, reason: string) {
    const { counters, log } = this.#context;
    if (protocol === "TCP") counters.tcpDenied++;
    else counters.udpDenied++;
    if (!this.#judge.logsDenials) return;
    const endpoint = formatHostPort(address, port);
    log.warn("NetworkPolicies deny what was to be relayed", {
      ...{ protocol, client, endpoint, reason },
    });
  }
}
