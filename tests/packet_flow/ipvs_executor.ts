/** Carries packets out over the text that ipvs mode would apply. */
import { renderText } from "../../backends/ipvs/render.ts";
import { defaultIpvsOptions, type IpvsRenderOptions } from "../../backends/ipvs/render_service.ts";
import { type RuleSource, walkIptables } from "../support/walk/iptables_walk.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type { PacketFlowCase, PacketFlowScenario, PacketOutcome } from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";
import { isMasqueraded, tracedPacket, verdictOf } from "./traced_verdict.ts";
import type { IpvsSource } from "../support/walk/ipvs_objects.ts";
import { serverKey } from "../../backends/netfilter/virtual_servers.ts";

/**
 * The state of the kernel after rendered steps, for a walk: rules, sets, addresses and virtual
 * servers, each as its line.
 */
interface RenderedKernel {
  readonly rules: RuleSource;
  readonly ipvs: IpvsSource;
}

/** Chains that packets enter by themselves. */
const BUILT_IN = ["FORWARD", "INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"];

/**
 * Reads the rendered text of mode ipvs, in which a comment names the tool of the lines behind it. Throws
 * an Error that quotes a line which it cannot read.
 */
function readRenderedKernel(text: Iterable<string>): RenderedKernel {
  const draft = new Draft();
  let tool: "ip" | "ipset" | "iptables" | "ipvsadm" | undefined;
  for (const line of [...text].join("").trimEnd().split("\n")) {
    const [, next] = /^# (ipvsadm|ipset|ip|ip6?tables-restore) /.exec(line) ?? [];
    if (next !== undefined) {
      tool = next.endsWith("-restore") ? "iptables" : next as "ip" | "ipset" | "ipvsadm";
    } else if (tool === undefined || !draft[tool](line)) {
      throw new Error(`Cannot walk the line of ${tool} '${line}'`);
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

/** The settings of the ipvs mode for a scenario, on the node of the address plan. */
export function ipvsScenarioOptions(family: IpFamily): IpvsRenderOptions {
  const { node, nodeSecond } = ADDRESSES[family];
  return {
    ...defaultIpvsOptions(family),
    nodeAddresses: new Set([node, nodeSecond]),
  };
}

/** The kernel for a scenario. */
export function ipvsScenarioKernel(scenario: PacketFlowScenario, family: IpFamily): RenderedKernel {
  const plan = planScenario(scenario, family, { mode: "ipvs" });
  return readRenderedKernel(renderText(plan, ipvsScenarioOptions(family)));
}

/** Returns the outcome of a packet. */
export function executeOnIpvs(
  { rules, ipvs }: RenderedKernel,
  packet: PacketFlowCase,
): PacketOutcome {
  const { loopback, node, nodeSecond } = ADDRESSES[packet.family];
  const traced = tracedPacket(packet);
  // For an address that is bound here, the kernel chooses that address itself as source.
  const isOwn = packet.from === "node" && ipvs.address(packet.to) !== undefined;
  const source = isOwn ? packet.to : traced.source;
  const outcomes = walkIptables(rules, { ...traced, source }, {
    isLocal: (address) => [loopback, node, nodeSecond].includes(address),
    isListed: () => false,
    ipvs,
  });
  const verdict = verdictOf(outcomes);
  const isForwarded = typeof verdict !== "string";
  return {
    verdict,
    masquerade: isForwarded && isMasqueraded(outcomes, source),
    sticky: isForwarded &&
      outcomes.every(({ path }) =>
        path.some(({ object, text }) => object === "virtual server" && / -p \d+/.test(text))
      ),
    trace: outcomes.flatMap(({ path, verdict }) => [
      ...path.map(({ name, text }) => `${name}: ${text}`),
      `= ${verdict}`,
    ]),
  };
}
