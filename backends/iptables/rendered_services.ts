/**
 * Caches the rules of ServicePorts as text. Pure except for its own state.
 *
 * Rules as objects are several times as large as text: those of 10,000 ServicePorts made the first
 * sync 15 MiB larger.
 *
 * @module
 */
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { renderService, type ServiceRenderContext } from "./render_service.ts";
import type { ServiceChain, ServiceEntry, ServiceRules } from "./service_rules.ts";

/** A {@linkcode ServiceEntry} whose rules are text, without the chain's name. */
export type EntryText = Omit<ServiceEntry, "rules"> & { readonly rules: readonly string[] };

/** A {@linkcode ServiceChain} whose rules are text, without the chain's name. */
type ChainText = Omit<ServiceChain, "rules"> & { readonly rules: readonly string[] };

/** {@linkcode ServiceRules} as text. */
export interface ServiceText extends Pick<ServiceRules, "quarantined"> {
  readonly entries: readonly EntryText[];
  readonly chains: readonly ChainText[];
}

/** The part that determines the chains of a ServicePort. */
export interface ServiceOutline extends Pick<ServiceRules, "quarantined"> {
  readonly entries:
    readonly (Omit<ServiceEntry, "rules"> & { readonly rules: readonly unknown[] })[];
  readonly chains: readonly Pick<ServiceChain, "name">[];
}

/** Distinguishes the entries of a ServicePort. */
export function entryId({ tree, path, rank }: Pick<EntryText, "path" | "rank" | "tree">): string {
  return `${tree} ${path} ${rank}`;
}

/** Up to this number, entries are searched linearly; beyond, by an index. */
const FEW_ENTRIES = 8;

/** Renders each plan once between two calls of {@linkcode clear}. */
export class RenderedServices {
  readonly #rendered = new Map<
    ServicePortKey,
    { readonly plan: ServicePlan; readonly text: ServiceText }
  >();
  /** The entries of plans with many entries, by {@linkcode entryId}. */
  readonly #byId = new WeakMap<ServiceText, ReadonlyMap<string, EntryText>>();

  /** The text of a plan. The context must be the same in every call. */
  textOf(plan: ServicePlan, context: ServiceRenderContext): ServiceText {
    const known = this.#rendered.get(plan.key);
    if (known?.plan === plan) return known.text;
    const { entries, chains, quarantined } = renderService(plan, context);
    const text: ServiceText = {
      entries: entries.map(({ tree, path, rank, rules }) => ({
        tree,
        path,
        rank,
        rules: rules.map(ruleText),
      })),
      chains: chains.map(({ name, rules }) => ({ name, rules: rules.map(ruleText) })),
      quarantined,
    };
    this.#rendered.set(plan.key, { plan, text });
    return text;
  }

  /** One entry of a plan. */
  entryOf(
    plan: ServicePlan,
    id: Pick<EntryText, "path" | "rank" | "tree">,
    context: ServiceRenderContext,
  ): EntryText | undefined {
    const text = this.textOf(plan, context);
    const { entries } = text;
    if (entries.length <= FEW_ENTRIES) {
      return entries.find(({ tree, path, rank }) =>
        tree === id.tree && path === id.path && rank === id.rank
      );
    }
    const byId = this.#byId.get(text) ?? new Map(entries.map((entry) => [entryId(entry), entry]));
    this.#byId.set(text, byId);
    return byId.get(entryId(id));
  }

  /**
   * Returns the outline of a plan without caching it, unless its text is cached. For callers that
   * need the text of only a few ServicePorts.
   */
  outlineOf(plan: ServicePlan, context: ServiceRenderContext): ServiceOutline {
    const known = this.#rendered.get(plan.key);
    return known?.plan === plan ? known.text : renderService(plan, context);
  }

  /** Forgets a removed ServicePort. */
  forget(key: ServicePortKey): void {
    this.#rendered.delete(key);
  }

  /** Forgets all texts. */
  clear(): void {
    this.#rendered.clear();
  }
}
