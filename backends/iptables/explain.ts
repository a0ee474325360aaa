/**
 * Which rules carry a packet, and what this mode does in another way than the plan says. Pure.
 *
 * @module
 */
import { isLoopback } from "../../lib/net/ip_address.ts";
import type {
  ModeExplanation,
  PacketCarrier,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import { findHit, type PacketHit } from "../../lib/proxy/packet_hit.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { type IptablesTable, ruleText } from "../netfilter/iptables_objects.ts";
import { baseJumps, type Jump, type TreeId, TREES } from "./base_chains.ts";
import type { IptablesLayout } from "./layout.ts";
import { rulesMet } from "./explain_rules.ts";
import { addressPath, destinationPath, portPath } from "./packet_path.ts";
import { renderService } from "./render_service.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { unsupportedParts } from "./unsupported.ts";

/** What carries the packet of an explanation; `layout` has all ServicePorts of the plan. */
export function explainIptables(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  layout: IptablesLayout,
): ModeExplanation {
  const hit = findHit(plan, explanation.packet);
  const unserved = hit && unservedReason(hit, explanation, layout.options);
  if (unserved !== undefined) return { deviations: { unserved }, carriers: [] };
  if (hit === undefined || explanation.verdict.kind === "unclaimed") return { carriers: [] };
  const way = new PacketWay(plan, { explanation, hit, layout });
  way.walk();
  return { carriers: way.carriers };
}

function unservedReason(
  { role, service }: PacketHit,
  { packet: { to } }: PacketExplanation,
  options: IptablesRenderOptions,
): string | undefined {
  const { everything, external, quarantined } = unsupportedParts(service, options.features);
  if (everything || (external && role !== "ClusterIP")) return quarantined[0]?.reason;
  if (role !== "NodePort" || !isLoopback(to)) return undefined;
  if (options.family === "IPv6") return "IPv6 has no route_localnet: what goes to ::1 stays there";
  if (options.localhostNodePorts) return undefined;
  return "node ports on 127.0.0.0/8 are turned off, by --iptables-localhost-nodeports or " +
    "--nodeport-addresses";
}

interface WayContext {
  readonly explanation: PacketExplanation;
  readonly hit: PacketHit;
  readonly layout: IptablesLayout;
}

/** A target that is a chain of one ServicePort. */
const OWN_CHAIN = /-[jg] (KUBE-(?:SVC|SVL|EXT|FW)-\S+)$/;
/** By what a rule of `KUBE-POSTROUTING` is told. */
const MASQUERADES = /xor-mark|MASQUERADE/;

/** Collects the rules that a packet meets, in that order. */
class PacketWay {
  readonly carriers: PacketCarrier[] = [];
  readonly #plan: ProxyPlan;
  readonly #context: WayContext;

  constructor(plan: ProxyPlan, context: WayContext) {
    this.#plan = plan;
    this.#context = context;
  }

  walk(): void {
    const { explanation: { verdict }, hit: { role } } = this.#context;
    if (verdict.kind === "forward") {
      this.#addForward();
      this.#addSource();
    } else if (verdict.kind === "drop" && verdict.why === "source-ranges") {
      this.#addFilter("firewall", "KUBE-PROXY-FIREWALL");
    } else if (role === "ClusterIP") {
      this.#addFilter("refused", "KUBE-SERVICES");
    } else {
      const tree = role === "NodePort" ? "refusedNodePorts" : "refusedExternal";
      this.#addFilter(tree, "KUBE-EXTERNAL-SERVICES");
    }
  }

  #addForward(): void {
    this.#addJump("nat", this.#isFromNode ? "OUTPUT" : "PREROUTING", "KUBE-SERVICES");
    if (this.#context.hit.role === "NodePort") {
      this.#addLastRules("nat", "services");
      this.#addTree("nodePorts");
    } else this.#addTree("services");
  }

  #addFilter(tree: TreeId, chain: string): void {
    const from = this.#isFromNode ? "OUTPUT" : tree === "refusedNodePorts" ? "INPUT" : "FORWARD";
    this.#addJump("filter", from, chain);
    if (tree === "refusedNodePorts") this.#addLastRules("filter", "refusedExternal");
    this.#addTree(tree);
  }

  /** What changes the source address on the way out. */
  #addSource(): void {
    const { source, endpoints, packet: { from } } = this.#context.explanation;
    const isHairpin = endpoints.some(({ seesNode }) => seesNode) && source?.rewritten !== "always";
    if (source?.rewritten !== "always" && !isHairpin) return;
    this.#addJump("nat", "POSTROUTING", "KUBE-POSTROUTING");
    const chain = { table: "nat", name: "KUBE-POSTROUTING", source: { kind: "base" } } as const;
    const rules = this.#context.layout.content(chain)?.rules ?? [];
    const wanted = isHairpin
      ? rules.filter((rule) => rule.includes(TREES.hairpin.root))
      : rules.filter((rule) => MASQUERADES.test(rule));
    for (const rule of wanted) this.#add("nat", chain.name, rule);
    if (isHairpin) this.#addTree("hairpin", addressPath(from.address));
  }

  /** The jumps down a tree, and the rules at the end that are for this packet. */
  #addTree(tree: TreeId, path = this.#pathOf(tree)): void {
    const { hit: { service }, layout } = this.#context;
    const { table } = TREES[tree];
    const refs = layout.way(tree, path);
    for (const [index, ref] of refs.entries()) {
      const next = refs[index + 1];
      const { rules = [], owners = [] } = layout.content(ref) ?? {};
      if (next) {
        const jump = rules.find((rule) => rule.endsWith(` ${next.name}`));
        if (jump !== undefined) this.#add(table, ref.name, jump);
        continue;
      }
      const own = this.#ownRules(tree, path);
      const wanted = rules.filter((rule, at) =>
        own.has(rule) && (tree === "hairpin" || owners[at] === service.key)
      );
      const { packet, origin } = this.#context.explanation;
      for (const rule of rulesMet(wanted, { sender: packet.from, origin })) {
        this.#addWithChains(table, ref.name, rule);
      }
    }
  }

  #ownRules(tree: TreeId, path: string): ReadonlySet<string> {
    const { hit: { service }, layout: { options } } = this.#context;
    const { localTraffic } = this.#plan.shared;
    const { entries } = renderService(service, { localTraffic, options });
    const own = entries.filter((entry) => entry.tree === tree && entry.path === path);
    return new Set(own.flatMap(({ rules }) => rules.map(ruleText)));
  }

  /** A rule, and those of the ServicePort's own chains that it leads to, each once. */
  #addWithChains(table: IptablesTable, chain: string, rule: string): void {
    this.#add(table, chain, rule);
    const { explanation: { packet, origin }, hit: { service: { key } }, layout } = this.#context;
    const [, name] = OWN_CHAIN.exec(rule) ?? [];
    if (name === undefined || this.carriers.some((each) => each.name === `nat ${name}`)) return;
    const content = layout.content({ table: "nat", name, source: { kind: "service", key } });
    const rules = rulesMet(content?.rules ?? [], { sender: packet.from, origin });
    for (const each of rules) this.#addWithChains("nat", name, each);
  }

  /** The rules at the end of the root of a tree, which lead to those of node ports. */
  #addLastRules(table: IptablesTable, tree: "refusedExternal" | "services"): void {
    const [root] = this.#context.layout.way(tree, "");
    const next = tree === "services" ? TREES.nodePorts.root : TREES.refusedNodePorts.root;
    const { rules = [] } = root ? this.#context.layout.content(root) ?? {} : {};
    const { to } = this.#context.explanation.packet;
    for (const rule of rules) {
      const isOther = / -d (\S+) /.exec(` ${rule}`)?.[1];
      const names = isOther !== undefined && !rule.includes("! -d") && isOther !== to;
      if (rule.endsWith(` ${next}`) && !names) this.#add(table, root?.name ?? "", rule);
    }
  }

  #pathOf(tree: TreeId): string {
    const { hit: { service }, explanation: { packet: { to, port, protocol } } } = this.#context;
    return TREES[tree].kind === "port"
      ? portPath(protocol, port)
      : destinationPath(to, protocol, service.port);
  }

  #addJump(table: IptablesTable, from: Jump["from"], chain: string): void {
    const jump = baseJumps(this.#context.layout.options).find((each) =>
      each.table === table && each.from === from && each.rule.target?.[0] === chain
    );
    if (jump) this.#add(table, from, ruleText(jump.rule), "-I");
  }

  #add(table: IptablesTable, chain: string, rule: string, verb: "-A" | "-I" = "-A"): void {
    this.carriers.push({
      object: "rule",
      name: `${table} ${chain}`,
      text: `${verb} ${chain} ${rule}`,
    });
  }

  get #isFromNode(): boolean {
    return this.#context.explanation.packet.from.kind === "node";
  }
}
