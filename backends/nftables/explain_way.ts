/**
 * The chains, rules and elements that a packet meets. Pure.
 *
 * @module
 */
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import type { PacketCarrier, PacketExplanation } from "../../lib/proxy/packet_explanation.ts";
import type { PacketHit } from "../../lib/proxy/packet_hit.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { SOURCE_RANGES_CHAIN } from "./base_chains.ts";
import { chainElement, chainName, REJECT_CHAIN } from "./chain_spec.ts";
import { type EntryId, vipKey } from "./claims.ts";
import type { Element } from "./containers.ts";
import { chainOf, elementsOf, type Entry } from "./entry.ts";
import { isOfList, rulesMet } from "./explain_rules.ts";
import { NftablesLayout } from "./layout.ts";
import type { NftablesRenderOptions } from "./render_options.ts";

/** What a way depends on beside the plan. */
interface PacketWayContext {
  readonly explanation: PacketExplanation;
  readonly options: NftablesRenderOptions;
  /** What the table holds, as far as it is known: endpoints may have other numbers there. */
  readonly applied: (id: EntryId) => Entry | undefined;
}

/** The element by which a packet for nobody is kept from going on. */
export type Keeper = Element & { readonly container: "cluster-ips" | "service-cidrs" };

/** Collects what carries a packet, in the order in which the packet meets it. */
export class PacketWay {
  readonly carriers: PacketCarrier[] = [];
  readonly #context: PacketWayContext;
  readonly #layout: NftablesLayout;
  readonly #localTraffic: LocalTrafficDetector;

  constructor({ shared }: ProxyPlan, context: PacketWayContext) {
    this.#context = context;
    this.#localTraffic = shared.localTraffic;
    this.#layout = new NftablesLayout(shared, context.options);
  }

  /** The way of a packet that a ServicePort has. */
  toService({ service, role }: PacketHit): void {
    const { explanation: { packet: { to, protocol } }, options, applied } = this.#context;
    this.#layout.set(service);
    const isNodePort = role === "NodePort";
    const container = isNodePort ? "node-ports" : "service-ips";
    const key = isNodePort
      ? `${protocol.toLowerCase()} . ${service.nodePort}`
      : vipKey(to, service);
    const id = `${container} ${key}` as EntryId;
    const wanted = this.#layout.entry(id, undefined);
    const entry = ifCurrent(applied(id), wanted) ?? wanted;
    this.#addHook("nat");
    this.#addChain("services", `@${container}`);
    if (isNodePort && options.nodePortAddresses.kind === "cidrs") {
      this.#addElement({ container: "node-port-ips", key: to });
    }
    if (entry) this.#addEntry(entry);
    this.#addSource();
  }

  /** The way of a packet that is kept from going on. */
  toKeeper(keeper: Keeper): void {
    this.#addHook("unclaimed");
    this.#addChain("unclaimed", `@${keeper.container}`);
    this.#addElement(keeper);
    if (keeper.container === "cluster-ips") this.#addChain(REJECT_CHAIN);
  }

  #addEntry(entry: Entry): void {
    const [front, ...rest] = elementsOf(entry, this.#context.options);
    if (front === undefined) return;
    this.#addElement(front);
    const spec = chainOf(entry);
    const chains = [SOURCE_RANGES_CHAIN, REJECT_CHAIN, "drop", ...spec ? [chainName(spec)] : []];
    for (const target of chains.map(chainElement)) {
      if (target.key === front.value) this.#addElement(target);
    }
    const admitted = rest.filter(({ container }) =>
      container === "admitted" || container === "source-ranges"
    );
    const isRefused = front.value === chainElement(REJECT_CHAIN).key;
    if (isRefused) this.#addChain(REJECT_CHAIN);
    if (admitted.length > 0) this.#addChain(SOURCE_RANGES_CHAIN);
    for (const element of admitted) this.#addElement(element);
    const { verdict } = this.#context.explanation;
    if (spec === undefined || (verdict.kind === "drop" && verdict.why === "source-ranges")) return;
    const { explanation, options } = this.#context;
    const sender = { explanation, localTraffic: this.#localTraffic, family: options.family };
    for (const rule of rulesMet(spec, this.#layout.chainRules(spec), sender)) {
      this.#addRule(chainName(spec), rule);
    }
    const targets = eligibleTargets(explanation);
    for (const element of rest) {
      const { container, value } = element;
      if (!container.endsWith("endpoints") || !targets.has(value)) continue;
      if (isOfList(spec, element, sender)) this.#addElement(element);
    }
  }

  /** What changes the source address on the way out. */
  #addSource(): void {
    const { source, endpoints, packet: { from } } = this.#context.explanation;
    if (source?.rewritten === "always") this.#addChain("nat-postrouting", "meta mark");
    else if (endpoints.some(({ seesNode }) => seesNode)) {
      this.#addChain("nat-postrouting", "@hairpin");
      this.#addElement({ container: "hairpin", key: `${from.address} . ${from.address}` });
    }
  }

  #addHook(chain: "nat" | "unclaimed"): void {
    const isFromNode = this.#context.explanation.packet.from.kind === "node";
    this.#addChain(`${chain}-${isFromNode ? "output" : "prerouting"}`);
  }

  /** The rules of a chain that is always there, as far as they say this. */
  #addChain(name: string, part = ""): void {
    const chain = this.#layout.baseChains().find((each) => each.name === name);
    for (const rule of chain?.rules ?? []) if (rule.includes(part)) this.#addRule(name, rule);
  }

  #addRule(chain: string, rule: string): void {
    this.carriers.push({ object: "rule", name: chain, text: `${chain} ${rule}` });
  }

  #addElement({ container, key, value }: Element): void {
    const text = value === undefined ? key : `${key} : ${value}`;
    const object = value === undefined ? "set element" : "map element";
    this.carriers.push({ object, name: container, text });
  }
}

/** The endpoints that the packet may go to, as elements have them. */
function eligibleTargets({ endpoints }: PacketExplanation): ReadonlySet<string | undefined> {
  const eligible = endpoints.filter(({ eligible }) => eligible);
  return new Set(eligible.map(({ key }) => key.replace(/^\[?([^\]]*)\]?:(\d+)$/, "$1 . $2")));
}

/** What the table holds, unless it is of another plan. */
function ifCurrent(applied: Entry | undefined, wanted: Entry | undefined): Entry | undefined {
  return applied && applied.plan === wanted?.plan && applied.role === wanted.role
    ? applied
    : undefined;
}
