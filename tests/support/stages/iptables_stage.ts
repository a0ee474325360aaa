import { IptablesBackend } from "../../../backends/iptables/backend.ts";
import { renderIptables } from "../../../backends/iptables/render.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { defaultRenderOptions } from "../builders/iptables_render_options.ts";
import { FakeIptables } from "../fakes/fake_iptables.ts";
import { FakeIptablesMachine } from "../fakes/fake_iptables_machine.ts";
import { RULES_SETTINGS, RulesStage } from "./rules_stage.ts";

/** Longer than any pause before a retry, and than the time for which a reading counts as fresh. */
const LONG_MS = 400_000;

/** A kube-relay in iptables mode, without the rest of it. */
export class IptablesStage extends RulesStage<FakeIptablesMachine> {
  constructor(machine = new FakeIptablesMachine()) {
    super(
      machine,
      (edges) => new IptablesBackend(edges, { ...RULES_SETTINGS, localhostNodePorts: true }),
    );
  }

  /** Lets all retries fall due. */
  async wait(): Promise<void> {
    await this.clock.advance(LONG_MS);
  }
}

/** The roots of the trees, by the names of the chains below. */
const ROOTS: Readonly<Record<string, string>> = {
  VIP: "KUBE-SERVICES",
  EVIP: "KUBE-EXTERNAL-SERVICES",
  FVIP: "KUBE-PROXY-FIREWALL",
  NP: "KUBE-NODEPORTS",
  ENP: "KUBE-EXTERNAL-NODEPORTS",
  HCP: "KUBE-NODEPORTS",
  HP: "KUBE-HAIRPIN",
};
const DISPATCH = / -[jg] KUBE-(VIP|EVIP|FVIP|ENP|NP|HP|HCP)-/;

/**
 * Returns the meaning of the rules, sorted: chains of the trees may differ with the history.
 * Includes unreachable chains, which must not exist.
 */
export function meaningOf(tool: FakeIptables): readonly string[] {
  const lines: string[] = [];
  for (const table of ["filter", "mangle", "nat"] as const) {
    const chains = tool.table(table);
    const targets = new Set(
      [...chains.values()].flat().map((rule) => / -[jg] (\S+)/.exec(` ${rule}`)?.[1]),
    );
    for (const [chain, rules] of chains) {
      if (/-\d+$/.test(chain) && !targets.has(chain)) lines.push(`${table} ${chain} is left over`);
      const place = ROOTS[/^KUBE-([A-Z]+)-/.exec(chain)?.[1] ?? ""] ?? chain;
      for (const rule of rules) {
        if (!DISPATCH.test(` ${rule}`)) lines.push(`${table} ${place} ${rule}`);
      }
    }
  }
  return lines.sort();
}

/** Returns the meaning of this plan's rules on a machine without any other rules. */
export function goldenMeaning(plan: ProxyPlan): readonly string[] {
  const tool = new FakeIptables();
  tool.restore(renderIptables(plan, defaultRenderOptions("IPv4")).lines.join("\n"));
  return meaningOf(tool);
}
