/**
 * A whole plan as input for the tools on a machine without objects of this mode. Pure.
 *
 * @module
 */
import { inPieces } from "../../lib/os/command_input.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import { leftOutText } from "../netfilter/refused_items.ts";
import { IpvsChanges } from "./changes.ts";
import { fixedObjects, serviceObjects } from "./objects.ts";
import { IpvsLayout } from "./layout.ts";
import type { IpvsRenderOptions } from "./render_service.ts";
import type { IpvsStep } from "./ipvs_runner.ts";

/**
 * Renders a plan from scratch, or some ServicePorts on top of the rest. Sorted by key, so the same
 * plan gives the same bytes.
 */
export function renderIpvs(
  plan: ProxyPlan,
  options: IpvsRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): {
  readonly steps: readonly IpvsStep[];
  /** Deviations from what Services ask for. */
  readonly quarantined: readonly Quarantined[];
} {
  const layout = new IpvsLayout(plan.shared, options);
  const changes = new IpvsChanges();
  for (const key of [...keys ?? plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service === undefined) continue;
    layout.set(service);
    for (const object of serviceObjects({ plan: service, inputs: layout })) {
      changes.add(object, undefined, object.text, key);
    }
  }
  for (const object of keys === undefined ? fixedObjects(layout.ruleContext) : []) {
    changes.add(object, undefined, object.text, undefined);
  }
  const steps = atOnce(changes.steps({
    family: options.family,
    drains: new Map(),
    createsDevice: true,
    isTakeover: false,
  }));
  return { steps, quarantined: layout.quarantined };
}

/**
 * Renders everything, or the part for these ServicePorts. The input of each tool is the text
 * between two comments, since `ipvsadm -R` would fail at a comment.
 */
export function* renderText(
  plan: ProxyPlan,
  options: IpvsRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  const { steps, quarantined } = renderIpvs(plan, options, keys);
  const commands: Readonly<Record<IpvsStep["tool"], string>> = {
    ip: "ip -batch -",
    ipset: "ipset restore",
    iptables: `${options.family === "IPv4" ? "iptables" : "ip6tables"}-restore --noflush`,
    ipvsadm: "ipvsadm -R",
  };
  for (const step of steps) {
    yield `# ${commands[step.tool]}\n`;
    yield* inPieces(step.lines);
  }
  yield* quarantined.map(leftOutText);
}
