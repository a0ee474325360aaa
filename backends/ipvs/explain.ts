import { findHit, type PacketHit } from "../../lib/explain/packet_hit.ts";
import { type IpAddress, isLoopback } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type {
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import {
  type RuleSource,
  walkIptables,
  type WalkOutcome,
} from "../netfilter/walk/iptables_walk.ts";
import type { IpvsSource } from "../netfilter/walk/ipvs_objects.ts";
import { carriersOf, nodeAddressTest, walkedPacket } from "../netfilter/walk/walk_steps.ts";
import { AppliedServers } from "./applied_servers.ts";
import { DEVICE, diffIpvs, EMPTY_KERNEL } from "./diff.ts";
import { IpvsLayout } from "./layout.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { type IpvsStep, stepText } from "./steps.ts";
import { serverKey } from "./virtual_server.ts";

/** Explains a packet by walking the rendered rules, sets and servers. */
export function explainIpvs(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  options: IpvsRenderOptions,
): ModeExplanation {
  const { packet, service, verdict } = explanation;
  const hit = findHit(plan, packet);
  const isUnclaimed = verdict.kind === "unclaimed";
  if (hit && !isUnclaimed && isLeftAlone(hit, packet)) {
    return {
      deviations: { unserved: "IPVS leaves loopback and link-local addresses alone" },
      carriers: [],
    };
  }
  const without = isUnclaimed ? service?.key : undefined;
  const kernel = readRenderedKernel(stepsMet(plan, packet, { options, without }));
  const { from, to } = packet;
  // The kernel chooses an address of the node as source, and a bound one is the nearest.
  const isBound = from.kind === "node" && kernel.ipvs.address(to) !== undefined;
  const source = isBound ? to : from.address;
  const outcomes = walkPacket(plan, packet, { kernel, source });
  if (hit === undefined || isUnclaimed) {
    const outcome = outcomeOf(outcomes, packet);
    return {
      ...(outcome && { deviations: { outcome } }),
      carriers: outcome ? carriersOf(outcomes) : [],
    };
  }
  return {
    deviations: deviationsOf(explanation, outcomes, options),
    carriers: carriersOf(outcomes),
  };
}

function isLeftAlone({ frontend: { role } }: PacketHit, { to }: Packet): boolean {
  return role === "NodePort" && (isLoopback(to) || to.startsWith("fe80:"));
}

/** Renders the ServicePorts that the packet can meet. */
function stepsMet(
  plan: ProxyPlan,
  packet: Packet,
  { options, without }: {
    readonly options: IpvsRenderOptions;
    /** A ServicePort that has nothing in the kernel, such as one that was refused. */
    readonly without: ServicePortKey | undefined;
  },
) {
  const layout = new IpvsLayout(plan.shared, options);
  for (const service of plan.services.values()) {
    if (service.key !== without && isMet(service, packet, layout)) layout.set(service);
  }
  return diffIpvs(layout, new AppliedServers(), EMPTY_KERNEL).steps;
}

/** Whether the packet can meet an object of a ServicePort. */
function isMet(service: ServicePlan, { to, port, protocol }: Packet, layout: IpvsLayout): boolean {
  const { clusterIp, externalIps, healthCheckNodePort, loadBalancerVips, nodePort } = service;
  const isAt = clusterIp === to || externalIps.includes(to) || loadBalancerVips.includes(to);
  // Thousands of ports may share an address, and one of them is enough to have it bound.
  if (isAt && !layout.addresses.has(to)) return true;
  if (healthCheckNodePort === port) return true;
  return service.protocol === protocol && ((isAt && service.port === port) || nodePort === port);
}

function walkPacket(
  plan: ProxyPlan,
  packet: Packet,
  { kernel: { rules, ipvs }, source }: {
    readonly kernel: RenderedKernel;
    readonly source: IpAddress;
  },
): readonly WalkOutcome[] {
  return walkIptables(rules, { ...walkedPacket(packet), source }, {
    isLocal: nodeAddressTest(plan, packet),
    isListed: () => undefined,
    ipvs,
  });
}

function deviationsOf(
  { endpoints, origin, packet, policy, source, verdict }: PacketExplanation,
  outcomes: readonly WalkOutcome[],
  { family }: IpvsRenderOptions,
): ModeDeviations {
  const reached = outcomes.flatMap(({ endpoint, verdict }) =>
    verdict === "ACCEPT" && endpoint ? [formatHostPort(endpoint.address, endpoint.port)] : []
  );
  const eligible = endpoints.filter(({ eligible }) => eligible).map(({ key }) => key);
  const isBound = policy?.verdict === "externalFromCluster" &&
    reached.sort().join() !== eligible.sort().join();
  const others = outcomes.filter(({ endpoint }) => endpoint?.address !== packet.from.address);
  const isOwnPacket = origin.isFromNode && source?.rewritten !== "always" && others.length > 0 &&
    others.every(({ masquerade }) => masquerade);
  const isRefused = verdict.kind === "forward" && !isBound &&
    outcomes.every(({ verdict }) => verdict === "DROP");
  return {
    ...(isRefused &&
      {
        refusal: {
          kind: "drop",
          detail: "the address is bound to the node and becomes the source, which is not admitted",
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
}

/** Service addresses are addresses of the node: the ports that no Service has there are closed. */
function outcomeOf(outcomes: readonly WalkOutcome[], { to }: Packet): ModeDeviations["outcome"] {
  const verdict = outcomes.find(({ verdict }) => verdict !== "ACCEPT")?.verdict;
  if (verdict === undefined) return undefined;
  const kind = verdict === "DROP" ? "drop" : "reject";
  return { kind, why: `${to} is a Service address on ${DEVICE}, closed for all else` };
}

/**
 * The state of the kernel after rendered steps, for a walk: rules, sets, addresses and virtual
 * servers, each as its line.
 */
export interface RenderedKernel {
  readonly rules: RuleSource;
  readonly ipvs: IpvsSource;
}

/** Chains that packets enter by themselves. */
const BUILT_IN = ["FORWARD", "INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"];

/** Reads the steps of a first sync. Throws an Error that quotes a line which it cannot read. */
export function readRenderedKernel(steps: Iterable<IpvsStep>): RenderedKernel {
  const draft = new Draft();
  for (const step of steps) {
    for (const line of [...stepText(step)].join("").trimEnd().split("\n")) {
      if (!draft[step.tool](line)) {
        throw new Error(`Cannot walk the line of ${step.tool} '${line}'`);
      }
    }
  }
  const { chains, sets, servers, addresses } = draft;
  return {
    rules: (table, chain) =>
      chains.get(`${table} ${chain}`) ?? (BUILT_IN.includes(chain) ? [] : undefined),
    ipvs: {
      entries: (set) => sets.get(set),
      address: (address) => addresses.get(address),
      server: ({ destination: address, port, protocol }) =>
        servers.get(serverKey({ address, port, protocol })),
    },
  };
}

/**
 * The state so far. The method of each tool takes a line, or returns false if it cannot read it.
 */
class Draft {
  readonly chains = new Map<string, string[]>();
  readonly sets = new Map<string, string[]>();
  readonly servers = new Map<string, string[]>();
  readonly addresses = new Map<string, string>();
  #table = "";

  iptables(line: string): boolean {
    const [, command, name = "", rule = ""] = /^(\*|:|-A |-I |COMMIT)(\S*) ?(.*)$/.exec(line) ?? [];
    const chain = `${this.#table} ${name}`;
    if (command === "*") this.#table = name;
    else if (command === ":") this.chains.set(chain, []);
    else if (command === "-A ") this.chains.get(chain)?.push(rule);
    else if (command === "-I ") this.chains.set(chain, [rule, ...this.chains.get(chain) ?? []]);
    return command !== undefined;
  }

  ipset(line: string): boolean {
    const [, verb, name = "", entry = ""] = /^(create|add) (\S+) (\S+)/.exec(line) ?? [];
    if (verb === "create") this.sets.set(name, []);
    else this.sets.get(name)?.push(entry);
    return verb !== undefined;
  }

  ipvsadm(line: string): boolean {
    const [, verb, key = ""] = /^(-A|-a) (\S+ \S+) /.exec(line) ?? [];
    if (verb === "-A") this.servers.set(key, [line]);
    else this.servers.get(key)?.push(line);
    return verb !== undefined;
  }

  ip(line: string): boolean {
    if (line.startsWith("link add ")) return true;
    const [, address] = /^addr replace (\S+)\/\d+ dev \S+$/.exec(line) ?? [];
    if (address !== undefined) this.addresses.set(address, line);
    return address !== undefined;
  }
}
