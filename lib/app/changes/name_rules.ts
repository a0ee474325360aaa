/**
 * Adds to the log by which rules each ServicePort is served now. Done when somebody asks, so that a
 * sync never waits for it.
 *
 * @module
 */
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { type RuleName, ruleNames } from "../../proxy/rule_names.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ChangeEffect, ChangesReport } from "./change_entry.ts";

/** One IP family, as it is served. */
export interface ServedFamily {
  readonly family: IpFamily;
  readonly backend: Pick<Backend, "explain">;
  readonly pipeline: { readonly plan: ProxyPlan };
}

/** ServicePorts that are looked at, those of the newest entries. */
export const MOST_NAMED = 32;

/**
 * The report with {@linkcode ChangeEffect.rules} in its newest effects. A ServicePort that is in
 * several entries has the same rules in all: those of now.
 */
export async function nameRules(
  { clock, families }: { readonly clock: Clock; readonly families: readonly ServedFamily[] },
  report: ChangesReport,
): Promise<ChangesReport> {
  const namers = new Map(families.map((each) => [each.family, new Namer({ clock }, each)]));
  const entries = [];
  for (const entry of report.entries.toReversed()) {
    const namer = entry.kind === "sync" ? namers.get(entry.family) : undefined;
    if (entry.kind !== "sync" || namer === undefined) {
      entries.push(entry);
      continue;
    }
    const effects: ChangeEffect[] = [];
    for (const effect of entry.effects) {
      const rules = await namer.rulesOf(effect.servicePort);
      effects.push(rules ? { ...effect, rules } : effect);
    }
    entries.push({ ...entry, effects });
  }
  return { ...report, entries: entries.reverse() };
}

/** Names the rules of one family's ServicePorts, each once. */
class Namer {
  readonly #clock: Clock;
  readonly #served: ServedFamily;
  readonly #known = new Map<string, readonly RuleName[] | undefined>();

  constructor({ clock }: { readonly clock: Clock }, served: ServedFamily) {
    this.#clock = clock;
    this.#served = served;
  }

  /** None for one that is gone; `undefined` for one too many, or where the mode can't tell. */
  async rulesOf(servicePort: string): Promise<readonly RuleName[] | undefined> {
    if (!this.#known.has(servicePort)) {
      if (this.#known.size >= MOST_NAMED) return undefined;
      await this.#clock.yieldToEventLoop();
      this.#known.set(servicePort, this.#look(servicePort));
    }
    return this.#known.get(servicePort);
  }

  #look(servicePort: string): readonly RuleName[] | undefined {
    const { backend, pipeline: { plan } } = this.#served;
    const services: ReadonlyMap<string, ServicePlan> = plan.services;
    const service = services.get(servicePort);
    if (service === undefined) return [];
    try {
      return ruleNames(plan, service, backend);
    } catch {
      // A node in trouble has to be able to tell what changed: names are an addition.
      return undefined;
    }
  }
}
